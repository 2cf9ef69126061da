"""The share coordinator as handlers and the persister see it: finds the shard of each share partition of a request, and decides.

A request may name share partitions of several shards: each is decided, appended and committed by itself, and the response has a
result for each.

    INVALID_REQUEST             a negative partition or state epoch, a batch that ends before it begins, or no state to read or write:
                                the group coordinator initializes a share partition before a leader may use it
    FENCED_LEADER_EPOCH         a leader of a later epoch has read the state: this one is deposed
    FENCED_STATE_EPOCH          the state was initialized again since: the leader has to read the new one
    UNKNOWN_TOPIC_OR_PARTITION  the metadata does not have the partition

A read raises the leader epoch, an initialization the state epoch; a write changes neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.partition_log import PartitionLog
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.share.coordinator.share_shard import (
    NO_STATE,
    PartitionState,
    ShareCoordinatorConfig,
    ShareRecordCodec,
    ShareShard,
    delete_of_topics,
    snapshot_cold,
    snapshot_record,
)
from ottla.broker.share.share_state import UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.coordinator_records import ShareUpdateKey, ShareUpdateValue
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.shared_structs import (
    ReadStatePartition,
    SharePartitionResult,
    ShareStateResult,
    StateBatch,
)
from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.context import Answer, gather, then

T = TypeVar("T")

#: An epoch of a request that is not to be compared.
ANY_EPOCH = -1


def initialize(
    shard: ShareShard, now_ms: int, key: SharePartitionKey, data: initialize_share_group_state.PartitionData
) -> Outcome[SharePartitionResult]:
    """Decide a new state, which keeps the leader epoch: a deposed leader stays fenced."""
    _check_partition(key)
    _check(data.state_epoch >= 0, "The state epoch cannot be a negative number.")
    known = shard.states.get(key)
    if known is not None and known.state_epoch > data.state_epoch:
        raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
    _check_topic(shard, key)
    if known is not None and known.state_epoch == data.state_epoch and data.start_offset == UNINITIALIZED_START_OFFSET:
        # A group coordinator that was deposed meanwhile has repeated its request: members may have acknowledged records since.
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
        state_batches=[StateBatch(*batch) for batch in state.batches],
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
        data.state_batches,
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
    """Summarize a state. The response has no start offset where there is none."""
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
    """Record an update, or a snapshot after enough updates: a coordinator that loads replays all since the oldest snapshot."""
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


TOPIC = SHARE_GROUP_STATE_TOPIC
#: The log's beginning: no record is redundant.
NOTHING = 0


class StateApi(NamedTuple):
    """The decision about one share partition of a request, and the structs of its result and of a topic's results."""

    decide: Callable[[ShareShard, int, SharePartitionKey, Any], Outcome[Any]]
    result: Callable[..., Any] = SharePartitionResult
    topic_result: Callable[[bytes, list[Any]], object] = ShareStateResult


#: The five requests have the same shape.
STATE_APIS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: StateApi(initialize),
    ApiKey.READ_SHARE_GROUP_STATE: StateApi(
        read, read_share_group_state.PartitionResult, read_share_group_state.ReadStateResult
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: StateApi(write),
    ApiKey.DELETE_SHARE_GROUP_STATE: StateApi(delete),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: StateApi(
        summarize, read_share_group_state_summary.PartitionResult, read_share_group_state_summary.ReadStateSummaryResult
    ),
}
#: The API and the class of the response, by the class of the request.
BY_REQUEST = {APIS[key].request: (api, APIS[key].response) for key, api in STATE_APIS.items()}


class ShareCoordinator(Coordinator[ShareShard]):
    """The share coordinator. `prune(partition, offset)` deletes the records of a partition of the topic that come before the offset."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        partition_log: PartitionLog,
        clock: Clock,
        partition_count: Callable[[], int],
        topics: Callable[[], TopicsImage],
        prune: Callable[[int, int], None],
        turns: ShardTurns | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._prune = prune
        self._timers: dict[Callable[[], None], TimerHandle] = {}
        #: WriteShareGroupState requests since the broker started.
        self.writes = 0
        runtime = CoordinatorRuntime(
            TOPIC,
            partition_log,
            clock,
            ShareRecordCodec(),
            lambda timers: ShareShard(timers, config, topics),
            config.write_timeout_ms,
            turns,
        )
        super().__init__(runtime, partition_count)

    # ---- notifications of the broker

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        super().on_elected(partition, leader_epoch)
        if not self._timers:
            self._schedule(partial(self.runtime.write_all, snapshot_cold), self.config.cold_snapshot_interval_ms)
            self._schedule(self._prune_all, self.config.prune_interval_ms)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Listener of the publisher: the states of deleted topics' share partitions go with them."""
        self.on_topics_deleted(delta.deleted_topics.keys())

    def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        if topic_ids:
            self.runtime.write_all(delete_of_topics, frozenset(topic_ids))

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        super().close()

    # ---- the log's length

    def _schedule(self, work: Callable[[], None], interval_ms: int) -> None:
        def run() -> None:
            self._schedule(work, interval_ms)
            work()

        self._timers[work] = self._clock.call_later(interval_ms, run)

    def _prune_all(self) -> None:
        """Prune the topic after snapshots are committed: before that a new leader may have only the records before the
        snapshots.
        """
        for partition in self.runtime.active_partitions():
            offset = self.runtime.read(partition, ShareShard.redundant_before, lambda error: NOTHING)
            then(offset, partial(self._prune_before, partition))

    def _prune_before(self, partition: int, offset: int) -> None:
        if offset > NOTHING:
            self._prune(partition, offset)

    # ---- requests

    def respond(self, request: Any) -> Answer[Any]:
        """Answer a request. One without a group gets a response without results, as in Kafka."""
        api, response = BY_REQUEST[request.__class__]
        self.writes += api.decide is write
        if not request.group_id:
            return response([])

        def ask(topic_id: bytes, data: Any) -> Answer[object]:
            def on_error(error: KafkaError) -> object:
                return api.result(data.partition, error.code, error.message)

            def decide_or_reject(shard: ShareShard, now_ms: int) -> Outcome[object]:
                """Errors of the request are sent as they are; errors of the runtime are those of a coordinator's clients."""
                try:
                    return api.decide(shard, now_ms, key, data)
                except KafkaError as error:
                    return Outcome(response=on_error(error))

            key = SharePartitionKey(request.group_id, topic_id, data.partition)
            return self.runtime.write(self.partition_for(key.coordinator_key), decide_or_reject, on_error)

        return gather(
            [
                gather(
                    [ask(topic.topic_id, data) for data in topic.partitions], partial(api.topic_result, topic.topic_id)
                )
                for topic in request.topics
            ],
            response,
        )
