"""Topics and their partitions: the image that brokers and the controller read, and its delta.

Two persistent maps: id -> TopicImage and name -> id. A changed partition makes a new TopicImage and touches one path of
the first map; everything else is shared with the image before. Deltas remember what changed for the publishers; a
partition that was replayed without a difference (a snapshot over a current image) is not a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.controller.metadata.shared_map import Map
from ottla.protocol.internal_topics.metadata_records import (
    ClearElrRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.work import Turn, Work, do_now

NO_LEADER = -1
# PartitionChangeRecord.leader: the leader does not change, nor does the leader epoch.
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

RECOVERED = 0
RECOVERING = 1

# Reserved directory ids of KIP-858; any other id below 100 is reserved too.
UNASSIGNED_DIR = bytes(16)
LOST_DIR = bytes(15) + b"\x01"
MIGRATING_DIR = bytes(15) + b"\x02"


class PartitionRegistration(NamedTuple):
    """A partition's registration. It is a NamedTuple, because one is created for each of 100k partitions at start, in a quarter of a dataclass's time."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_replica

    @property
    def reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, broker_id: int) -> bytes:
        """Return the directory of the broker's replica; UNASSIGNED_DIR if it is unknown or there is no replica."""
        if not self.directories or broker_id not in self.replicas:
            return UNASSIGNED_DIR
        return self.directories[self.replicas.index(broker_id)]

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Return the partition after the change. Any change bumps the partition epoch; a leader in it bumps the leader epoch."""
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        return PartitionRegistration(
            replicas=replicas,
            isr=self.isr if change.isr is None else tuple(change.isr),
            removing_replicas=(
                self.removing_replicas if change.removing_replicas is None else tuple(change.removing_replicas)
            ),
            adding_replicas=self.adding_replicas if change.adding_replicas is None else tuple(change.adding_replicas),
            elr=self.elr if change.eligible_leader_replicas is None else tuple(change.eligible_leader_replicas),
            last_known_elr=self.last_known_elr if change.last_known_elr is None else tuple(change.last_known_elr),
            leader=leader,
            leader_recovery_state=(
                self.leader_recovery_state
                if change.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
                else change.leader_recovery_state
            ),
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            directories=self._merged_directories(change, replicas),
        )

    def _merged_directories(self, change: PartitionChangeRecord, replicas: tuple[int, ...]) -> tuple[bytes, ...]:
        if change.directories is not None:
            return tuple(change.directories)
        if change.replicas is None or not self.directories:
            return self.directories
        # A record without directories (metadata.version < 17) changed the replicas: the known directories are kept.
        return tuple(self.directory(broker_id) for broker_id in replicas)

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        replicas = tuple(record.replicas)
        isr = tuple(record.isr)
        return cls(
            replicas,
            replicas if isr == replicas else isr,  # one tuple is shared in each healthy partition
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories) or (UNASSIGNED_DIR,) * len(replicas),
        )

    def to_record(self, topic_id: bytes, partition_id: int) -> PartitionRecord:
        """Return a record with all fields; encoding.py drops those that metadata.version does not allow."""
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )


#: The changes that a ClearElrRecord makes to a partition.
WITHOUT_ELR = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
#: The cost of a changed partition, in units of a turn's worth (`controller.metadata.loader`); a look at one is a unit.
CHANGE_UNITS = 10


class TopicImage(NamedTuple):
    name: str
    id: bytes
    partitions: Map[int, PartitionRegistration]

    def sorted_partitions(self) -> list[tuple[int, PartitionRegistration]]:
        """Return the partitions in the order of their indexes; the map itself has no order."""
        return sorted(self.partitions.items())

    def to_records(self) -> Iterator[MetadataRecord]:
        yield TopicRecord(name=self.name, topic_id=self.id)
        for index, partition in self.sorted_partitions():
            yield partition.to_record(self.id, index)


class TopicsImage:
    __slots__ = ("_by_id", "_ids")

    def __init__(self, by_id: Map[bytes, TopicImage] | None = None, ids: Map[str, bytes] | None = None) -> None:
        self._by_id: Map[bytes, TopicImage] = Map() if by_id is None else by_id
        self._ids: Map[str, bytes] = Map() if ids is None else ids

    def by_id(self, topic_id: bytes) -> TopicImage | None:
        return self._by_id.get(topic_id)

    def by_name(self, name: str) -> TopicImage | None:
        topic_id = self._ids.get(name)
        return None if topic_id is None else self._by_id[topic_id]

    def id_of(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def partition(self, topic_id: bytes, index: int) -> PartitionRegistration | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    @property
    def names(self) -> Map[str, bytes]:
        """Yield every topic's name with its id."""
        return self._ids

    def __iter__(self) -> Iterator[TopicImage]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicsImage) and self._by_id == other._by_id and self._ids == other._ids

    def to_records(self) -> Iterator[MetadataRecord]:
        """Yield records in the order of names, so that every node writes the same snapshot (maps are ordered by each process's hashes)."""
        for name in sorted(self._ids):
            topic = self.by_name(name)
            assert topic is not None
            yield from topic.to_records()


class TopicDelta:
    """The changes of one topic. `image` is the topic before them, without partitions if it is new."""

    __slots__ = ("created", "image", "partition_changes")

    def __init__(self, image: TopicImage, *, created: bool) -> None:
        self.image = image
        self.created = created
        self.partition_changes: dict[int, PartitionRegistration] = {}

    @property
    def name(self) -> str:
        return self.image.name

    @property
    def id(self) -> bytes:
        return self.image.id

    def partition(self, index: int) -> PartitionRegistration | None:
        """Return the partition after all records replayed so far."""
        return self.partition_changes.get(index) or self.image.partitions.get(index)

    def replace(self, index: int, partition: PartitionRegistration) -> None:
        if self.image.partitions.get(index) == partition:
            self.partition_changes.pop(index, None)
        else:
            self.partition_changes[index] = partition

    def apply(self) -> TopicImage:
        changes = self.partition_changes
        if not changes:
            return self.image
        return self.image._replace(partitions=self.image.partitions.update(changes))


