"""Share partitions of a group get state at share coordinators before members get them, and lose it when offsets are deleted.

    (none)       -> initializing  a member is subscribed to the topic: the record comes before the request to the persister
    initializing -> initialized   the persister has done it
    initializing -> (none)        the persister could not: a later heartbeat begins again
    initialized  -> deleting      DeleteShareGroupOffsets, DeleteGroups (ShareGroup.deletion_begun)
    deleting     -> (none)        the persister has done it

A new coordinator does not know whether the former one's requests arrived: it initializes again, at the group's present epoch.

AlterShareGroupOffsets and DeleteShareGroupOffsets are two decisions each, as DeleteGroups is (deletion.py): the first one writes down
which share partitions the persister is asked about, the second the result. If the coordinator moves in between, the client asks
again, and the first decision finds the partitions where they were left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment, pairs, without_empty
from ottla.broker.groups.share.share_group import Attempt, ShareGroup, state_partitions_record
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.schema import ZERO_UUID

Partition: TypeAlias = tuple[bytes, int]
NOT_HOSTED = "This server does not host this topic-partition."


class Altered(NamedTuple):
    """The response if the persister succeeds with all of it, the state epoch, and the start offset of each share partition."""

    response: AlterShareGroupOffsetsResponse
    state_epoch: int = 0
    start_offsets: Mapping[Partition, int] = {}


class Deleted(NamedTuple):
    """Share partitions of a group whose state is to be deleted, and the rows of topics that have none."""

    partitions: frozenset[Partition] = frozenset()
    rejected: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()
    names: Mapping[bytes, str] = {}
    error: KafkaError | None = None


class Initialized(NamedTuple):
    """The share partitions whose offsets can be described."""

    partitions: Mapping[bytes, frozenset[int]] = {}
    error: KafkaError | None = None


def group_or_new(shard: GroupMetadataManager, group_id: str) -> ShareGroup:
    """Return the group. A new one is not the shard's before its first record is replayed; it is at the epoch after 1 when a member has joined, as in Kafka."""
    group = shard.find(ShareGroup, group_id)
    if group is None:
        shard.check_place_for(ShareGroup, group_id)
        group = ShareGroup(group_id, epoch=1)
    return group


# ---- initialize


def without_state(group: ShareGroup, topics: TopicsImage) -> Assignment:
    """Return the partitions of subscribed topics without state."""
    initialized = group.state_partitions.initialized
    found: dict[bytes, frozenset[int]] = {}
    for name in group.subscribed_topics({}):
        topic = topics.by_name(name)
        if topic is not None and len(initialized.get(topic.id, ())) < len(topic.partitions):
            found[topic.id] = frozenset(topic.partitions) - initialized.get(topic.id, frozenset())
    return without_empty(found)


def to_initialize(group: ShareGroup, topics: TopicsImage, now_ms: int, retry_interval_ms: int) -> Assignment:
    """Return the partitions of subscribed topics without state, except those whose initialization was begun a short while ago."""
    found = {
        topic_id: frozenset(
            partition
            for partition in partitions
            if (attempt := group.attempts.get((topic_id, partition))) is None
            or now_ms - attempt.since_ms >= retry_interval_ms
        )
        for topic_id, partitions in without_state(group, topics).items()
    }
    return without_empty(found)


def initialization_begun(group: ShareGroup, topics: TopicsImage, partitions: Assignment) -> CoordinatorRecord:
    """Return the record of partitions that are initialized from now on, or again."""
    names = {}
    for topic_id in partitions:
        topic = topics.by_id(topic_id)
        assert topic is not None
        names[topic_id] = topic.name
    return state_partitions_record(group.group_id, group.state_partitions.begun(partitions, names))


def initialization_ended(
    shard: GroupMetadataManager,
    now_ms: int,
    group_id: str,
    state_epoch: int,
    initialized: Collection[Partition],
    failed: Collection[Partition],
) -> Unasked:
    """Record the partitions that the persister has initialized for the state epoch, and those that failed.

    The group or the topic may have been deleted since. A heartbeat and AlterShareGroupOffsets may initialize a partition at the
    same time: one may fail, and the other not. An initialization counts only while the group wants the state: if the state was
    deleted since, the success of the initialization changes nothing.
    """
    group = shard.find(ShareGroup, group_id)
    if group is None:
        return Outcome()

    attempts = group.attempts
    newest = {p for p in (*initialized, *failed) if p not in attempts or attempts[p].state_epoch <= state_epoch}

    def replayed() -> Unasked:
        for partition in newest:
            attempts.pop(partition, None)
        return Outcome()

    state = group.state_partitions
    wanted = pairs(state.initializing) | pairs(state.initialized)
    done = by_topic(p for p in initialized if p in wanted and shard.topic_exists(p[0]))
    following = state.ended(by_topic(initialized), by_topic(newest.intersection(failed)), done)
    return Outcome([state_partitions_record(group_id, following)], then=replayed)


def delete_of_topics(shard: GroupMetadataManager, now_ms: int, topic_ids: Iterable[bytes]) -> Unasked:
    """Forget the states of deleted topics, which the share coordinators delete by themselves. Some groups are looked at in each turn."""
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
    """Soft: the initialization for the group's present epoch was begun."""
    group.attempts.update(dict.fromkeys(pairs(partitions), Attempt(now_ms, group.epoch)))


