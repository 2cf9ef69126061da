"""A node in this process, on a thread with an event loop of the test's own kind."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from ottla.node.node import Node
from ottla.server.world import RealWorld
from tests.ports import free_ports

SECONDS_MAX = 30


class ThreadedNode:
    def __init__(self, directory: Path, loop: asyncio.AbstractEventLoop, **properties: str) -> None:
        self.port, self.controller_port = free_ports(2)
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        } | {name.replace("_", "."): value for name, value in properties.items()}
        self._own_loop = loop
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="node")
        self._thread.start()
        assert self._started.wait(SECONDS_MAX) and self._failure is None, self._failure

    def stop(self) -> None:
        self._own_loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._own_loop.run_until_complete(self._serve())
        except BaseException as failure:
            self._failure = failure
        finally:
            self._started.set()
            self._own_loop.close()

    async def _serve(self) -> None:
        real = RealWorld(self._own_loop)
        self.server = Node(real.world, self.properties)
        await self.server.start()
        self._started.set()
        await self._stop.wait()
        await self.server.stop()
        await real.close()
