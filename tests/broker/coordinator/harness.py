"""The base of the harnesses of group and transaction coordinators: one shard, its log in memory, and elections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.protocol.records.batch import BatchView
from tests.broker.coordinator.memory_log import MemoryLog
from tests.manual_clock import ManualClock


class Coordinator(Protocol):
    def on_elected(self, partition: int, epoch: int, /) -> None: ...
    def close(self) -> None: ...


class Codec(Protocol):
    def decode(self, key: bytes, value: bytes | None, /) -> tuple[Any, Any] | None: ...


CoordinatorT = TypeVar("CoordinatorT", bound=Coordinator)


class CoordinatorHarness(ABC, Generic[CoordinatorT]):
    """A coordinator that leads partition 0 of its internal topic. A subclass sets what `_coordinator` needs first."""

    tp: TopicPartition

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.epoch = 0
        self.coordinator = self._coordinator()
        self.elect()

    @abstractmethod
    def _coordinator(self) -> CoordinatorT:
        """Return a new coordinator on the log."""

    @abstractmethod
    def _codec(self) -> Codec:
        """Return the codec of the records of the log."""

    def elect(self) -> None:
        self.epoch += 1
        self.coordinator.on_elected(0, self.epoch)

    def restart(self) -> None:
        """Let another broker take over: everything but the log is lost."""
        self.coordinator.close()
        self.coordinator = self._coordinator()
        self.elect()

    def records(self, start: int = 0) -> list[tuple[int, Any, Any]]:
        """Return (offset, key, value) of each record in the log from `start` on."""
        codec = self._codec()
        found = []
        for batch in self.log.batches.get(self.tp, ()):
            view = BatchView(memoryview(batch))
            for record in () if view.is_control or view.last_offset < start else view.records():
                if record.offset >= start:
                    decoded = codec.decode(record.key or b"", record.value)
                    assert decoded is not None
                    found.append((record.offset, *decoded))
        return found