# ---- alter


def alter(shard: GroupMetadataManager, now_ms: int, request: AlterShareGroupOffsetsRequest) -> Outcome[Altered]:
    """Set start offsets. The group's new epoch is their state epoch: it fences leaders that have the former state.

    A group that does not exist is created, so that offsets can be set before its first member joins.
    """
    group = group_or_new(shard, request.group_id)
    group.validate_delete()
    start_offsets: dict[Partition, int] = {}
    rows = [_altered_topic(shard, topic, start_offsets) for topic in request.topics]
    altered = Altered(AlterShareGroupOffsetsResponse(responses=rows), group.epoch + 1, start_offsets)
    if not start_offsets:
        return Outcome(response=altered)
    partitions = by_topic(start_offsets)

    def begun() -> Outcome[Altered]:
        remember(shard.group(ShareGroup, group.group_id), partitions, now_ms)
        return Outcome()

    records = [
        group.next_epoch(group.metadata_hash),
        initialization_begun(group, shard.cluster.topics(), partitions),
    ]
    return Outcome(records, altered, then=begun)


def _altered_topic(
    shard: GroupMetadataManager, topic: AlterShareGroupOffsetsRequestTopic, start_offsets: dict[Partition, int]
) -> AlterShareGroupOffsetsResponseTopic:
    known = shard.cluster.topics().by_name(topic.topic_name)
    rows = []
    for partition in topic.partitions:
        row = AlterShareGroupOffsetsResponsePartition(partition.partition_index)
        if known is None or partition.partition_index not in known.partitions:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = NOT_HOSTED
        elif partition.start_offset < 0:
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, "The start offset cannot be negative."
        else:
            start_offsets[(known.id, partition.partition_index)] = partition.start_offset
        rows.append(row)
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID if known is None else known.id, rows)


def altered(
    shard: GroupMetadataManager, now_ms: int, group_id: str, result: Altered, errors: Mapping[Partition, KafkaError]
) -> Outcome[AlterShareGroupOffsetsResponse]:
    done = result.start_offsets.keys() - errors.keys()
    outcome = initialization_ended(shard, now_ms, group_id, result.state_epoch, done, errors.keys())
    for topic in result.response.responses:
        for row in topic.partitions:
            if (error := errors.get((topic.topic_id, row.partition_index))) is not None:
                row.error_code, row.error_message = error.code, error.message
    return Outcome(outcome.records, result.response, then=outcome.then)


# ---- delete


def delete(shard: GroupMetadataManager, now_ms: int, group_id: str, topic_names: Iterable[str]) -> Outcome[Deleted]:
    """Begin to delete the offsets of topics, again where an attempt was begun before: its result is unknown."""
    group = shard.group(ShareGroup, group_id)
    group.validate_delete()
    state, topics = group.state_partitions, shard.cluster.topics()
    partitions: dict[bytes, frozenset[int]] = {}
    rejected, names = [], {}
    for name in topic_names:
        topic = topics.by_name(name)
        if topic is None:
            message = NOT_HOSTED
        elif topic.id in state.initialized:
            partitions[topic.id], names[topic.id] = state.initialized[topic.id], name
            continue
        elif topic.id in state.deleting:
            partitions[topic.id], names[topic.id] = frozenset(topic.partitions), name
            continue
        else:
            message = "There is no offset information to delete."
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rejected.append(DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=error, error_message=message))
    deleted = Deleted(pairs(partitions), rejected, names)
    if not partitions:
        return Outcome(response=deleted)
    return Outcome([state_partitions_record(group_id, state.deletion_begun(partitions))], deleted)


def deleted(
    shard: GroupMetadataManager, now_ms: int, group_id: str, result: Deleted, errors: Mapping[Partition, KafkaError]
) -> Outcome[DeleteShareGroupOffsetsResponse]:
    """Topics of which a share partition could not be deleted go on being deleted. Those that members have subscribed to since have a new state."""
    failed = {topic_id: error for (topic_id, _), error in errors.items()}
    done = [topic_id for topic_id in result.names if topic_id not in failed]
    rows = [DeleteShareGroupOffsetsResponseTopic(result.names[topic_id], topic_id) for topic_id in done]
    rows += result.rejected
    rows += [
        DeleteShareGroupOffsetsResponseTopic(result.names[topic_id], topic_id, error.code, error.message)
        for topic_id, error in failed.items()
    ]
    response = DeleteShareGroupOffsetsResponse(responses=rows)
    group = shard.find(ShareGroup, group_id)
    if group is None or not done:
        return Outcome(response=response)
    following = group.state_partitions.deletion_ended(done)
    return Outcome([state_partitions_record(group_id, following)], response)


def initialized(shard: GroupMetadataManager, group_id: str) -> Initialized:
    """Return the initialized partitions; none for a group that is not there, as in Kafka."""
    group = shard.find(ShareGroup, group_id)
    return Initialized() if group is None else Initialized(group.state_partitions.initialized)


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(its_partitions) for topic_id, its_partitions in found.items()}
