"""A persister without a share coordinator: states in memory, written in a later turn of the loop, and with errors that a test
chooses.
"""

from __future__ import annotations

from ottla.broker.share.share_state import Holds, SharePartitionKey, ShareState, StateBatch, StateSummary, StateUpdate
from ottla.protocol.errors import KafkaError
from ottla.server.clock import Clock
from ottla.server.network.context import Reply


class MemoryPersister:
    """A `Persister` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.starts: dict[SharePartitionKey, int] = {}
        self.batches: dict[SharePartitionKey, dict[int, tuple[int, int]]] = {}
        self.updates: list[StateUpdate] = []
        self.error: KafkaError | None = None
        self.is_held = False
        self._held: list[Reply[None]] = []

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Reply[ShareState]:
        reply: Reply[ShareState] = Reply()
        start = self.starts.get(key, -1)
        batches = [
            StateBatch(offset, offset, state, count)
            for offset, (state, count) in sorted(self.batches.get(key, {}).items())
            if offset >= start
        ]
        outcome = self.error or ShareState(0, start, batches)
        self._clock.call_later(0, lambda: reply.complete(outcome))
        return reply

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Reply[None]:
        reply: Reply[None] = Reply()
        self.updates.append(update)
        if self.error is None:
            self.starts[key] = update.start_offset
            records = self.batches.setdefault(key, {})
            for first, last, state, count in update.batches:
                records |= dict.fromkeys(range(first, last + 1), (state, count))
        if self.is_held:
            self._held.append(reply)
        else:
            self._clock.call_later(0, lambda: self._end(reply))
        return reply

    def let_go(self) -> None:
        self.is_held = False
        held, self._held = self._held, []
        for reply in held:
            self._end(reply)

    def _end(self, reply: Reply[None]) -> None:
        reply.complete(None) if self.error is None else reply.complete(self.error)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, holds: Holds) -> Reply[None]:
        raise NotImplementedError

    def delete(self, key: SharePartitionKey, holds: Holds) -> Reply[None]:
        raise NotImplementedError

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Reply[StateSummary]:
        raise NotImplementedError
