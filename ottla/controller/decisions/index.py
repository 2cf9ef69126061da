"""Index of the partitions by broker: in sync, eligible, led; and those without a leader, without the preferred one, or moving.

It is a function of the image, kept because a scan of every partition for each fenced broker or heartbeat would be too slow
(14 ms for 100k partitions). Only the active controller has one: it is built in slices before the controller becomes active,
and then updated with each delta.
Dicts are used as sets, because their order is that of insertion, so that simulations are reproducible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ottla.controller.metadata.image import EMPTY, MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import new_turn
from ottla.controller.metadata.topics import NO_LEADER, PartitionRegistration
from ottla.protocol.work import Turn, Work, do_now

TopicIdPartition = tuple[bytes, int]
PartitionSet = dict[TopicIdPartition, None]

#: The measured cost of a partition, in units of a turn's worth (`controller.metadata.loader`).
INDEX_UNITS = 4

_COLLISION_CHARS = str.maketrans(".", "_")


def unify_collision_chars(topic: str) -> str:
    """Return the topic's name in metrics, where periods become underscores, so that a.b and a_b collide."""
    return topic.translate(_COLLISION_CHARS)


def has_collision_chars(topic: str) -> bool:
    return "." in topic or "_" in topic


class ClusterIndex:
    __slots__ = (
        "_colliding",
        "_elr",
        "_isr",
        "_leaderless_of",
        "_leads",
        "_waits_for",
        "imbalanced",
        "reassigning",
        "with_elr",
    )

    def __init__(self, image: MetadataImage) -> None:
        self._isr: dict[int, PartitionSet] = defaultdict(dict)
        self._elr: dict[int, PartitionSet] = defaultdict(dict)
        self._leads: dict[int, PartitionSet] = defaultdict(dict)
        # Partitions without a leader, by the brokers that can lead without loss of committed records (ISR, ELR, last known
        # leader), and by all replicas.
        self._waits_for: dict[int, PartitionSet] = defaultdict(dict)
        self._leaderless_of: dict[int, PartitionSet] = defaultdict(dict)
        self._colliding: dict[str, dict[str, None]] = defaultdict(dict)
        self.imbalanced: PartitionSet = {}
        self.reassigning: PartitionSet = {}
        #: The partitions with an ELR or a last known leader.
        self.with_elr: PartitionSet = {}
        do_now(self._fill(image, Turn()))

    @classmethod
    def building(cls, image: MetadataImage) -> Work[ClusterIndex]:
        """Build the index of the image, in slices."""
        index = cls(EMPTY)
        yield from index._fill(image, new_turn())
        return index

    def _fill(self, image: MetadataImage, turn: Turn) -> Work[None]:
        for topic in sorted(image.topics, key=lambda topic: topic.name):
            self._add_name(topic.name)
            for number, partition in topic.sorted_partitions():
                self._add((topic.id, number), partition)
                if turn.spend(INDEX_UNITS):
                    yield None

    def emptying(self) -> Work[None]:
        """Empty the index in slices: freeing 200,000 partitions takes as long as a whole turn."""
        for sets in (self._isr, self._elr, self._leads, self._waits_for, self._leaderless_of):
            while sets:
                sets.popitem()
                yield None

    def update(self, delta: MetadataDelta) -> None:
        for topic in delta.deleted_topics.values():
            if has_collision_chars(topic.name):
                self._colliding[unify_collision_chars(topic.name)].pop(topic.name, None)
            for number, partition in topic.partitions.items():
                self._change((topic.id, number), partition, None)
        for topic_id, changed in delta.changed_topics.items():
            if changed.created:
                self._add_name(changed.name)
            for number, after in changed.partition_changes.items():
                before = changed.image.partitions.get(number)
                if before is None:
                    self._add((topic_id, number), after)
                else:
                    self._change((topic_id, number), before, after)

    def in_isr(self, broker_id: int) -> list[TopicIdPartition]:
        return list(self._isr.get(broker_id, ()))

    def is_in_isr(self, broker_id: int, key: TopicIdPartition) -> bool:
        return key in self._isr.get(broker_id, ())

    def in_elr(self, broker_id: int) -> list[TopicIdPartition]:
        return list(self._elr.get(broker_id, ()))

    def leads_any(self, broker_id: int) -> bool:
        return bool(self._leads.get(broker_id))

    def led_by(self, broker_id: int) -> list[TopicIdPartition]:
        return list(self._leads.get(broker_id, ()))

    def waits_for(self, broker_id: int) -> list[TopicIdPartition]:
        """Return the partitions without a leader that this broker could lead."""
        return list(self._waits_for.get(broker_id, ()))

    def leaderless_of(self, broker_id: int) -> list[TopicIdPartition]:
        """Return the partitions without a leader that have a replica on the broker, in any state."""
        return list(self._leaderless_of.get(broker_id, ()))

    @property
    def leaderless_partitions(self) -> PartitionSet:
        return self._leads.get(NO_LEADER, {})

    def collision(self, name: str) -> str | None:
        """Return an existing topic whose name in metrics is the same as that of `name`."""
        if not has_collision_chars(name):
            return None
        return next(iter(self._colliding.get(unify_collision_chars(name), ())), None)

    def _add_name(self, name: str) -> None:
        if has_collision_chars(name):
            self._colliding[unify_collision_chars(name)][name] = None

    def _add(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        """Add a new partition. Most are in sync and led, which is all that has to be noted: a topic may have 10,000 of them."""
        if partition.leader == NO_LEADER or partition.elr or partition.last_known_elr:
            self._change(key, None, partition)
            return
        for broker_id in partition.isr:
            self._isr[broker_id][key] = None
        self._leads[partition.leader][key] = None
        if not partition.has_preferred_leader:
            self.imbalanced[key] = None
        if partition.reassigning:
            self.reassigning[key] = None

    def _change(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration | None
    ) -> None:
        old_isr, new_isr = () if before is None else before.isr, () if after is None else after.isr
        if old_isr is not new_isr:
            _move(self._isr, key, old_isr, new_isr)
        old_elr, new_elr = () if before is None else before.elr, () if after is None else after.elr
        if old_elr or new_elr:
            _move(self._elr, key, old_elr, new_elr)
        if before is None or after is None or before.leader != after.leader:
            if before is not None:
                self._leads[before.leader].pop(key, None)
            if after is not None:
                self._leads[after.leader][key] = None
        was_leaderless = before is not None and before.leader == NO_LEADER
        is_leaderless = after is not None and after.leader == NO_LEADER
        if was_leaderless or is_leaderless:
            old, new = before if was_leaderless else None, after if is_leaderless else None
            _move(self._waits_for, key, _candidates(old), _candidates(new))
            _move(self._leaderless_of, key, () if old is None else old.replicas, () if new is None else new.replicas)
        _mark(self.with_elr, key, after is not None and bool(after.elr or after.last_known_elr))
        _mark(self.imbalanced, key, after is not None and not after.has_preferred_leader)
        _mark(self.reassigning, key, after is not None and after.reassigning)


def _candidates(partition: PartitionRegistration | None) -> Iterable[int]:
    return () if partition is None else (*partition.isr, *partition.elr, *partition.last_known_elr)


def _move(sets: dict[int, PartitionSet], key: TopicIdPartition, old: Iterable[int], new: Iterable[int]) -> None:
    for broker_id in old:
        sets[broker_id].pop(key, None)
    for broker_id in new:
        sets[broker_id][key] = None


def _mark(members: PartitionSet, key: TopicIdPartition, member: bool) -> None:
    if member:
        members[key] = None
    else:
        members.pop(key, None)
