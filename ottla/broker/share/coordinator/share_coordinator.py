"""The share coordinator as handlers and the persister see it: finds the shard of each share partition of a request.

A request may name share partitions of several shards: each is decided, appended and committed by itself, and the response has a
result for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.partition_log import PartitionLog
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.share.coordinator import requests
from ottla.broker.share.coordinator.share_shard import (
    ShareCoordinatorConfig,
    ShareRecordCodec,
    ShareShard,
    delete_of_topics,
    snapshot_cold,
)
from ottla.broker.share.share_state import SharePartitionKey
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.shared_structs import SharePartitionResult, ShareStateResult
from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.reply import Answer, gather, then

TOPIC = SHARE_GROUP_STATE_TOPIC
#: The log's beginning: no record is redundant.
NOTHING = 0


class Api(NamedTuple):
    """The decision about one share partition of a request, and the structs of its result, of a topic's results and of the response."""

    decide: Callable[[ShareShard, int, SharePartitionKey, Any], Outcome[Any]]
    result: Callable[..., Any]
    topic_result: Callable[[bytes, list[Any]], object]
    response: Callable[[list[Any]], Any]


#: By the class of the request. The five requests have the same shape.
APIS: Mapping[type, Api] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: Api(
        requests.initialize,
        SharePartitionResult,
        ShareStateResult,
        initialize_share_group_state.InitializeShareGroupStateResponse,
    ),
    read_share_group_state.ReadShareGroupStateRequest: Api(
        requests.read,
        read_share_group_state.PartitionResult,
        read_share_group_state.ReadStateResult,
        read_share_group_state.ReadShareGroupStateResponse,
    ),
    write_share_group_state.WriteShareGroupStateRequest: Api(
        requests.write,
        SharePartitionResult,
        ShareStateResult,
        write_share_group_state.WriteShareGroupStateResponse,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: Api(
        requests.delete,
        SharePartitionResult,
        ShareStateResult,
        delete_share_group_state.DeleteShareGroupStateResponse,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: Api(
        requests.summarize,
        read_share_group_state_summary.PartitionResult,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    ),
}


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

    def _snapshot_cold(self) -> None:
        self.runtime.write_all(snapshot_cold)

    def _prune_all(self) -> None:
        """Snapshots count once they are committed: the records before them are all that a new leader may have."""
        for partition in self.runtime.active_partitions():
            offset = self.runtime.read(partition, ShareShard.redundant_before, lambda error: NOTHING)
            then(offset, partial(self._prune_before, partition))

    def _prune_before(self, partition: int, offset: int) -> None:
        if offset > NOTHING:
            self._prune(partition, offset)

    # ---- requests

    def respond(self, request: Any) -> Answer[Any]:
        """A request without a group gets a response without results, as in Kafka."""
        api = APIS[request.__class__]
        self.writes += api.decide is requests.write
        if not request.group_id:
            return api.response([])

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
            api.response,
        )
