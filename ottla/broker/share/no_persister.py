"""The persister that keeps nothing (`group.share.persister.class.name=`, Kafka's NoOpStatePersister): `__share_group_state` is not needed.

A group begins at its share.auto.offset.reset at each new leader of a partition, and whenever its last member has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from ottla.broker.share.state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareState,
    StateSummary,
    StateUpdate,
)
from ottla.server.clock import Clock
from ottla.server.network.reply import Reply

T = TypeVar("T")


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
