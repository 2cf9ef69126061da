"""The share coordinator as handlers and the persister see it: finds the shard of each share partition of a request.

A request may name share partitions of several shards: each is decided, appended and committed by itself, and the response has a
result for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.partition_log import PartitionLog
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.share.coordinator import requests, shard
from ottla.broker.share.coordinator.records import ShareRecordCodec
from ottla.broker.share.coordinator.shard import ShareCoordinatorConfig, ShareShard
from ottla.broker.share.state import SharePartitionKey
from ottla.broker.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.reply import Answer, gather, then

TOPIC = SHARE_GROUP_STATE_TOPIC
#: The log's beginning: no record is redundant.
NOTHING = 0

ResultT = TypeVar("ResultT")
TopicResultT = TypeVar("TopicResultT")
ResponseT = TypeVar("ResponseT")


class PartitionData(Protocol):
    """What a request says of a share partition; each API has a struct of its own."""

    partition: int


DataT = TypeVar("DataT", bound=PartitionData)
DataT_co = TypeVar("DataT_co", bound=PartitionData, covariant=True)


class TopicData(Protocol[DataT_co]):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[DataT_co]: ...


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
            self._schedule(self._snapshot_cold, self.config.cold_snapshot_interval_ms)
            self._schedule(self._prune_all, self.config.prune_interval_ms)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Listener of the publisher: the states of deleted topics' share partitions go with them."""
        self.on_topics_deleted(delta.deleted_topics.keys())

    def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        if topic_ids:
            self.runtime.write_all(shard.delete_of_topics, frozenset(topic_ids))

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

    def _snapshot_cold(self) -> None:
        self.runtime.write_all(shard.snapshot_cold)

    def _prune_all(self) -> None:
        """Snapshots count once they are committed: the records before them are all that a new leader may have."""
        for partition in self.runtime.active_partitions():
            offset = self.runtime.read(partition, ShareShard.redundant_before, lambda error: NOTHING)
            then(offset, partial(self._prune_before, partition))

    def _prune_before(self, partition: int, offset: int) -> None:
        if offset > NOTHING:
            self._prune(partition, offset)

    # ---- requests

    def initialize(
        self, request: initialize_share_group_state.InitializeShareGroupStateRequest
    ) -> Answer[initialize_share_group_state.InitializeShareGroupStateResponse]:
        return self._each(
            request.group_id,
            request.topics,
            requests.initialize,
            initialize_share_group_state.PartitionResult,
            initialize_share_group_state.InitializeStateResult,
            initialize_share_group_state.InitializeShareGroupStateResponse,
        )

    def read(
        self, request: read_share_group_state.ReadShareGroupStateRequest
    ) -> Answer[read_share_group_state.ReadShareGroupStateResponse]:
        return self._each(
            request.group_id,
            request.topics,
            requests.read,
            read_share_group_state.PartitionResult,
            read_share_group_state.ReadStateResult,
            read_share_group_state.ReadShareGroupStateResponse,
        )

    def write(
        self, request: write_share_group_state.WriteShareGroupStateRequest
    ) -> Answer[write_share_group_state.WriteShareGroupStateResponse]:
        self.writes += 1
        return self._each(
            request.group_id,
            request.topics,
            requests.write,
            write_share_group_state.PartitionResult,
            write_share_group_state.WriteStateResult,
            write_share_group_state.WriteShareGroupStateResponse,
        )

    def delete(
        self, request: delete_share_group_state.DeleteShareGroupStateRequest
    ) -> Answer[delete_share_group_state.DeleteShareGroupStateResponse]:
        return self._each(
            request.group_id,
            request.topics,
            requests.delete,
            delete_share_group_state.PartitionResult,
            delete_share_group_state.DeleteStateResult,
            delete_share_group_state.DeleteShareGroupStateResponse,
        )

    def summarize(
        self, request: read_share_group_state_summary.ReadShareGroupStateSummaryRequest
    ) -> Answer[read_share_group_state_summary.ReadShareGroupStateSummaryResponse]:
        return self._each(
            request.group_id,
            request.topics,
            requests.summarize,
            read_share_group_state_summary.PartitionResult,
            read_share_group_state_summary.ReadStateSummaryResult,
            read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        )

    def _each(
        self,
        group_id: str,
        topics: Sequence[TopicData[DataT]],
        decide: Callable[[ShareShard, int, SharePartitionKey, DataT], Outcome[ResultT]],
        refused: Callable[[int, int, str], ResultT],
        topic_result: Callable[[bytes, list[ResultT]], TopicResultT],
        response: Callable[[list[TopicResultT]], ResponseT],
    ) -> Answer[ResponseT]:
        """A request without a group is answered without results, as in Kafka."""
        if not group_id:
            return response([])

        def ask(topic_id: bytes, data: DataT) -> Answer[ResultT]:
            def on_error(error: KafkaError) -> ResultT:
                return refused(data.partition, error.code, error.message)

            def decide_or_refuse(shard: ShareShard, now_ms: int) -> Outcome[ResultT]:
                """What is wrong with the request is answered as it is; errors of the runtime are those of a coordinator's clients."""
                try:
                    return decide(shard, now_ms, key, data)
                except KafkaError as error:
                    return Outcome(response=on_error(error))

            key = SharePartitionKey(group_id, topic_id, data.partition)
            return self.runtime.write(self.partition_for(key.coordinator_key), decide_or_refuse, on_error)

        return gather(
            [
                gather([ask(topic.topic_id, data) for data in topic.partitions], partial(topic_result, topic.topic_id))
                for topic in topics
            ],
            response,
        )
