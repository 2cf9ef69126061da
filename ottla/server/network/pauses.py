"""Why a connection does not read: the reasons, and a pause for one piece of work."""

from __future__ import annotations

from typing import Protocol

#: Replies held back by one that waits. Kafka serves one request of a connection at a time; clients keep 5 (Java) or as
#: many as fit their queue (librdkafka) in flight.
HELD_REPLIES_MAX = 1000
HELD_BYTES_MAX = 1024 * 1024


class Reason:
    """The reasons for which a connection does not read: bits, in plain ints. `&` of an IntFlag takes 1 us, for each delayed response."""

    WRITING = 1  # the client does not take its replies
    HELD = 2  # too many replies wait behind one that is not ready
    THROTTLED = 4  # a quota was exceeded
    TURN = 8  # others are to have a turn
    WORK = 16  # a pause of a request has not ended: it is at work in later turns of the loop, or on a thread
    MEMORY = 32  # queued.max.request.bytes are taken, and a large request has begun


class Pausable(Protocol):
    def pause_ended(self) -> None: ...


class Pause:
    """A pause of one connection for one piece of work, which ends once. Meanwhile no other request of the connection is served.

    Pauses add up. One bit for all of them let the first that ended serve the next request: two Produces changed places.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: Pausable) -> None:
        self._connection: Pausable | None = connection

    def end(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None, "a pause ends once"
        connection.pause_ended()
