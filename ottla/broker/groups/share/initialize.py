"""Share partitions of a group get state at share coordinators before members get them, and lose it when offsets are deleted.

    (none)       -> initializing  a member is subscribed to the topic: the record comes before the request to the persister
    initializing -> initialized   the persister has done it
    initializing -> (none)        the persister could not: a later heartbeat begins again
    initialized  -> deleting      DeleteShareGroupOffsets, DeleteGroups
    deleting     -> (none)        the persister has done it

A new coordinator does not know whether the former one's requests arrived: it initializes again, at the group's present epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment, without_empty
from ottla.broker.groups.state.share_group import ShareGroup, state_partitions_record
from ottla.controller.metadata.topics import TopicsImage


def to_initialize(group: ShareGroup, topics: TopicsImage, now_ms: int, retry_interval_ms: int) -> Assignment:
    """Partitions of subscribed topics without state, but those whose initialization was begun a short while ago."""
    state, since_ms = group.state_partitions, group.initializing_since_ms
    found: dict[bytes, set[int]] = {}
    for name in group.subscribed_topics({}):
        topic = topics.by_name(name)
        if topic is not None and len(state.initialized.get(topic.id, ())) < len(topic.partitions):
            found[topic.id] = {
                partition
                for partition in frozenset(topic.partitions) - state.initialized.get(topic.id, frozenset())
                if now_ms - since_ms.get((topic.id, partition), now_ms - retry_interval_ms) >= retry_interval_ms
            }
    return without_empty(found)


def begun(group: ShareGroup, topics: TopicsImage, partitions: Assignment) -> CoordinatorRecord:
    """The record of partitions that are initialized from now on, or again."""
    names = {}
    for topic_id in partitions:
        topic = topics.by_id(topic_id)
        assert topic is not None
        names[topic_id] = topic.name
    return state_partitions_record(group.group_id, group.state_partitions.begun(partitions, names))


def ended(
    shard: GroupMetadataManager, now_ms: int, group_id: str, initialized: Assignment, failed: Assignment
) -> Unasked:
    """What the persister has done, and what it could not. The group may be gone since, and the topic too.

    A partition may be initialized twice at a time, by a heartbeat and by AlterShareGroupOffsets: one may fail, and the other not.
    """
    group = shard.find(ShareGroup, group_id)
    if group is None:
        return Outcome()

    def replayed() -> Unasked:
        _forget(group, initialized)
        _forget(group, failed)
        return Outcome()

    state = group.state_partitions
    done = {t: p for t, p in initialized.items() if shard.topic_exists(t) and t not in state.deleting}
    return Outcome([state_partitions_record(group_id, state.ended(initialized, failed, done))], then=replayed)


def delete_of_topics(shard: GroupMetadataManager, now_ms: int, topic_ids: Iterable[bytes]) -> Unasked:
    """The share coordinators delete the states of deleted topics by themselves. Some groups are looked at in each turn."""
    ids = frozenset(topic_ids)

    def look(group_id: str, records: list[CoordinatorRecord]) -> int:
        group = shard.find(ShareGroup, group_id)
        if group is not None and group_id not in shard.unreadable:
            state = group.state_partitions
            gone = dict.fromkeys(ids & (state.initializing.keys() | state.initialized.keys() | state.deleting))
            if gone:
                records.append(state_partitions_record(group_id, state.without_topics(gone)))
        return 1

    return sweep(shard.timers, ("share-topics-deleted", ids), iter(list(shard.groups)), look)


def remember(group: ShareGroup, partitions: Assignment, now_ms: int) -> None:
    """Soft: the initialization was begun."""
    for topic_id, its_partitions in partitions.items():
        group.initializing_since_ms.update(dict.fromkeys(((topic_id, p) for p in its_partitions), now_ms))


def _forget(group: ShareGroup, partitions: Assignment) -> None:
    for topic_id, its_partitions in partitions.items():
        for partition in its_partitions:
            group.initializing_since_ms.pop((topic_id, partition), None)
