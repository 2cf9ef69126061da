"""The machine of a transactional id, as data: its states, its transitions (drawn in docs/dev/STATES.md), and what EndTxn means in each of them.

A prepared outcome is never turned round (invariant 35): from PrepareCommit there is one way out, and it is taken again
after every failover until all markers are written. Dead and PrepareEpochFence are Kafka's, in memory there and never
written; here an id that expires is gone at once, and fencing is one step.

The version of EndTxn shows a client's transaction version: v5 is version 2, where every end of a transaction raises
the epoch (KIP-890), so that a late request of the last transaction can never be taken for one of the next.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from ottla.protocol.errors import ErrorCode

# Producers get epochs up to the one before the last; the last one is reserved for fencing.
EPOCH_MAX = 0x7FFF
EPOCH_EXHAUSTED = EPOCH_MAX - 1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

# Transaction version (KIP-890) from which the end of a transaction raises the producer's epoch.
EPOCH_BUMP_SINCE = 2


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Return the name in DescribeTransactions and ListTransactions."""
        return NAMES[self]


NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
BY_NAME = {name: state for state, name in NAMES.items()}

IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})

_FROM_IDLE = {
    State.EMPTY: "InitProducerId: a new producer epoch",
    State.ONGOING: "a partition, or the offsets of a group, is added",
    # The client fences itself after a failure with an unknown outcome.
    State.PREPARE_ABORT: "a client of version 2 aborts without having added anything",
}
TRANSITIONS: dict[State, dict[State, str]] = {
    State.EMPTY: _FROM_IDLE,
    State.ONGOING: {
        State.ONGOING: "another partition is added",
        State.PREPARE_COMMIT: "EndTxn: commit",
        State.PREPARE_ABORT: "EndTxn: abort; transaction.timeout.ms; or a new producer with the same id",
    },
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT: "all markers are written"},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT: "all markers are written"},
    State.COMPLETE_COMMIT: _FROM_IDLE,
    State.COMPLETE_ABORT: _FROM_IDLE,
}

COMPLETION = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}


class End(Enum):
    """The result of an EndTxn request that is not rejected."""

    PREPARE = "prepare"  # write the outcome, then the markers
    DONE = "done"  # it is complete already: answer without a record


_INVALID = ErrorCode.INVALID_TXN_STATE
_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS

# (state, commit?) -> outcome, for clients before version 2.
END_TXN_V1: dict[tuple[State, bool], End | ErrorCode] = {
    (State.EMPTY, True): _INVALID,
    (State.EMPTY, False): _INVALID,
    (State.ONGOING, True): End.PREPARE,
    (State.ONGOING, False): End.PREPARE,
    (State.PREPARE_COMMIT, True): _BUSY,
    (State.PREPARE_COMMIT, False): _BUSY,
    (State.PREPARE_ABORT, True): _BUSY,
    (State.PREPARE_ABORT, False): _BUSY,
    (State.COMPLETE_COMMIT, True): End.DONE,
    (State.COMPLETE_COMMIT, False): _INVALID,
    (State.COMPLETE_ABORT, True): _INVALID,
    (State.COMPLETE_ABORT, False): End.DONE,
}

# (state, commit?, retry?) -> outcome, for clients of version 2. A retry names the epoch before the one that the end of the
# transaction raised; in Ongoing and Empty nothing was raised, so there is none. In Prepare* what is no retry is the end of
# the next transaction: its producer was answered with the new epoch before the markers are written, and has to wait.
END_TXN_V2: dict[tuple[State, bool, bool], End | ErrorCode] = {
    (State.EMPTY, True, False): _INVALID,
    (State.EMPTY, False, False): End.PREPARE,
    (State.ONGOING, True, False): End.PREPARE,
    (State.ONGOING, False, False): End.PREPARE,
    (State.PREPARE_COMMIT, True, False): _BUSY,
    (State.PREPARE_COMMIT, True, True): _BUSY,
    (State.PREPARE_COMMIT, False, False): _BUSY,
    (State.PREPARE_COMMIT, False, True): _BUSY,
    (State.PREPARE_ABORT, True, False): _BUSY,
    (State.PREPARE_ABORT, True, True): _BUSY,
    (State.PREPARE_ABORT, False, False): _BUSY,
    (State.PREPARE_ABORT, False, True): _BUSY,
    (State.COMPLETE_COMMIT, True, False): _INVALID,
    (State.COMPLETE_COMMIT, True, True): End.DONE,
    (State.COMPLETE_COMMIT, False, False): End.PREPARE,
    (State.COMPLETE_COMMIT, False, True): _INVALID,
    (State.COMPLETE_ABORT, True, False): _INVALID,
    # A commit that came after the coordinator's own abort (timeout). Kafka 4.3 returns INVALID_TXN_STATE, which is fatal
    # to clients; they recover from this one (KAFKA-20785, invariant 34).
    (State.COMPLETE_ABORT, True, True): ErrorCode.PRODUCER_FENCED,
    (State.COMPLETE_ABORT, False, False): End.PREPARE,
    (State.COMPLETE_ABORT, False, True): End.DONE,
}
