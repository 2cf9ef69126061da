"""An instance of the registry in a lane of its own: the real log, election, registry and application, and HTTP in memory.

What is simulated of it: the connections to the cluster (`registry_model.py`), HTTP, and the processes that check schemas. Each of these
answers by the real function, at once and in this process, after a delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

from ottla.client.failures import Failure
from ottla.registry.access import Access
from ottla.registry.checking import Checker, answers_to
from ottla.registry.election import Identity, RegistryElection
from ottla.registry.log import SchemaLog
from ottla.registry.registry import SchemaRegistry
from ottla.registry.rest.app import Application
from ottla.registry.rest.forwarding import Link
from ottla.registry.rest.leader_http import HttpAnswer, HttpQuestion
from tests.sim.loop import LANE, Lane
from tests.sim.registry_model import TOPIC, RegistryCluster, SimClock, Wire, WireClient, outside

GROUP = "schema-registry"
SESSION_MS = 6_000
#: The time limit of an HTTP request, and the time that the check of a schema takes.
WAY_S_MAX, CHECK_S_MAX = 0.01, 0.1


class SimProcesses:
    """The stand-in for the processes that check schemas."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[SimProcess]:
        yield SimProcess(self._rng)

    async def close(self) -> None:
        return


class SimProcess:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def ask(self, parts: Iterable[bytes], limit_s: float) -> None:
        self._parts = tuple(parts)
        await asyncio.sleep(self._rng.random() * CHECK_S_MAX)

    async def receive(self, limit_s: float) -> bytes:
        return _answer(self._parts)


@lru_cache(maxsize=10_000)
def _answer(parts: tuple[bytes, ...]) -> bytes:
    (answer,) = answers_to(list(parts))
    return answer


class Web:
    """HTTP between clients and instances: an instance that is killed resets its connections, and a paused one responds later."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.hosts: dict[str, Instance] = {}

    async def ask(self, host: str, question: HttpQuestion) -> HttpAnswer:
        return await asyncio.shield(outside(self._carry(host, question)))

    async def _carry(self, host: str, question: HttpQuestion) -> HttpAnswer:
        await asyncio.sleep(self.rng.random() * WAY_S_MAX)
        instance = self.hosts.get(host)
        if instance is None or instance.application is None:
            raise ConnectionRefusedError(host)
        answer: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()
        instance.answering[answer] = None
        instance.spawn(instance.handle(question, answer))
        try:
            made = await answer
        finally:
            del instance.answering[answer]
        await asyncio.sleep(self.rng.random() * WAY_S_MAX)
        return made


class Instance:
    """A process. It starts at once, and ends when it is killed, or by itself."""

    def __init__(self, host: str, cluster: RegistryCluster, web: Web, rng: random.Random) -> None:
        self.host, self.rng = host, rng
        self.lane, self.wire = Lane(host), Wire(rng)
        self.answering: dict[asyncio.Future[HttpAnswer], None] = {}
        self.application: Application | None = None
        #: The errors that it has logged, and which must not happen.
        self.said: list[str] = []
        self.problems: list[str] = []
        self._web = web
        world: Any = SimpleNamespace(clock=SimClock(), rng=rng, spawn=lambda work, name: self.spawn(work))
        reading, writing, electing = (WireClient(cluster, self.wire, world) for _ in range(3))
        self.log = SchemaLog(reading, writing, TOPIC, f"{GROUP}-leader")
        checker = Checker()
        checker._processes = cast(Any, SimProcesses(rng))
        self.registry = SchemaRegistry(self.log, checker, "BACKWARD")
        identity = Identity("http", host, 8081)
        self.election = RegistryElection(
            electing, GROUP, identity, self.registry.set_leader, self.registry.displaced, SESSION_MS
        )
        web.hosts[host] = self
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.main = self.spawn(self._serve())

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, context=self.lane.context.copy())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    @property
    def is_over(self) -> bool:
        return self.lane.closed or self.main.done()

    async def _serve(self) -> None:
        """Serve as `server.serve` does, without its sockets and signals."""
        await self.log.start()
        link = Link(ask=lambda leader, tls, question: self._web.ask(leader.host, question))
        self.application = Application(self.registry, Access(), link)
        following = self.spawn(self.log.follow())
        electing = self.spawn(self.election.run())
        try:
            await asyncio.wait({following, electing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.application = None
        for task in (following, electing):
            if task.done() and not task.cancelled() and (fault := task.exception()) is not None:
                if not isinstance(fault, Failure):
                    self.problems.append(f"{self.host} has ended: {fault!r}")
                raise fault

    async def stop(self) -> None:
        """End in order: the others elect at once."""
        self.application = None
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        await self.election.leave()
        self.kill()

    def kill(self) -> None:
        self.lane.closed = True
        self.application = None
        for answer in self.answering:
            if not answer.done():
                answer.set_exception(ConnectionResetError(self.host))

    async def handle(self, question: HttpQuestion, answer: asyncio.Future[HttpAnswer]) -> None:
        """Pass a request to the application, as the HTTP server does."""
        application, sent = self.application, list[Any]()
        path, _, query = question.target.partition("?")
        scope = {
            "type": "http",
            "method": question.method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in question.headers.items()],
            "client": ("10.0.0.1", 1),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": question.body}

        async def send(message: Any) -> None:
            sent.append(message)

        if application is None:
            answer.set_exception(ConnectionResetError(self.host))
            return
        try:
            await application(scope, receive, send)
        except Exception as fault:
            self.problems.append(f"{self.host} answers {question.method} {path} with {fault!r}")
            sent = [{"status": 500, "headers": []}, {"body": b'{"error_code": 500}'}]
        if not answer.done():
            headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
            answer.set_result(HttpAnswer(sent[0]["status"], headers, sent[1]["body"]))


class Said(logging.Handler):
    """Gives each instance the errors that were logged in its lane."""

    def __init__(self, instances: list[Instance]) -> None:
        super().__init__(logging.ERROR)
        self._instances = instances

    def emit(self, record: logging.LogRecord) -> None:
        lane = LANE.get(None)
        for each in self._instances:
            if each.lane is lane:
                each.said.append(record.getMessage())


@contextlib.contextmanager
def noted(instances: list[Instance]) -> Any:
    """Collect the errors that these instances log about their log."""
    logger, handler = logging.getLogger("ottla.registry.log"), Said(instances)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
