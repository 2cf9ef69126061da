"""Decisions on the requests about one share partition: initialize, read, write, delete, summary.

    INVALID_REQUEST             a negative partition or state epoch, a batch that ends before it begins, or no state to read or write:
                                the group coordinator initializes a share partition before a leader may use it
    FENCED_LEADER_EPOCH         a leader of a later epoch has read the state: this one is deposed
    FENCED_STATE_EPOCH          the state was initialized again since: the leader has to read the new one
    UNKNOWN_TOPIC_OR_PARTITION  the metadata does not have the partition

A read raises the leader epoch, an initialization the state epoch; a write changes neither.
"""

from __future__ import annotations

from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.share.coordinator.share_shard import NO_STATE, PartitionState, ShareShard, snapshot_record
from ottla.broker.share.share_state import UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.share_records import ShareUpdateKey, ShareUpdateValue
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    shared_structs,
    write_share_group_state,
)
from ottla.protocol.messages.shared_structs import ReadStatePartition, SharePartitionResult, StateBatch

T = TypeVar("T")

#: An epoch of a request that is not to be compared.
ANY_EPOCH = -1


def initialize(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, data: initialize_share_group_state.PartitionData
) -> Outcome[SharePartitionResult]:
    """The new state keeps the leader epoch: a deposed leader stays fenced."""
    _check_partition(key)
    _check(data.state_epoch >= 0, "The state epoch cannot be a negative number.")
    known = shard.states.get(key)
    if known is not None and known.state_epoch > data.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
    _check_topic(shard, key)
    if known is not None and known.state_epoch == data.state_epoch and data.start_offset == UNINITIALIZED_START_OFFSET:
        # Of a group coordinator that has been deposed since, and whose persister has tried again: members may have acknowledged.
        return Outcome(response=SharePartitionResult(key.partition))
    before = NO_STATE._replace(snapshot_epoch=-1, leader_epoch=0) if known is None else known
    state = before._replace(
        state_epoch=data.state_epoch,
        start_offset=data.start_offset,
        delivery_complete_count=UNKNOWN_COUNT if data.start_offset == UNINITIALIZED_START_OFFSET else 0,
        batches=(),
        created_ms=now_ms,
    )
    return Outcome([snapshot_record(key, state.snapshot(now_ms))], SharePartitionResult(key.partition))


def read(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, data: ReadStatePartition
) -> Outcome[read_share_group_state.PartitionResult]:
    state = _state(shard, key, "Read")
    if data.leader_epoch != ANY_EPOCH and data.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    _check_topic(shard, key)
    result = read_share_group_state.PartitionResult(
        partition=key.partition,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[shared_structs.StateBatch(*batch) for batch in state.batches],
    )
    if data.leader_epoch in (ANY_EPOCH, state.leader_epoch):
        return Outcome(response=result)
    update = ShareUpdateValue(
        state.snapshot_epoch, data.leader_epoch, UNINITIALIZED_START_OFFSET, state.delivery_complete_count
    )
    return _changed(shard, now_ms, key, state, update, result)


def write(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, data: write_share_group_state.PartitionData
) -> Outcome[SharePartitionResult]:
    state = _state(shard, key, "Write")
    if data.leader_epoch != ANY_EPOCH and data.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if data.state_epoch != ANY_EPOCH and data.state_epoch < state.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
    for batch in data.state_batches:
        _check(0 <= batch.first_offset <= batch.last_offset, "A state batch cannot end before it begins.")
    _check_topic(shard, key)
    update = ShareUpdateValue(
        state.snapshot_epoch,
        state.leader_epoch,
        data.start_offset,
        data.delivery_complete_count,
        [
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in data.state_batches
        ],
    )
    result = SharePartitionResult(key.partition)
    return _changed(shard, now_ms, key, state, update, result)


def delete(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, data: delete_share_group_state.PartitionData
) -> Outcome[SharePartitionResult]:
    _check_partition(key)
    result = SharePartitionResult(key.partition)
    if key not in shard.states and key not in shard.unreadable:
        _check_topic(shard, key)
        return Outcome(response=result)
    return Outcome([snapshot_record(key, None)], result)


def summarize(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, data: ReadStatePartition
) -> Outcome[read_share_group_state_summary.PartitionResult]:
    """The response has no start offset where there is no state."""
    _check_partition(key)
    shard.check_readable(key)
    _check_topic(shard, key)
    state = shard.states.get(key, NO_STATE._replace(leader_epoch=0))
    return Outcome(
        response=read_share_group_state_summary.PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
    )


def _state(shard: ShareShard, key: SharePartitionKey, what: str) -> PartitionState:
    _check_partition(key)
    shard.check_readable(key)
    state = shard.states.get(key)
    _check(state is not None, f"{what} operation on uninitialized share partition not allowed.")
    assert state is not None
    return state


def _changed(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, state: PartitionState, update: ShareUpdateValue, result: T
) -> Outcome[T]:
    """An update, or a snapshot if there were enough of them: a coordinator that loads replays all since the oldest snapshot."""
    if state.updates < shard.config.updates_per_snapshot:
        return Outcome([(ShareUpdateKey(*key), update)], result)
    return Outcome([snapshot_record(key, state.updated(update)._replace(created_ms=now_ms).snapshot(now_ms))], result)


def _check_partition(key: SharePartitionKey) -> None:
    _check(key.partition >= 0, "The partition id cannot be a negative number.")


def _check_topic(shard: ShareShard, key: SharePartitionKey) -> None:
    if shard.topics().partition(key.topic_id, key.partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check(is_right: bool, message: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
