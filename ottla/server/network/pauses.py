"""The reasons why a connection does not read, a pause for one piece of work, and what all connections share: time and memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.server.clock import Clock
from ottla.server.tasks import isolated

#: The most replies that wait behind one that is not ready. Kafka serves one request of a connection at a time; clients keep 5
#: (Java), or as many as fit their queue (librdkafka), in flight.
HELD_REPLIES_MAX = 1000
HELD_BYTES_MAX = 1024 * 1024
#: The time of one turn. One read may have a thousand requests, and some are slow: the first record of a partition creates its
#: files, which takes two milliseconds on a slow file system. The quorum runs on the same loop and must not wait for all of
#: them.
TURN_NS = 20_000_000
#: Reads that took less time are not counted.
SLOW_NS = 100_000


class Reason:
    """The reasons for which a connection does not read.

    They are bits in plain ints, because `&` of an IntFlag takes 1 us, at each delayed response.
    """

    WRITING = 1  # the client does not read its replies
    HELD = 2  # too many replies wait behind one that is not ready
    THROTTLED = 4  # a quota was exceeded
    TURN = 8  # it is the turn of others
    WORK = 16  # the pause of a request has not ended: the request is handled in later turns of the loop, or on a thread
    MEMORY = 32  # queued.max.request.bytes are taken, and a large request has begun


class Pausable(Protocol):
    def pause_ended(self) -> None: ...


class Pause:
    """A pause of one connection for one piece of work, which ends once. Meanwhile no other request of the connection is served.

    Pauses are counted. With a single bit for all of them, the first that ended let the next request be served, and two Produces
    changed their order.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: Pausable) -> None:
        self._connection: Pausable | None = connection

    def end(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None, "a pause ends once"
        connection.pause_ended()


class RequestTurn:
    """The time that requests of all connections together may take in one turn of the event loop, and the connections that wait
    for the next turn.

    A budget for each connection would not be enough: twenty clients with simultaneous requests of 25 ms held the loop, and with
    it the quorum, for half a second. Only slow reads are counted: a usual one takes some 30 us, of which the check is one
    comparison. Each dispatcher has one such budget.
    """

    __slots__ = ("_clock", "_is_set", "_waiting", "left_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._waiting: deque[Callable[[], object]] = deque()
        self.left_ns = TURN_NS

    def spend(self, spent_ns: int) -> None:
        self.left_ns -= spent_ns
        self._set()

    def wait(self, next_turn: Callable[[], object]) -> None:
        """Serve a connection in a later turn, after those that are waiting."""
        self._waiting.append(next_turn)
        self._set()

    def _set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._clock.call_later(0, self._begin)

    def _begin(self) -> None:
        self._is_set = False
        self.left_ns = TURN_NS
        for _ in range(len(self._waiting)):
            if self.left_ns <= 0:
                break
            isolated(self._waiting.popleft())
        if self._waiting:
            self._set()


class Receiving(Protocol):
    """A connection that waits for memory."""

    def has_memory(self) -> None: ...


class RequestBytes:
    """The memory that the large requests of all connections may take while they arrive (queued.max.request.bytes).

    A request is charged with its declared size, from when it gets its own buffer until it has been served. While the limit is
    reached, a connection that needs a buffer is not read. As with Kafka's pool, the last request may exceed the limit:
    otherwise a request larger than the rest would wait as long as smaller ones come. There is one such object per node. A limit
    of 0 or less means no limit.
    """

    __slots__ = ("_waiting", "limit", "taken", "waits")

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.taken = 0
        #: How often a connection had to wait.
        self.waits = 0
        self._waiting: dict[Receiving, None] = {}  # in order

    def take(self, connection: Receiving, nbytes: int) -> bool:
        """Return False if there is no memory. Then the connection is called when there is some again."""
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
        """Take note that the connection is closed. If it has been called, the next waiting one is called."""
        self._waiting.pop(connection, None)
        self._call_next()

    def _call_next(self) -> None:
        if self._waiting and self.taken < self.limit:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.has_memory()
