"""ListGroups: the groups of all shards of a broker, some shards in one turn of the loop."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.coordinator.outcome import Pending
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.groups import describe
from ottla.broker.groups.coordinator_shard import GroupCoordinatorShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_groups import ListedGroup

Answer = tuple[ErrorCode, list[ListedGroup]]

# A group takes about 1 us. What one shard has is listed in one turn.
GROUPS_PER_TURN = 2_000


class Listing:
    """One request's way through the shards."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupCoordinatorShard], states: Sequence[str], types: Sequence[str]
    ) -> None:
        self._runtime = runtime
        self._filters = (states, types)
        self._left = runtime.partitions()
        self._groups: list[ListedGroup] = []
        self._waiting = 0
        self._is_last_turn = False
        self._error = ErrorCode.NONE
        self._pending: Pending | None = None

    def answer(self) -> Answer | Pending:
        self._list_some()
        if self._is_complete:
            return self._whole
        self._pending = Pending(lambda error: (error.code, []))
        return self._pending

    @property
    def _is_complete(self) -> bool:
        return self._is_last_turn and not self._waiting

    @property
    def _whole(self) -> Answer:
        return self._error, [] if self._error else self._groups

    def _list_some(self) -> None:
        listed = 0
        while self._left and listed < GROUPS_PER_TURN:
            found = self._runtime.read(self._left.pop(), describe.list_groups, lambda error: error, *self._filters)
            if type(found) is Pending:
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

    def _arrived(self, found: list[ListedGroup] | KafkaError) -> None:
        self._waiting -= 1
        self._take(found)
        self._complete_if_all_there()

    def _take(self, found: list[ListedGroup] | KafkaError) -> int:
        if not isinstance(found, KafkaError):
            self._groups.extend(found)
            return len(found)
        if found.code != ErrorCode.NOT_COORDINATOR:
            self._error = found.code
        return 0

    def _complete_if_all_there(self) -> None:
        if self._pending is not None and self._is_complete:
            self._pending.complete(self._whole)
