"""Reads the source's partitions: batches as they are stored, of committed transactions only, and no more than the lanes have room for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import FETCH_WAIT_MS, READ_COMMITTED, BatchConsumer
from ottla.cli.client.leaders import Leaders, TopicPartition
from ottla.protocol.messages.fetch import PartitionData

PARTITION_BYTES_MAX = 4 * 1024 * 1024
#: How long a leader waits for records while some partitions have no room: they are asked for again soon.
SHORT_WAIT_MS = 20


class SourceReader(BatchConsumer):
    """The consumer of a worker. `has_room` says whether a partition is to be read, `on_rejected` gets those that cannot be read, and why."""

    def __init__(
        self,
        cluster: ClusterClient,
        has_room: Callable[[TopicPartition], bool],
        on_rejected: Callable[[TopicPartition, int], Awaitable[None]],
    ) -> None:
        super().__init__(cluster, {}, isolation_level=READ_COMMITTED, partition_bytes_max=PARTITION_BYTES_MAX)
        #: Where committed records end, as the leaders have said last.
        self.known_ends: dict[TopicPartition, int] = {}
        self._has_room = has_room
        self._on_rejected = on_rejected

    def follow(self, topics: Iterable[str]) -> None:
        """Set the topics that may be read; partitions of others are dropped."""
        wanted = set(topics)
        if wanted != set(self._leaders.topics):
            self._leaders = Leaders(self.cluster, sorted(wanted))
        for place in [place for place in self.positions if place[0] not in wanted]:
            del self.positions[place]

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the partitions and their positions. Their topics are set by `follow`."""
        self.positions = dict(positions)

    @property
    def is_wanting(self) -> bool:
        """Whether there is a partition to read, now."""
        roomy = [self._wanted(place) for place in self.positions]
        self.wait_ms = FETCH_WAIT_MS if all(roomy) else SHORT_WAIT_MS
        return any(roomy)

    def _wanted(self, place: TopicPartition) -> bool:
        return self._has_room(place)

    async def _readable(self, node: int, place: TopicPartition, part: PartitionData) -> bool:
        if not part.error_code:
            self.known_ends[place] = part.last_stable_offset
        return await super()._readable(node, place, part)

    async def _unreadable(self, place: TopicPartition, code: int) -> bool:
        await self._on_rejected(place, code)
        return False


class Throttle:
    """A limit of bytes per second, as a bucket of one second: what is taken above it is waited for afterwards.

    `bytes_per_s` None: no limit. Times are monotonic milliseconds that the caller gives.
    """

    def __init__(self, bytes_per_s: float | None, now_ms: int) -> None:
        self._per_ms = None if bytes_per_s is None else bytes_per_s / 1000
        self._left = bytes_per_s or 0.0
        self._at_ms = now_ms

    def wait_s(self, taken: int, now_ms: int) -> float:
        """Take so many bytes. Returns the seconds to wait before the next are taken."""
        if self._per_ms is None:
            return 0.0
        self._left = min(self._per_ms * 1000, self._left + (now_ms - self._at_ms) * self._per_ms) - taken
        self._at_ms = now_ms
        return max(0.0, -self._left / self._per_ms / 1000)
