"""The states of a member of a consumer or streams group with their transitions, and how far a member has come.

A member's state is in the log. A group's state is not: it is read from the epochs (`ModernGroup.state`). A member of a share group has its
target at once, and stays STABLE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar


class MemberState(Enum):
    """Kafka's names end with _PARTITIONS for consumer and with _TASKS for streams groups. Values are the numbers in a consumer's record."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED
UNRELEASED = MemberState.UNRELEASED
UNKNOWN = MemberState.UNKNOWN

TRANSITIONS: dict[MemberState, dict[MemberState, str]] = {
    STABLE: {
        UNREVOKED: "a newer target takes partitions or tasks away that the member has not given up yet",
        UNRELEASED: "a newer target gives what other members, or a streams member's own process, still have",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNREVOKED: {
        STABLE: "the member gave up what it had to, and has all of its target",
        UNRELEASED: "the member gave up what it had to, and waits for what others have",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNRELEASED: {
        STABLE: "the others gave up what the member's target has",
        UNREVOKED: "a newer target takes partitions or tasks away",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNKNOWN: {
        STABLE: "the member gave everything up that it had in a state of a newer coordinator",
        UNREVOKED: "as above, and it has something to give up",
        UNRELEASED: "as above, and it waits for what others have",
    },
}


def member_state(number: int) -> MemberState:
    """Return the state in a record; UNKNOWN for a state of a newer version."""
    return MemberState(number) if number in _NUMBERS else UNKNOWN


_NUMBERS = frozenset(state.value for state in MemberState)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a member has come; a kind's current assignment adds what the member holds."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = STABLE

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is STABLE and self.epoch == assignment_epoch

    def is_waiting(self, group_epoch: int) -> bool:
        """Whether it needs the coordinator to go on: for a target of this epoch, or for what other members have still."""
        return self.state is UNRELEASED or (self.state is STABLE and self.epoch < group_epoch)


CurrentT = TypeVar("CurrentT", bound=Progress)


def moved(current: CurrentT, state: MemberState, epoch: int, **holdings: Any) -> CurrentT:
    """Return the next step. The response with the new epoch may be lost, so the previous epoch stays valid."""
    assert state is current.state or state in TRANSITIONS[current.state], f"{current.state} to {state}"
    return replace(current, epoch=epoch, previous_epoch=current.epoch, state=state, **holdings)
