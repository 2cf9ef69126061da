"""The persister: how leaders of share partitions and the group coordinator reach the state that share coordinators keep (KIP-932).

Each call is about one share partition. Calls that are made in one turn of the loop go to their coordinators together. The reply
is completed in a later turn, with a KafkaError where the call failed for good: errors that pass (no coordinator yet, loading, a
lost connection) were retried before, with a growing pause. What the coordinator refused is not retried: FENCED_STATE_EPOCH,
FENCED_LEADER_EPOCH, INVALID_REQUEST (the share partition was never initialized), UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from ottla.broker.share.share_state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareState,
    StateSummary,
    StateUpdate,
)
from ottla.protocol.errors import KafkaError
from ottla.server.clock import Clock
from ottla.server.network.reply import Reply

K = TypeVar("K")
T = TypeVar("T")


class Persister(Protocol):
    """Keeps share state. A `Reply[None]` is completed with None when the state is committed, else with the KafkaError."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Reply[ShareState]:
        """The state, from now on written by a leader of this epoch or a later one only."""
        ...

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Reply[None]:
        """Merge the update into the state. Updates of one share partition are applied in the order of their calls."""
        ...

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Reply[None]:
        """Begin a new state without batches; a state of an older epoch is over, and its leader is fenced."""
        ...

    def delete(self, key: SharePartitionKey) -> Reply[None]:
        """Forget the state; also done if there is none."""
        ...

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Reply[StateSummary]:
        """Epochs and start offset, for administration; raises no leader epoch."""
        ...


def outcomes_of(calls: Mapping[K, Reply[T]]) -> Reply[dict[K, T | KafkaError]]:
    """The outcome of each call, once all of them are there."""
    outcomes: dict[K, T | KafkaError] = {}
    reply: Reply[dict[K, T | KafkaError]] = Reply()

    def arrived(key: K, outcome: T | KafkaError) -> None:
        outcomes[key] = outcome
        if len(outcomes) == len(calls):
            reply.complete(outcomes)

    for key, call in calls.items():
        call.when_done(partial(arrived, key))
    if not calls:
        reply.complete(outcomes)
    return reply


def errors_of(outcomes: Mapping[K, object]) -> dict[K, KafkaError]:
    """The calls that have failed."""
    return {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, KafkaError)}


@dataclass(frozen=True, slots=True)
class NoPersister:
    """The `Persister` that keeps nothing."""

    clock: Clock

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Reply[ShareState]:
        return self._later(ShareState(0, UNINITIALIZED_START_OFFSET, ()))

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Reply[None]:
        return self._later(None)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Reply[None]:
        return self._later(None)

    def delete(self, key: SharePartitionKey) -> Reply[None]:
        return self._later(None)

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Reply[StateSummary]:
        return self._later(StateSummary(0, 0, UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT))

    def _later(self, value: T) -> Reply[T]:
        reply: Reply[T] = Reply()
        self.clock.call_later(0, lambda: reply.complete(value))
        return reply
