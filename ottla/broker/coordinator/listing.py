"""Lists over all shards of a broker, a bounded number of groups or transactions in each turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Shard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Work
from ottla.server.clock import begin_in_turns
from ottla.server.network.context import Answer, Reply

ShardT = TypeVar("ShardT", bound=Shard)
ThingT = TypeVar("ThingT")
ItemT = TypeVar("ItemT")

# A look at a group or a transaction takes 1 to 2 us.
LOOKS_PER_TURN = 2_000


class Listing(Generic[ShardT, ThingT, ItemT]):
    """The progress of one request through the shards: `item` returns the entry of a group or transaction in the list, None if
    it has none.

    The error of a shard is the error of the response, except that of a shard which another broker leads by now.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[ShardT],
        things: Callable[[ShardT], Sequence[ThingT]],
        item: Callable[[ThingT], ItemT | None],
    ) -> None:
        self._runtime = runtime
        self._things = things
        self._item = item
        # The partitions that are left, each with the things that are left of it if it was begun.
        self._left: list[tuple[int, Sequence[ThingT] | None]] = [(each, None) for each in runtime.partitions()]
        self._looks = 0
        self._items: list[ItemT] = []
        self._waiting = 0
        self._is_last_turn = False
        self._error = ErrorCode.NONE
        self._reply: Reply[tuple[ErrorCode, list[ItemT]]] | None = None

    def answer(self) -> Answer[tuple[ErrorCode, list[ItemT]]]:
        begin_in_turns(self._runtime.clock, self._list(), lambda _: self._complete_if_all_there())
        if self._is_complete:
            return self._whole
        self._reply = Reply()
        return self._reply

    @property
    def _is_complete(self) -> bool:
        return self._is_last_turn and not self._waiting

    @property
    def _whole(self) -> tuple[ErrorCode, list[ItemT]]:
        return self._error, [] if self._error else self._items

    def _list(self) -> Work[None]:
        while self._left:
            if self._looks >= LOOKS_PER_TURN:
                yield None
                self._looks = 0
            partition, things = self._left.pop()
            found: Answer[list[ItemT] | KafkaError] = self._runtime.read(
                partition, self._look, lambda error: error, partition, things
            )
            if isinstance(found, Reply):
                self._waiting += 1
                found.when_done(self._arrived)
            else:
                self._take(found)
        self._is_last_turn = True

    def _look(self, shard: ShardT, partition: int, things: Sequence[ThingT] | None) -> list[ItemT] | KafkaError:
        if things is None:
            things = self._things(shard)
        room = LOOKS_PER_TURN - self._looks
        some = things[:room]
        self._looks += len(some)
        if len(things) > room:
            self._left.append((partition, things[room:]))
        return [item for thing in some if (item := self._item(thing)) is not None]

    def _arrived(self, found: list[ItemT] | KafkaError) -> None:
        self._waiting -= 1
        self._take(found)
        self._complete_if_all_there()

    def _take(self, found: list[ItemT] | KafkaError) -> None:
        if not isinstance(found, KafkaError):
            self._items.extend(found)
        elif found.code != ErrorCode.NOT_COORDINATOR:
            self._error = found.code

    def _complete_if_all_there(self) -> None:
        if self._reply is not None and self._is_complete:
            self._reply.complete(self._whole)
