"""queued.max.request.bytes: how much memory the large requests of all connections may take while they arrive.

A request is charged with the size that it declares, from when it gets a buffer of its own until it has been served. While as much as
the limit is taken, a connection that needs a buffer is not read. As with Kafka's pool, the last request may exceed the limit: a
request that is larger than what is left would otherwise wait for as long as smaller ones come.
"""

from __future__ import annotations

from typing import Protocol


class Receiving(Protocol):
    """A connection that waits for memory."""

    def has_memory(self) -> None: ...


class RequestBytes:
    """One per node. A limit of 0 or less is none."""

    __slots__ = ("_waiting", "limit", "taken", "waits")

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.taken = 0
        #: How often a connection had to wait.
        self.waits = 0
        self._waiting: dict[Receiving, None] = {}  # in order

    def take(self, connection: Receiving, nbytes: int) -> bool:
        """Returns False if there is no memory: the connection is then called when there is some again."""
        if 0 < self.limit <= self.taken:
            self.waits += 1
            self._waiting[connection] = None
            return False
        self.taken += nbytes
        self._call_next()
        return True

    def give_back(self, nbytes: int) -> None:
        self.taken -= nbytes
        self._call_next()

    def forget(self, connection: Receiving) -> None:
        """The connection is closed: if it has been called, the next one is to be called."""
        self._waiting.pop(connection, None)
        self._call_next()

    def _call_next(self) -> None:
        if self._waiting and self.taken < self.limit:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.has_memory()
