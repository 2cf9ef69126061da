"""The states of a classic group with their transitions. The table is the specification.

A group that replay rebuilds is Empty or Stable, because no other state is in the log. The rest is a
rebalance in progress, which lives in memory only.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Values are the names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

TRANSITIONS: dict[GroupState, dict[GroupState, str]] = {
    EMPTY: {
        PREPARING_REBALANCE: "the first member joins",
        DEAD: "deleted, expired, or the coordinator moves",
    },
    PREPARING_REBALANCE: {
        COMPLETING_REBALANCE: "all members joined, or those that did not in time are removed",
        EMPTY: "the last member left",
        DEAD: "the coordinator moves",
    },
    COMPLETING_REBALANCE: {
        STABLE: "the leader's assignment is in the log",
        PREPARING_REBALANCE: "a member joins, leaves, changes, fails, or does not sync in time",
        DEAD: "the coordinator moves",
    },
    STABLE: {
        PREPARING_REBALANCE: "a member joins, leaves, changes or fails, or the leader rejoins",
        DEAD: "the coordinator moves",
    },
    DEAD: {},
}

# The states in which a rebalance can start; in PreparingRebalance it continues.
CAN_REBALANCE = frozenset(state for state, following in TRANSITIONS.items() if PREPARING_REBALANCE in following)
