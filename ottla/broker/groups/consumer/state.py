"""The states of a consumer group's member with their transitions, and the states of the group, which are derived from them.

A member's state is in the log (ConsumerGroupCurrentMemberAssignmentValue). A group's state is not: it is read from the epochs.
"""

from __future__ import annotations

from enum import Enum


class MemberState(Enum):
    """The state of a member. Values are the numbers in the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


STABLE = MemberState.STABLE
UNREVOKED_PARTITIONS = MemberState.UNREVOKED_PARTITIONS
UNRELEASED_PARTITIONS = MemberState.UNRELEASED_PARTITIONS
UNKNOWN = MemberState.UNKNOWN

TRANSITIONS: dict[MemberState, dict[MemberState, str]] = {
    STABLE: {
        UNREVOKED_PARTITIONS: "a newer target takes partitions away that the member has not given up yet",
        UNRELEASED_PARTITIONS: "a newer target gives partitions that other members still have",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNREVOKED_PARTITIONS: {
        STABLE: "the member gave the partitions up, and has all of its target",
        UNRELEASED_PARTITIONS: "the member gave the partitions up, and waits for those of others",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNRELEASED_PARTITIONS: {
        STABLE: "the others gave their partitions up",
        UNREVOKED_PARTITIONS: "a newer target takes partitions away",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNKNOWN: {
        STABLE: "the member gave everything up that it had in a state of a newer coordinator",
        UNREVOKED_PARTITIONS: "as above, and it has partitions to give up",
        UNRELEASED_PARTITIONS: "as above, and it waits for partitions of others",
    },
}


class GroupState(Enum):
    """The state of a group. Values are the names on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


def member_state(number: int) -> MemberState:
    """Returns the state in a record; UNKNOWN for a state of a newer version."""
    return MemberState(number) if number in _NUMBERS else UNKNOWN


_NUMBERS = frozenset(state.value for state in MemberState)
