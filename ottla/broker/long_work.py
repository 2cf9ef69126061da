"""Runs work that does not fit into one turn of the event loop (`protocol.work`): large batches, searches through a whole log.

    a turn's worth          is done at once, without a task: the common case
    more                    goes on in later turns, one slice in each, so that everybody else is served in between
    what leaves the         runs on a worker thread, for one request at a time: its result may take 256 MiB
    interpreter
    what waits for a disk   runs on a thread of that disk. It does not wait for the line above: a client whose batches are
                            recompressed for seconds kept each roll of the broker waiting when both had the same semaphore

Meanwhile the connection that asked is served nothing else, because requests of one connection take effect in the order they
arrive, and so that one client has one such request under way at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import RELEASE, DiskJob, Turn, Work
from ottla.server.clock import pause
from ottla.server.disk_queue import Priority
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, Reply
from ottla.server.world import World

T = TypeVar("T")
S = TypeVar("S")
logger = logging.getLogger(__name__)


class LongWork:
    """The long work of one broker."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._large = asyncio.Semaphore(1)
        #: The turn of handlers on a hot path: they set the time that is left when they begin, and end their work before they return.
        self.turn = Turn()

    def run(
        self, context: RequestContext, work: Work[T], then: Callable[[T], Answer[S]], *, is_search: bool
    ) -> Answer[S]:
        """Calls `then(result)`, which may return a reply itself; later, if the work takes more than this turn.

        A search is given up when the connection goes. What was sent to be appended is appended all the same.
        """
        try:
            asked = next(work)
        except StopIteration as end:
            return then(end.value)
        reply: Reply[S] = Reply()
        pause = context.connection.pause()

        async def finish() -> None:
            try:
                result = await self._drive(work, asked, lambda: is_search and reply.cancelled)
                reply.follow(then(result))
            except _Abandoned:
                pass
            except Exception as error:
                reply.complete(_as_answer(error, context))
            pause.end()  # a cancelled task is left out, because the node is stopping

        self._world.spawn(finish(), f"long work for {context!r}")
        return reply

    async def _drive(self, work: Work[T], asked: Callable[[], object] | None, is_abandoned: Callable[[], bool]) -> T:
        holds = False
        answer: object = None
        fault: KafkaError | None = None
        try:
            while not is_abandoned():
                answer = fault = None
                if asked is None:
                    await pause(self._world.clock, 0)
                elif asked is RELEASE:
                    if holds:
                        holds = False
                        self._large.release()
                elif isinstance(asked, DiskJob):
                    await self._world.workers.on_disk(asked.directory, Priority.ROLL, asked.run)
                else:
                    if not holds:
                        await self._large.acquire()
                        holds = True
                    try:
                        answer = await self._world.workers.run(asked)
                    except KafkaError as refused:
                        fault = refused
                try:
                    asked = work.send(answer) if fault is None else work.throw(fault)
                except StopIteration as end:
                    result: T = end.value
                    return result
            raise _Abandoned
        finally:
            work.close()
            # A raised error would form a reference cycle with this frame.
            answer = fault = None
            if holds:
                self._large.release()


class _Abandoned(Exception):
    """The request that asked for the result has been cancelled."""


def _as_answer(error: Exception, context: RequestContext) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    logger.error("Unexpected error in long work for %r", context, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
