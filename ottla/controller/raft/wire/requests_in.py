"""Requests of other replicas: wire requests to core messages, core replies to wire responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import (
    AddVoter,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderReply,
    RemoveVoter,
    RequestBody,
    UpdateVoter,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from ottla.controller.raft.metadata_log import PARTITION, TOPIC, TOPIC_ID
from ottla.controller.raft.voters import QuorumEndpoint, QuorumEndpoints, ReplicaKey, Voter
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import begin_quorum_epoch as begin_api
from ottla.protocol.messages import end_quorum_epoch as end_api
from ottla.protocol.messages import fetch as fetch_api
from ottla.protocol.messages import fetch_snapshot as snapshot_api
from ottla.protocol.messages import shared_structs
from ottla.protocol.messages import update_raft_voter as update_api
from ottla.protocol.messages import vote as vote_api
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.quorum_structs import NodeEndpoint, PartitionDataResponse, TopicDataResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.shared_structs import CurrentLeader
from ottla.server.network.context import Reply, RequestContext

#: The first version of each API whose response may carry the leader's endpoint.
_ENDPOINTS_SINCE = {
    ApiKey.VOTE: 1,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.FETCH: 17,
    ApiKey.FETCH_SNAPSHOT: 1,
}


class PendingRaftResponse:
    """A pending response; the core has it as `reply_to`."""

    __slots__ = ("api_key", "listener_name", "reply", "version")

    def __init__(self, context: RequestContext) -> None:
        self.api_key = ApiKey(context.api_key)
        self.version = context.api_version
        self.listener_name = context.connection.listener_name
        self.reply: Reply[Any] = Reply()


def is_ours(request: fetch_api.FetchRequest) -> bool:
    """Return True if a Fetch is for the metadata log."""
    return any(topic.topic_id == TOPIC_ID or topic.topic == TOPIC for topic in request.topics)


# Requests.


def read_fetch(request: fetch_api.FetchRequest) -> Fetch | None:
    if len(request.topics) != 1 or not is_ours(request) or len(request.topics[0].partitions) != 1:
        return None
    part = request.topics[0].partitions[0]
    if part.partition != PARTITION:
        return None
    replica_id = request.replica_state.replica_id if request.replica_state.replica_id >= 0 else request.replica_id
    return Fetch(
        request.cluster_id,
        ReplicaKey(replica_id, bytes(part.replica_directory_id)),
        part.current_leader_epoch,
        OffsetAndEpoch(part.fetch_offset, part.last_fetched_epoch),
        part.high_watermark,
        request.max_wait_ms,
        request.max_bytes,  # the partition has no limit of its own, and Kafka's voters leave it 0 (KafkaRaftClient.buildFetchRequest)
    )


def read_vote(request: vote_api.VoteRequest) -> Vote | None:
    part = _only_partition(request)
    if part is None:
        return None
    return Vote(
        request.cluster_id,
        _meant_for(request.voter_id, part.voter_directory_id),
        part.replica_epoch,
        ReplicaKey(part.replica_id, bytes(part.replica_directory_id)),
        OffsetAndEpoch(part.last_offset, part.last_offset_epoch),
        part.pre_vote,
    )


def read_begin(request: begin_api.BeginQuorumEpochRequest) -> BeginQuorumEpoch | None:
    part = _only_partition(request)
    if part is None:
        return None
    return BeginQuorumEpoch(
        request.cluster_id,
        _meant_for(request.voter_id, part.voter_directory_id),
        part.leader_epoch,
        part.leader_id,
        _endpoints(request.leader_endpoints),
    )


def read_end(request: end_api.EndQuorumEpochRequest) -> EndQuorumEpoch | None:
    part = _only_partition(request)
    if part is None:
        return None
    preferred = [ReplicaKey(row.candidate_id, bytes(row.candidate_directory_id)) for row in part.preferred_candidates]
    preferred = preferred or [ReplicaKey(successor) for successor in part.preferred_successors]
    return EndQuorumEpoch(
        request.cluster_id, part.leader_epoch, part.leader_id, tuple(preferred), _endpoints(request.leader_endpoints)
    )


def read_fetch_snapshot(request: snapshot_api.FetchSnapshotRequest) -> FetchSnapshot | None:
    part = _only_partition(request, "name", "partition")
    if part is None:
        return None
    return FetchSnapshot(
        request.cluster_id,
        ReplicaKey(request.replica_id, bytes(part.replica_directory_id)),
        part.current_leader_epoch,
        OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.position,
        max(0, request.max_bytes),
    )


def read_add(request: AddRaftVoterRequest) -> AddVoter:
    return AddVoter(
        request.cluster_id,
        ReplicaKey(request.voter_id, bytes(request.voter_directory_id)),
        _endpoints(request.listeners),
        request.timeout_ms,
        request.ack_when_committed,
    )


def read_remove(request: RemoveRaftVoterRequest) -> RemoveVoter:
    return RemoveVoter(request.cluster_id, ReplicaKey(request.voter_id, bytes(request.voter_directory_id)))


def read_update(request: update_api.UpdateRaftVoterRequest) -> UpdateVoter:
    feature = request.kraft_version_feature
    voter = Voter(
        ReplicaKey(request.voter_id, bytes(request.voter_directory_id)),
        _endpoints(request.listeners),
        feature.min_supported_version,
        feature.max_supported_version,
    )
    return UpdateVoter(request.cluster_id, request.current_leader_epoch, voter)


def _meant_for(voter_id: int, directory_id: bytes) -> ReplicaKey | None:
    return ReplicaKey(voter_id, bytes(directory_id)) if voter_id >= 0 else None


def _endpoints(listeners: list[Any]) -> QuorumEndpoints:
    return tuple(QuorumEndpoint(listener.name, listener.host, listener.port) for listener in listeners)


def _only_partition(request: Any, name: str = "topic_name", index: str = "partition_index") -> Any:
    topics = request.topics
    if len(topics) != 1 or getattr(topics[0], name) != TOPIC or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if getattr(partition, index) == PARTITION else None


#: The reader of each API's requests. It returns None if the request is not for the metadata log, or not for it alone.
READERS: dict[ApiKey, Callable[[Any], RequestBody | None]] = {
    ApiKey.FETCH: read_fetch,
    ApiKey.VOTE: read_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: read_begin,
    ApiKey.END_QUORUM_EPOCH: read_end,
    ApiKey.FETCH_SNAPSHOT: read_fetch_snapshot,
    ApiKey.ADD_RAFT_VOTER: read_add,
    ApiKey.REMOVE_RAFT_VOTER: read_remove,
    ApiKey.UPDATE_RAFT_VOTER: read_update,
}
#: The response of each API that names partitions. A request that is not for the metadata log, and a reply without an epoch, is an
#: error of the whole request.
RESPONSES: dict[ApiKey, Callable[..., Any]] = {
    ApiKey.FETCH: fetch_api.FetchResponse,
    ApiKey.VOTE: vote_api.VoteResponse,
    ApiKey.BEGIN_QUORUM_EPOCH: begin_api.BeginQuorumEpochResponse,
    ApiKey.END_QUORUM_EPOCH: end_api.EndQuorumEpochResponse,
    ApiKey.FETCH_SNAPSHOT: snapshot_api.FetchSnapshotResponse,
}


# Replies.


def reply_to_wire(reply: Any, pending: PendingRaftResponse, records: Any = None) -> Any:
    if isinstance(reply, VoterChangeReply):
        return _voter_change_response(reply, pending)
    if reply.epoch < 0:
        return RESPONSES[pending.api_key](error_code=reply.error)
    match reply:
        case FetchReply():
            return _fetch_response(reply, pending, records)
        case FetchSnapshotReply():
            return _snapshot_response(reply, pending)
        case VoteReply():
            part = vote_api.PartitionDataResponse(PARTITION, reply.error, reply.leader_id, reply.epoch, reply.granted)
            topic: Any = vote_api.TopicDataResponse(TOPIC, [part])
        case BeginQuorumEpochReply() | EndQuorumEpochReply():
            topic = TopicDataResponse(
                TOPIC, [PartitionDataResponse(PARTITION, reply.error, reply.leader_id, reply.epoch)]
            )
        case _:
            raise AssertionError(f"no reply on the wire: {reply}")
    return RESPONSES[pending.api_key](topics=[topic], node_endpoints=_leader_nodes(reply, pending))


def _fetch_response(reply: FetchReply, pending: PendingRaftResponse, records: Any) -> fetch_api.FetchResponse:
    part = fetch_api.PartitionData(
        partition_index=PARTITION,
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        current_leader=shared_structs.LeaderIdAndEpoch(reply.leader_id, reply.epoch),
        aborted_transactions=None,
        records=records if records is not None else b"",
    )
    if reply.diverging is not None:
        part.diverging_epoch = fetch_api.EpochEndOffset(reply.diverging.epoch, reply.diverging.offset)
    if reply.snapshot is not None:
        part.snapshot_id = fetch_api.SnapshotId(reply.snapshot.offset, reply.snapshot.epoch)
    topic = fetch_api.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[part])
    nodes = _leader_nodes(reply, pending, shared_structs.NodeEndpoint)
    return fetch_api.FetchResponse(responses=[topic], node_endpoints=nodes)


def _snapshot_response(reply: FetchSnapshotReply, pending: PendingRaftResponse) -> snapshot_api.FetchSnapshotResponse:
    snapshot = reply.snapshot or OffsetAndEpoch(0, 0)
    part = snapshot_api.PartitionSnapshotResponse(
        PARTITION,
        reply.error,
        snapshot_api.SnapshotId(snapshot.offset, snapshot.epoch),
        CurrentLeader(reply.leader_id, reply.epoch),
        reply.size,
        reply.position,
        reply.data,
    )
    topic = snapshot_api.TopicSnapshotResponse(TOPIC, [part])
    return snapshot_api.FetchSnapshotResponse(topics=[topic], node_endpoints=_leader_nodes(reply, pending))


def _voter_change_response(reply: VoterChangeReply, pending: PendingRaftResponse) -> Any:
    message = reply.message or (reply.error.message if reply.error else None)
    if pending.api_key is ApiKey.ADD_RAFT_VOTER:
        return AddRaftVoterResponse(0, reply.error, message)
    if pending.api_key is ApiKey.REMOVE_RAFT_VOTER:
        return RemoveRaftVoterResponse(0, reply.error, message)
    response = update_api.UpdateRaftVoterResponse(0, reply.error)
    endpoint = next(iter(_endpoint_named(reply.leader_endpoints, pending)), None)
    if reply.leader_id >= 0 and endpoint is not None:
        response.current_leader = update_api.CurrentLeader(reply.leader_id, reply.epoch, endpoint.host, endpoint.port)
    return response


def _leader_nodes(
    reply: LeaderReply, pending: PendingRaftResponse, node: Callable[..., Any] = NodeEndpoint
) -> list[Any]:
    if reply.leader_id < 0 or pending.version < _ENDPOINTS_SINCE[pending.api_key]:
        return []
    return [node(reply.leader_id, each.host, each.port) for each in _endpoint_named(reply.leader_endpoints, pending)]


def _endpoint_named(endpoints: QuorumEndpoints, pending: PendingRaftResponse) -> QuorumEndpoints:
    """Return the endpoint of the listener on which the request arrived, because the sender can reach this endpoint."""
    return tuple(endpoint for endpoint in endpoints if endpoint.name == pending.listener_name)[:1]
