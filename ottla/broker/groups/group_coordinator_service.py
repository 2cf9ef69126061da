"""The group coordinator as handlers see it: finds the shard of a group, and gives a response, now or by a Reply.

Here are the checks that need no shard, and the shape of each API's response to an error. What a group does is in the
verbs' modules.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.listing import Listing
from ottla.broker.coordinator.outcome import OnError, Outcome, coded, worded
from ottla.broker.coordinator.partition_log import PartitionLog
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.groups import group_descriptions as describe
from ottla.broker.groups import membership, offsets
from ottla.broker.groups.consumer import consumer_heartbeat
from ottla.broker.groups.group import GroupRecordCodec
from ottla.broker.groups.group_config import GroupCoordinatorConfig
from ottla.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from ottla.broker.groups.group_descriptions import Description
from ottla.broker.groups.group_metadata_manager import Client, ClusterView, GroupCounts, GroupMetadataManager
from ottla.broker.groups.group_stories import GroupStories
from ottla.broker.groups.modern.modern_group import AnyModernGroup
from ottla.broker.groups.share import share_offsets
from ottla.broker.groups.streams import streams_heartbeat
from ottla.broker.groups.streams.streams_step import StreamsResult
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponseTopic
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from ottla.server.clock import Clock
from ottla.server.network.context import Answer, Reply, then
from ottla.server.story import UNNAMED, Asker, Cause, because

G = TypeVar("G", bound=AnyModernGroup)
T = TypeVar("T")
P = ParamSpec("P")

TOPIC = "__consumer_offsets"

#: The causes of commits in the stories of groups. They name no client, because all commits of a group are one entry that grows.
OFFSET_COMMIT, TXN_OFFSET_COMMIT = because("OffsetCommit"), because("TxnOffsetCommit")

# Clients before OffsetFetch of Kafka 3.9 do not retry the error on the left, which the runtime has.
FETCH_ERRORS = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}

JOIN_ERROR, SYNC_ERROR, LEAVE_ERROR = coded(JoinGroupResponse), coded(SyncGroupResponse), coded(LeaveGroupResponse)
CONSUMER_HEARTBEAT_ERROR = worded(ConsumerGroupHeartbeatResponse)


class GroupCoordinatorService(Coordinator[GroupCoordinatorShard]):
    """The group coordinator of a broker. `cluster` has the newest metadata; `new_uuid()` gives text for member ids."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        partition_log: PartitionLog,
        clock: Clock,
        new_uuid: Callable[[], str],
        partition_count: Callable[[], int],
        cluster: ClusterView,
        turns: ShardTurns | None = None,
        expiry_ms: Callable[[], int] | None = None,
    ) -> None:
        self.config = config
        #: The offset of the newest metadata with a new topic. A broker that starts takes all topics for new.
        self.topics_created_at = -1
        self.counts = GroupCounts()
        self.stories = GroupStories("group", clock.wall_ms)
        runtime = CoordinatorRuntime(
            TOPIC,
            partition_log,
            clock,
            GroupRecordCodec(),
            lambda timers: GroupCoordinatorShard(
                timers, config, clock.wall_ms, new_uuid, cluster, self.counts, expiry_ms or clock.wall_ms, self.stories
            ),
            config.offsets_commit_timeout_ms,
            turns,
            self.stories,
        )
        super().__init__(runtime, partition_count)

    # ---- notifications of the broker

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Listener of the publisher: delete the offsets of deleted topics, and note that there are new ones."""
        if any(topic.created for topic in delta.changed_topics.values()) or self.topics_created_at < 0:
            self.topics_created_at = image.offset
        deleted = delta.deleted_topics
        self.on_topics_deleted([topic.name for topic in deleted.values()], deleted)

    def on_topics_deleted(self, names: Iterable[str], ids: Iterable[bytes] = ()) -> None:
        """Remove the offsets of deleted topics, and the state of share groups about their partitions."""
        deleted, deleted_ids = frozenset(names), frozenset(ids)
        if deleted:
            self.runtime.write_all(offsets.on_topics_deleted, deleted)
        if deleted_ids:
            self.runtime.write_all(share_offsets.delete_of_topics, deleted_ids)

    # ---- decisions about one group

    def write(
        self,
        group_id: str,
        cause: Cause,
        decide: Callable[Concatenate[GroupMetadataManager, int, P], Outcome[T]],
        on_error: OnError[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[T]:
        def decide_if_readable(shard: GroupMetadataManager, now_ms: int) -> Outcome[T]:
            shard.stories.begin(group_id, cause)
            shard.check_readable(group_id)
            return decide(shard, now_ms, *args, **kwargs)

        return self.runtime.write(self.partition_for(group_id), decide_if_readable, on_error)

    def _write_later(
        self,
        group_id: str,
        cause: Cause,
        decide: Callable[Concatenate[GroupMetadataManager, int, P], Outcome[T]],
        reply: Reply[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        def decide_if_readable(shard: GroupMetadataManager, now_ms: int) -> Outcome[T]:
            shard.stories.begin(group_id, cause)
            shard.check_readable(group_id)
            return decide(shard, now_ms, *args, **kwargs)

        self.runtime.write_later(self.partition_for(group_id), decide_if_readable, reply)

    def _read(
        self,
        group_id: str,
        look: Callable[Concatenate[GroupMetadataManager, P], T],
        on_error: OnError[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[T]:
        def look_if_readable(shard: GroupMetadataManager) -> T:
            shard.check_readable(group_id)
            try:
                return look(shard, *args, **kwargs)
            except AssertionError:
                shard.stories.print(group_id)
                raise

        return self.runtime.read(self.partition_for(group_id), look_if_readable, on_error)

    # ---- membership

    def join(self, request: JoinGroupRequest, client: Client) -> Answer[JoinGroupResponse]:
        member_id = request.member_id
        if not request.group_id:
            return JoinGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, member_id=member_id)
        config = self.config
        if not (
            config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            return JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=member_id)
        reply = Reply(JOIN_ERROR)
        cause = "JoinGroup", client
        self._write_later(request.group_id, cause, membership.join, reply, request, client, reply)
        return reply

    def sync(self, request: SyncGroupRequest, asker: Asker = UNNAMED) -> Answer[SyncGroupResponse]:
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        reply = Reply(SYNC_ERROR)
        self._write_later(request.group_id, ("SyncGroup", asker), membership.sync, reply, request, reply)
        return reply

    def heartbeat(self, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self._read(request.group_id, membership.heartbeat, _heartbeat_error, request)

    def leave(self, request: LeaveGroupRequest, asker: Asker = UNNAMED) -> Answer[LeaveGroupResponse]:
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.write(request.group_id, ("LeaveGroup", asker), membership.leave, LEAVE_ERROR, request)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Answer[ConsumerGroupHeartbeatResponse]:
        cause = "ConsumerGroupHeartbeat", client
        return self.write(
            request.group_id, cause, consumer_heartbeat.heartbeat, CONSUMER_HEARTBEAT_ERROR, request, client
        )

    def streams_heartbeat(self, request: StreamsGroupHeartbeatRequest, client: Client) -> Answer[StreamsResult]:
        cause = "StreamsGroupHeartbeat", client
        return self.write(
            request.group_id, cause, streams_heartbeat.heartbeat, _streams_heartbeat_error, request, client
        )

    # ---- offsets

    def commit_offsets(self, request: OffsetCommitRequest, api_version: int) -> Answer[OffsetCommitResponse]:
        """Commit offsets of a group. Its id may be empty, because very old consumers use that id."""

        def on_error(error: KafkaError) -> OffsetCommitResponse:
            return OffsetCommitResponse(topics=_with_error(request, OffsetCommitResponseTopic, error.code))

        return self.write(request.group_id, OFFSET_COMMIT, offsets.commit, on_error, request, api_version)

    def commit_transactional_offsets(self, request: TxnOffsetCommitRequest) -> Answer[TxnOffsetCommitResponse]:
        """Commit offsets in a transaction. The caller has verified that the transaction includes the group's partition (KIP-890)."""
        return self.write(
            request.group_id,
            TXN_OFFSET_COMMIT,
            offsets.commit_transactional,
            lambda error: txn_commit_error(request, error.code),
            request,
        )

    def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool) -> Answer[OffsetFetchResponseGroup]:
        def on_error(error: KafkaError) -> OffsetFetchResponseGroup:
            code = FETCH_ERRORS.get(error.code, error.code)
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)

        return self._read(request.group_id, offsets.fetch, on_error, request, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, asker: Asker = UNNAMED) -> Answer[OffsetDeleteResponse]:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.write(
            request.group_id, ("OffsetDelete", asker), offsets.delete, coded(OffsetDeleteResponse), request
        )

    # ---- many groups at once

    def each(
        self,
        call: Callable[..., Answer[builtins.list[T]]],
        decide: Callable[..., object],
        group_ids: Iterable[str],
        failed: Callable[[KafkaError, str], T],
        *args: object,
    ) -> Answer[builtins.list[T]]:
        """Return the rows that the groups' shards make by a `call` of the runtime.

        `failed` is the row of each group of a shard that cannot make them.
        """

        def ask(partition: int, part: builtins.list[str]) -> Answer[builtins.list[T]]:
            return call(partition, decide, lambda error: [failed(error, group_id) for group_id in part], part, *args)

        return self.by_partition(group_ids, ask)

    def describe(self, group_ids: Sequence[str], error_since: bool) -> Answer[builtins.list[DescribedGroup]]:
        def failed(error: KafkaError, group_id: str) -> DescribedGroup:
            return DescribedGroup(group_id=group_id, error_code=error.code)

        return self.each(self.runtime.read, describe.describe, group_ids, failed, error_since)

    def describe_modern(self, group_ids: Sequence[str], description: Description[G, T]) -> Answer[builtins.list[T]]:
        """Describe groups of a kind that has an API of its own."""

        def failed(error: KafkaError, group_id: str) -> T:
            return description.failed(error.code, error.own_words, group_id)

        invalid = [description.failed(ErrorCode.INVALID_GROUP_ID, None, name) for name in group_ids if not name]
        described = self.each(self.runtime.read, description.of, filter(None, group_ids), failed)
        return then(described, lambda groups: invalid + groups)

    def list(self, states: Sequence[str], types: Sequence[str]) -> Answer[tuple[ErrorCode, list[ListedGroup]]]:
        """List the groups of all shards of this broker in turns of the loop; case is ignored.

        While a shard is loading the response is an error (KIP-518).
        """
        of_types = frozenset(kind.lower() for kind in types)
        in_states = frozenset(state.strip().lower() for state in states)
        return Listing(
            self.runtime,
            lambda shard: describe.groups_of(shard, of_types),
            lambda group: describe.listed(group, in_states),
        ).answer()


def txn_commit_error(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=_with_error(request, TxnOffsetCommitResponseTopic, error))


def _with_error(
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    topic_response: Callable[[str, bytes, builtins.list[PartitionErrorCode]], T],
    error: ErrorCode,
) -> builtins.list[T]:
    """Return the topics of a response with the same error for every partition."""
    return [
        topic_response(
            topic.name,
            topic.topic_id,
            [PartitionErrorCode(partition.partition_index, error) for partition in topic.partitions],
        )
        for topic in request.topics
    ]


def _heartbeat_error(error: KafkaError) -> HeartbeatResponse:
    """Return the error for a heartbeat. While the group is loading, its members are taken as known."""
    if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.code)


def _streams_heartbeat_error(error: KafkaError) -> StreamsResult:
    return StreamsResult(worded(StreamsGroupHeartbeatResponse)(error))
