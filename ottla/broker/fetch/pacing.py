"""Fetch pacing: sends a backlog to a librdkafka consumer as fast as its application takes it, so that it need not pause.

librdkafka stops its fetches for a whole `fetch.queue.backoff.ms` (1000 by default) whenever its queue holds `queued.min.messages`
(100,000) or `queued.max.messages.kbytes` (64 MiB). Its application empties such a queue in a fraction of that second and waits for the
rest, with any broker, and the more often the faster the broker sends. Nothing in the protocol shows a broker the queue, but the
pause does: the client has a backlog here and requests nothing for about a second.

What was sent until then filled the queue, and the application took the rest: its rate is (bytes - queue) / time. From then on the
responses keep that rate, as congestion control does, which rises slowly until the next pause measures it again. Brokers that feed
one queue have a share of it. A client that never pauses, or has reached the end of its partitions, gets its responses at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ottla.broker.fetch.session import FetchPartition
from ottla.server.network.context import RequestContext

#: Names that librdkafka's clients give in ApiVersions (KIP-511); no other client is known to pause like this.
CLIENTS = ("librdkafka", "confluent-kafka")
#: The default fetch.queue.backoff.ms is 1000, and a busy client is late. Java's consumer and other settings have other pauses.
PAUSE_MS_MIN, PAUSE_MS_MAX = 950, 1_300
#: The default limits of the queue, of which the first that is reached ends the fetches.
QUEUE_BYTES, QUEUE_RECORDS = 65_536 * 1024, 100_000
#: A client that got less than this before a pause cannot have filled its queue. Up to eight brokers may feed one queue.
PAUSE_BYTES_MIN, PAUSE_RECORDS_MIN = QUEUE_BYTES // 8, QUEUE_RECORDS // 8
#: The part of the measured rate that the responses keep at first: a queue that is not full costs nothing, a pause costs a
#: second.
SHARE_OF_MEASURED = 0.97
#: Growth of the rate in a second: GROWTH in the first STEADY_MS after the measurement, GROWTH_LATER after them.
GROWTH, GROWTH_LATER = 0.01, 0.1
STEADY_MS = 3_000
#: The bytes that may be sent at once after a while without requests, in milliseconds of the rate.
BURST_MS = 20


@dataclass
class Pacings:
    """The pacing of all connections of a node, and what its metrics count: pauses that were seen, responses that waited."""

    enabled: bool = True
    pauses: int = 0
    paced: int = 0

    def of(self, context: RequestContext, share: Callable[[], float]) -> FetchPacing | None:
        """Return a pacing for a client that pauses like librdkafka; None for all others. `share()` is the part of the client's
        queue that this broker feeds.
        """
        is_known = context.connection.client_software_name.startswith(CLIENTS)
        return FetchPacing(self, share) if self.enabled and is_known else None


class FetchPacing:
    """The pacing of one connection; times are milliseconds, rates bytes a millisecond.

    `arrived` is called for each request, with its positions, and `sent` for its response; `caught_up` if there were no records.
    """

    __slots__ = (
        "_bytes", "_counts", "_first_ms", "_grown_ms", "_last_ms", "_measured_ms", "_offsets", "_pauses", "_rate", "_ready_ms",
        "_share",
    )  # fmt: skip

    def __init__(self, counts: Pacings, share: Callable[[], float]) -> None:
        self._counts = counts
        self._share = share
        self.caught_up()

    def caught_up(self) -> None:
        """Forget the measurements: the client has no backlog any more, and reads newly written records."""
        self._last_ms: int | None = None
        self._first_ms = 0
        self._bytes = 0
        self._offsets = 0
        self._pauses = 0
        #: 0 is no limit.
        self._rate = 0.0
        self._measured_ms = self._grown_ms = 0
        self._ready_ms = 0.0

    def arrived(self, now_ms: int, positions: Iterable[FetchPartition]) -> int:
        """Return for how many milliseconds the response has to wait."""
        last_ms = self._last_ms
        if last_ms is None:
            self._begin(now_ms, end_of(positions))
        elif PAUSE_MS_MIN <= now_ms - last_ms <= PAUSE_MS_MAX:
            offsets = end_of(positions)
            if self._bytes >= PAUSE_BYTES_MIN or offsets - self._offsets >= PAUSE_RECORDS_MIN:
                self._measure(now_ms, now_ms - last_ms, offsets)
        if not self._rate:
            return 0
        self._grow(now_ms)
        wait_ms = int(self._ready_ms - now_ms)
        if wait_ms <= 0:
            return 0
        self._counts.paced += 1
        return wait_ms

    def sent(self, now_ms: int, nbytes: int) -> None:
        if self._last_ms is None:
            return  # a fetch has waited at the end of its partitions, which is no pause
        self._last_ms = now_ms
        self._bytes += nbytes
        if self._rate:
            self._ready_ms = max(self._ready_ms, now_ms - BURST_MS) + nbytes / self._rate

    def _begin(self, now_ms: int, offsets: int) -> None:
        self._first_ms = self._last_ms = now_ms
        self._bytes, self._offsets = 0, offsets

    def _measure(self, now_ms: int, pause_ms: int, offsets: int) -> None:
        self._counts.pauses += 1
        nbytes, records = self._bytes, max(1, offsets - self._offsets)
        filled_ms = max(1, now_ms - pause_ms - self._first_ms)
        share = self._share()
        queue = min(QUEUE_BYTES, QUEUE_RECORDS * nbytes / records) * share
        measured = SHARE_OF_MEASURED * (nbytes - queue) / filled_ms
        # The mean rate without pacing. A measured rate below it cannot be right: at that rate the queue was not filled.
        mean = nbytes / (filled_ms + pause_ms)
        # One of several brokers may be paused once by chance, while the others go on filling the queue.
        self._pauses += 1
        begins = share == 1 or self._pauses > 1
        self._rate = measured if measured > mean and (self._rate or begins) else 0.0
        self._measured_ms = self._grown_ms = now_ms
        self._ready_ms = now_ms
        self._begin(now_ms, offsets)

    def _grow(self, now_ms: int) -> None:
        seconds = (now_ms - self._grown_ms) / 1000
        later = (now_ms - self._measured_ms - STEADY_MS) / 1000
        self._rate *= 1 + (GROWTH + GROWTH_LATER * max(0.0, later)) * min(1.0, seconds)
        self._grown_ms = now_ms


def end_of(positions: Iterable[FetchPartition]) -> int:
    """Return the sum of the offsets: it grows by the records that were fetched."""
    return sum([position.fetch_offset for position in positions])
