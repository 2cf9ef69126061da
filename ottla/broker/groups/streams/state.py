"""The states of a streams group's member and every way from one to another, and the states of the group that follow from them.

A member's state is in the log (StreamsGroupCurrentMemberAssignmentValue). A group's state is not: it is read from the epochs.
"""

from __future__ import annotations

from enum import Enum


class MemberState(Enum):
    """Values are the numbers in the record; unlike those of consumer groups they begin with 1."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


STABLE = MemberState.STABLE
UNREVOKED_TASKS = MemberState.UNREVOKED_TASKS
UNRELEASED_TASKS = MemberState.UNRELEASED_TASKS
UNKNOWN = MemberState.UNKNOWN

TRANSITIONS: dict[MemberState, dict[MemberState, str]] = {
    STABLE: {
        UNREVOKED_TASKS: "a newer target takes tasks away that the member has not closed yet",
        UNRELEASED_TASKS: "a newer target gives tasks that other members, or its own process, still have",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNREVOKED_TASKS: {
        STABLE: "the member closed the tasks, and has all of its target",
        UNRELEASED_TASKS: "the member closed the tasks, and waits for those of others",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNRELEASED_TASKS: {
        STABLE: "the others closed their tasks",
        UNREVOKED_TASKS: "a newer target takes tasks away",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNKNOWN: {
        STABLE: "the member closed everything that it had in a state of a newer coordinator",
        UNREVOKED_TASKS: "as above, and it has tasks to close",
        UNRELEASED_TASKS: "as above, and it waits for tasks of others",
    },
}


class GroupState(Enum):
    """Values are the names on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


def member_state(number: int) -> MemberState:
    """The state of a record; UNKNOWN for one that a newer coordinator wrote."""
    return MemberState(number) if number in _NUMBERS else UNKNOWN


_NUMBERS = frozenset(state.value for state in MemberState)
