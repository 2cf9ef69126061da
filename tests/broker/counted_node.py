"""A node with default settings inside the test's process, whose work is counted: records looked at in each turn of the event
loop, and bytes that each decompression made, with the thread it ran on. It listens on a real port, and has a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.protocol.records.compression
import ottla.protocol.records.validate
import ottla.storage.log.lookup
from tests.broker.threaded_node import ThreadedNode
from tests.broker.wire import Wire


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that numbers its turns."""

    turn = 0

    def _run_once(self) -> None:
        self.turn += 1
        super()._run_once()


class Work:
    """Counts the work since `clear`."""

    def __init__(self) -> None:
        self.records: Counter[int] = Counter()  # records by the turn of the loop
        self.expanded: list[tuple[int, bool]] = []  # the number of bytes, and whether the loop made them

    def clear(self) -> None:
        self.records.clear()
        self.expanded.clear()

    @property
    def records_in_all(self) -> int:
        return sum(self.records.values())

    @property
    def most_records_in_a_turn(self) -> int:
        return max(self.records.values(), default=0)

    @property
    def most_bytes_at_once(self) -> int:
        return max((size for size, _ in self.expanded), default=0)

    @property
    def most_bytes_on_the_loop(self) -> int:
        return max((size for size, on_loop in self.expanded if on_loop), default=0)


class CountedNode(ThreadedNode):
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
        self.work = Work()
        self.loop = CountingLoop()
        self._count(monkeypatch)
        super().__init__(directory, self.loop, **properties)

    def wire(self) -> Wire:
        return Wire(self.port)

    @property
    def loop_thread(self) -> int:
        """The identifier of the thread that the event loop runs on."""
        assert self._thread.ident is not None
        return self._thread.ident

    def _count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def counted(decoder: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
            def counting(*args: Any) -> Iterator[Any]:
                for item in decoder(*args):
                    self.work.records[self.loop.turn] += 1
                    yield item

            return counting

        def expanding(codec: int, data: Any, max_bytes: int | None = None) -> bytes:
            made = decompress(codec, data, max_bytes)
            self.work.expanded.append((len(made), threading.current_thread() is self._thread))
            return made

        decompress = ottla.protocol.records.compression.decompress
        monkeypatch.setattr(ottla.protocol.records.compression, "decompress", expanding)
        monkeypatch.setattr(
            ottla.protocol.records.validate, "skim_records", counted(ottla.protocol.records.validate.skim_records)
        )
        monkeypatch.setattr(ottla.storage.log.lookup, "iter_times", counted(ottla.storage.log.lookup.iter_times))
