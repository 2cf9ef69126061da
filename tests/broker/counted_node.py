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
from ottla.node.node import Node
from ottla.server.world import RealWorld
from tests.broker.wire import Wire
from tests.ports import free_ports


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


class CountedNode:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
        self.port, controller = free_ports(2)
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        } | {name.replace("_", "."): value for name, value in properties.items()}
        self.work = Work()
        self.loop = CountingLoop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._count(monkeypatch)
        self._thread = threading.Thread(target=self._run, name="node")
        self._thread.start()
        assert self._started.wait(30) and self._failure is None, self._failure

    def wire(self) -> Wire:
        return Wire(self.port)

    @property
    def loop_thread(self) -> int:
        """The identifier of the thread that the event loop runs on."""
        assert self._thread.ident is not None
        return self._thread.ident

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._started.set()
            self.loop.close()

    async def _serve(self) -> None:
        real = RealWorld(self.loop)
        self.server = Node(real.world, self.properties)
        await self.server.start()
        self._started.set()
        await self._stop.wait()
        await self.server.stop()
        await real.close()

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
