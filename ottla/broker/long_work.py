"""Runs work that does not fit into one turn of the event loop (`protocol.work`): large batches, searches through a whole log.

    a turn's worth          is done at once, without a task: the common case
    more                    goes on in later turns, one slice in each, so that other clients are served in between
    what leaves the         runs on a worker thread, for one request at a time: its result may take 256 MiB
    interpreter
    what waits for a disk   runs on a thread of that disk. It does not wait for work of the line above: a client whose batches
    are
                            recompressed for seconds kept each roll of the broker waiting when both had the same semaphore

Meanwhile the connection that asked is served nothing else, because requests of one connection take effect in the order they
arrive, and so that one client has one such request under way at most.

A request that names many things is cut into parts (`in_parts`): each name is looked at once, and a bounded number of them in one turn.
One request of 10 KB named the same broker 2,000 times, and describing it as often held the loop for 6.7 s. Names that the client
may not see cost as much as others, so the guard of an API is behind this, too. Where a name has a list of its own, as a topic its
partitions, that list is cut as well, and its results are joined again.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import DescribeConfigsResource
from ottla.protocol.work import RELEASE, DiskJob, Turn, Work
from ottla.server.clock import pause
from ottla.server.network.context import Answer, Reply, RequestContext, gather
from ottla.server.network.route import Handler
from ottla.server.workers import Priority
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
        """Call `then(result)`, which may return a reply itself; later, if the work takes more than this turn.

        A search is given up when the connection closes. Records that were sent are appended all the same.
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


#: The limits of a turn: a group, a transaction or a coordinator takes up to 20 us, the configuration of a broker 3 ms.
NAMES_AT_ONCE = 500
RESOURCES_AT_ONCE = 10
#: The topics and partitions of a part, together; a partition takes up to 12 us.
PARTITIONS_AT_ONCE = 1_000
#: The topics and partitions of a part whose offsets are committed: 5 us each. Those of one part are one batch.
COMMITS_AT_ONCE = 5_000


def itself(name: Hashable) -> Hashable:
    return name


def config_resource(resource: DescribeConfigsResource) -> Hashable:
    keys = resource.configuration_keys
    return resource.resource_type, resource.resource_name, None if keys is None else tuple(keys)


class ManyNames(NamedTuple):
    """The field of a request with the names, the field of the response with their results, and the limit of a turn."""

    field: str
    answers: str
    at_once: int = NAMES_AT_ONCE
    #: Returns what two equal names have in common; None where a repeated name has a result of its own.
    key: Callable[[Any], Hashable] | None = itself
    #: The fields of a named entry that hold its list and the results of that list; None if named entries hold no lists.
    inside: tuple[str, str] | None = None


def topics(answers: str = "topics", partitions: str = "partitions", at_once: int = PARTITIONS_AT_ONCE) -> ManyNames:
    """Return the row of a request for partitions, by topics."""
    return ManyNames("topics", answers, at_once, None, (partitions, "partitions"))


def in_parts(work: LongWork, many: ManyNames, handle: Handler) -> Handler:
    """Return a handler that gives the request to `handle` without repetitions, and in parts if the names are many."""

    def handled(request: Any, context: RequestContext) -> Answer[Any]:
        names = getattr(request, many.field)
        if many.key is not None and len(names) > 1:
            distinct: dict[Hashable, Any] = {}
            for name in names:
                distinct.setdefault(many.key(name), name)
            names = list(distinct.values())
            setattr(request, many.field, names)
        if sum(_size(many, name) for name in names) <= many.at_once:
            return handle(request, context)
        parts = list(_cut(many, names))
        answers = _answers(request, many, parts, lambda part: handle(part, context))
        joined = partial(_joined, many, [part.goes_on for part in parts])
        return work.run(context, answers, partial(gather, combine=joined), is_search=True)

    return handled


class _Part(NamedTuple):
    names: list[Any]
    #: True if its first name is that of the part before, with more of its list.
    goes_on: bool


def _size(many: ManyNames, name: Any) -> int:
    return 1 if many.inside is None else 1 + len(getattr(name, many.inside[0]) or ())


def _cut(many: ManyNames, names: list[Any]) -> Iterator[_Part]:
    begun: list[Any] = []
    left = many.at_once
    for name in names:
        size = _size(many, name)
        if size > left and begun:
            yield _Part(begun, False)
            begun, left = [], many.at_once
        if size > left:
            assert many.inside is not None
            field = many.inside[0]
            whole = getattr(name, field)
            for at in range(0, len(whole), many.at_once):
                piece = copy.copy(name)
                setattr(piece, field, whole[at : at + many.at_once])
                yield _Part([piece], at > 0)
        else:
            begun.append(name)
            left -= size
    if begun:
        yield _Part(begun, False)


def _answers(
    request: Any, many: ManyNames, parts: list[_Part], handle: Callable[[Any], Answer[Any]]
) -> Work[list[Answer[Any]]]:
    answers: list[Answer[Any]] = []
    for part in parts:
        if answers:
            yield None
        asked = copy.copy(request)
        setattr(asked, many.field, part.names)
        answers.append(handle(asked))
    return answers


def _joined(many: ManyNames, goes_on: list[bool], answers: Iterable[Any]) -> Any:
    whole, *others = answers
    rows = getattr(whole, many.answers)
    for other, continued in zip(others, goes_on[1:], strict=True):
        found = getattr(other, many.answers)
        if continued and rows and found:
            assert many.inside is not None
            getattr(rows[-1], many.inside[1]).extend(getattr(found[0], many.inside[1]))
        else:
            rows.extend(found)
    return whole
