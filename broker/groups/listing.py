"""ListGroups: the groups of all shards of a broker, some shards in one turn of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.groups import describe
from ottla.broker.groups.coordinator_shard import GroupCoordinatorShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.server.network.reply import Answer, Reply

Groups: TypeAlias = tuple[ErrorCode, list[ListedGroup]]
Found: TypeAlias = list[ListedGroup] | KafkaError

# A group takes about 1 us. What one shard has is listed in one turn.
GROUPS_PER_TURN = 2_000


class Listing:
    """The progress of one request through the shards."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupCoordinatorShard], states: Sequence[str], types: Sequence[str]
    ) -> None:
        self._runtime = runtime
        self._filters = describe.filters(states, types)
        self._left = runtime.partitions()
        self._groups: list[ListedGroup] = []
        self._waiting = 0
        self._is_last_turn = False
        self._error = ErrorCode.NONE
        self._reply: Reply[Groups] | None = None

    def answer(self) -> Answer[Groups]:
        self._list_some()
        if self._is_complete:
            return self._whole
        self._reply = Reply()
        return self._reply

    @property
    def _is_complete(self) -> bool:
        return self._is_last_turn and not self._waiting

    @property
    def _whole(self) -> Groups:
        return self._error, [] if self._error else self._groups

    def _list_some(self) -> None:
        listed = 0
        while self._left and listed < GROUPS_PER_TURN:
            found: Answer[Found] = self._runtime.read(
                self._left.pop(), describe.list_groups, lambda error: error, *self._filters
            )
            if isinstance(found, Reply):
                self._waiting += 1
                found.when_done(self._arrived)
            else:
                listed += self._take(found)
        if self._left:
            self._runtime.clock.call_later(0, self._next_turn)
        else:
            self._is_last_turn = True

    def _next_turn(self) -> None:
        self._list_some()
        self._complete_if_all_there()

    def _arrived(self, found: Found) -> None:
        self._waiting -= 1
        self._take(found)
        self._complete_if_all_there()

    def _take(self, found: Found) -> int:
        if not isinstance(found, KafkaError):
            self._groups.extend(found)
            return len(found)
        if found.code != ErrorCode.NOT_COORDINATOR:
            self._error = found.code
        return 0

    def _complete_if_all_there(self) -> None:
        if self._reply is not None and self._is_complete:
            self._reply.complete(self._whole)
