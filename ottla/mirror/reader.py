"""The reader of the source's partitions.

It reads batches as they are stored, of committed transactions only, and no more than the lanes have room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.client.cluster import ClusterClient, Leaders
from ottla.client.consumer import FETCH_WAIT_MS, READ_COMMITTED, BatchConsumer
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.mirror.beginnings import PlaceBegin
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import PartitionData

PARTITION_BYTES_MAX = 4 * 1024 * 1024
#: A leader waits this long for records while some partitions have no room, so that these are soon requested again.
SHORT_WAIT_MS = 20


class SourceReader(BatchConsumer):
    """The consumer of a worker. It reads partitions from the offsets that it is given.

    `on_changed` gets a partition whose topic has another id, or whose leader another epoch: where it goes on is to be looked up again.
    `on_rejected` gets one that cannot be read, and the error code. Neither is read on before it begins again, or `hold` is over.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        has_room: Callable[[TopicPartition], bool],
        on_rejected: Callable[[TopicPartition, int], None],
        on_changed: Callable[[TopicPartition], None],
    ) -> None:
        super().__init__(cluster, {}, isolation_level=READ_COMMITTED, partition_bytes_max=PARTITION_BYTES_MAX)
        #: The last known ends of committed records.
        self.known_ends: dict[TopicPartition, int] = {}
        self._leaders = Leaders(cluster, (), all_exist=False)
        self._has_room = has_room
        self._on_rejected = on_rejected
        self._on_changed = on_changed
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._held_ms: dict[TopicPartition, int] = {}

    def follow(self, topics: Iterable[str]) -> None:
        """Set the topics that may be read. Partitions of other topics are dropped."""
        wanted = set(topics)
        self._leaders.topics = sorted(wanted)
        for place in [place for place in self.positions if place[0] not in wanted]:
            self.drop(place)

    def begin(self, begins: Mapping[TopicPartition, PlaceBegin]) -> None:
        """Read these partitions from these positions on."""
        for place, (position, epoch) in begins.items():
            assert position.topic_id is not None, "a place where a partition begins is one of a topic"
            self.seek(place, position.next_offset)
            self._ids[place], self._leader_epochs[place] = position.topic_id, epoch
            self._held_ms.pop(place, None)

    def drop(self, place: TopicPartition) -> None:
        """Stop reading a partition."""
        self.positions.pop(place, None)
        self._ids.pop(place, None)

    def hold(self, place: TopicPartition, wait_ms: int) -> None:
        """Continue reading a partition after this time."""
        self._held_ms[place] = self.cluster.world.clock.mono_ms() + wait_ms

    @property
    def is_wanting(self) -> bool:
        """Return whether there is a partition to read now."""
        roomy = [self._has_room(place) for place in self.positions]
        self.wait_ms = FETCH_WAIT_MS if all(roomy) else SHORT_WAIT_MS
        return any(roomy)

    def _wanted(self, place: TopicPartition) -> bool:
        if place in self._held_ms and self._held_ms[place] > self.cluster.world.clock.mono_ms():
            return False
        return self._has_room(place)

    def _answered(self, place: TopicPartition, part: PartitionData) -> None:
        self.known_ends[place] = part.last_stable_offset

    def _is_another(self, place: TopicPartition) -> bool:
        leader = self._leaders.of(place)
        if leader.node == NO_LEADER:
            return False
        return super()._is_another(place) or leader.epoch > self._leader_epochs.get(place, leader.epoch)

    async def _begin_again(self, name: str) -> None:
        for place in [place for place in self.positions if place[0] == name and self._is_another(place)]:
            self.drop(place)
            self._on_changed(place)
        self._leaders.forget_topic(name)

    async def _unreadable(self, place: TopicPartition, code: int, fault: KafkaError | None) -> None:
        self._on_rejected(place, code)


class ReadThrottle:
    """A limit of bytes per second, as a token bucket of one second: after taking too much, the caller has to wait.

    `bytes_per_s` None means no limit. Times are monotonic milliseconds from the caller.
    """

    def __init__(self, bytes_per_s: float | None, now_ms: int) -> None:
        self._per_ms = None if bytes_per_s is None else bytes_per_s / 1000
        self._left = bytes_per_s or 0.0
        self._at_ms = now_ms

    def wait_s(self, taken: int, now_ms: int) -> float:
        """Take this many bytes. Return the seconds to wait before the next are taken."""
        if self._per_ms is None:
            return 0.0
        self._left = min(self._per_ms * 1000, self._left + (now_ms - self._at_ms) * self._per_ms) - taken
        self._at_ms = now_ms
        return max(0.0, -self._left / self._per_ms / 1000)