class TopicsDelta:
    """Changes of topics: `changed` has created and altered topics by id, `deleted` the topics that were in the image and are deleted."""

    __slots__ = ("_created_ids", "_seen", "changed", "deleted", "image")

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed: dict[bytes, TopicDelta] = {}
        self.deleted: dict[bytes, TopicImage] = {}
        self._created_ids: dict[str, bytes] = {}
        self._seen: set[bytes] = set()  # ids of all TopicRecords: after a snapshot, the ids of all topics

    def replay_topic(self, record: TopicRecord) -> None:
        self._seen.add(record.topic_id)
        if self.image.by_id(record.topic_id) is not None:
            return
        image = TopicImage(record.name, record.topic_id, Map())
        self.changed[record.topic_id] = TopicDelta(image, created=True)
        self._created_ids[record.name] = record.topic_id

    def create(self, topic: TopicImage) -> None:
        """Create a topic as its records would, but shares its partitions, because copies of a whole image take long to make and to free."""
        delta = self.changed[topic.id] = TopicDelta(topic._replace(partitions=Map()), created=True)
        delta.partition_changes = dict(topic.sorted_partitions())
        self._created_ids[topic.name] = topic.id

    def replay_partition(self, record: PartitionRecord) -> None:
        self._topic(record.topic_id).replace(record.partition_id, PartitionRegistration.from_record(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        before = topic.partition(record.partition_id)
        assert before is not None, f"change of partition {topic.name}-{record.partition_id}, which does not exist"
        topic.replace(record.partition_id, before.merge(record))

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Return the name, because the configs of the topic go with it."""
        topic_id = record.topic_id
        changed = self.changed.pop(topic_id, None)
        image = self.image.by_id(topic_id)
        assert changed is not None or image is not None, f"removal of topic {topic_id.hex()}, which does not exist"
        if image is not None:
            self.deleted[topic_id] = image
            return image.name
        assert changed is not None
        if self._created_ids.get(changed.name) == topic_id:
            del self._created_ids[changed.name]
        return changed.name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        do_now(self.clearing_elr(record, Turn()))

    def clearing_elr(self, record: ClearElrRecord, turn: Turn) -> Work[None]:
        """Clear the ELR of a topic, or of every topic if the name is empty. Only Kafka's controllers write it (decisions/eligible.py).

        It is a change of each partition that has one, and so bumps its partition epoch (TopicDelta.maybeClearElr).
        """
        if record.topic_name:
            topic_id = self._id_of(record.topic_name)
            topic_ids = [] if topic_id is None else [topic_id]
        else:
            topic_ids = [topic.id for topic in self.image if topic.id not in self.deleted]
            topic_ids += [topic_id for topic_id, topic in self.changed.items() if topic.created]
        for topic_id in topic_ids:
            changed = self.changed.get(topic_id)
            image = self.image.by_id(topic_id) if changed is None else changed.image
            assert image is not None
            indexes = set(image.partitions) if changed is None else {*image.partitions, *changed.partition_changes}
            for index in indexes:
                partition = image.partitions[index] if changed is None else changed.partition(index)
                assert partition is not None
                has_elr = partition.elr or partition.last_known_elr
                if has_elr:
                    self._topic(topic_id).replace(index, partition.merge(WITHOUT_ELR))
                if turn.spend(CHANGE_UNITS if has_elr else 1):
                    yield None

    def finish_snapshot(self) -> None:
        """Delete the topics that are not in the snapshot."""
        for topic in self.image:
            if topic.id not in self._seen:
                self.changed.pop(topic.id, None)
                self.deleted[topic.id] = topic
        self.changed = {
            topic_id: delta for topic_id, delta in self.changed.items() if delta.created or delta.partition_changes
        }

    def applying(self, turn: Turn) -> Work[TopicsImage]:
        by_id, ids = self.image._by_id.mutate(), self.image._ids.mutate()
        for topic_id, topic in self.deleted.items():
            del by_id[topic_id]
            if self.image.id_of(topic.name) == topic_id:
                del ids[topic.name]
            if turn.spend(1):
                yield None
        for topic_id, delta in self.changed.items():
            by_id[topic_id] = delta.apply()
            if turn.spend(1 + len(delta.partition_changes)):
                yield None
        for name, topic_id in self._created_ids.items():
            ids[name] = topic_id
        return TopicsImage(by_id.finish(), ids.finish())

    def partition_changes(
        self,
    ) -> Iterator[tuple[TopicDelta, int, PartitionRegistration | None, PartitionRegistration]]:
        """Yield (topic, index, before, after) of every changed partition; before is None for a new one."""
        for topic in self.changed.values():
            for index, after in topic.partition_changes.items():
                yield topic, index, topic.image.partitions.get(index), after

    def _id_of(self, name: str) -> bytes | None:
        topic_id = self._created_ids.get(name) or self.image.id_of(name)
        return None if topic_id in self.deleted else topic_id

    def _topic(self, topic_id: bytes) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            image = self.image.by_id(topic_id)
            assert image is not None and topic_id not in self.deleted, f"topic {topic_id.hex()} does not exist"
            delta = self.changed[topic_id] = TopicDelta(image, created=False)
        return delta
