"""Requests to other replicas, and the connections on which they are sent: core messages to wire requests, wire responses to core messages.

A response without its API's mandatory contents raises MalformedMessage: the peer is no replica of this log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ottla import __version__
from ottla.controller.raft.batches import read_batches
from ottla.controller.raft.effects import PeerRequest
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import (
    AddVoter,
    Batch,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Failed,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    LeaderReply,
    RemoveVoter,
    Replied,
    ReplyBody,
    RequestBody,
    SupportedVersions,
    SupportedVersionsReply,
    UpdateVoter,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from ottla.controller.raft.metadata_log import PARTITION, TOPIC, TOPIC_ID
from ottla.controller.raft.voters import QuorumEndpoint, QuorumEndpoints
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage, ProtocolError, UnsupportedVersion
from ottla.protocol.features import KRAFT_VERSION
from ottla.protocol.messages import begin_quorum_epoch as begin_api
from ottla.protocol.messages import end_quorum_epoch as end_api
from ottla.protocol.messages import fetch as fetch_api
from ottla.protocol.messages import fetch_snapshot as snapshot_api
from ottla.protocol.messages import update_raft_voter as update_api
from ottla.protocol.messages import vote as vote_api
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.quorum_structs import KRaftVersionFeature, Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.releases import NODE_SOFTWARE
from ottla.protocol.schema import ZERO_UUID
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.wire import ChannelClosed, RequestTimeout
from ottla.server.world import World

INT32_MAX = 2**31 - 1
logger = logging.getLogger(__name__)


def _fetch(body: Fetch) -> fetch_api.FetchRequest:
    partition = fetch_api.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=body.epoch,
        fetch_offset=body.log_end.offset,
        last_fetched_epoch=body.log_end.epoch,
        partition_max_bytes=INT32_MAX,
        replica_directory_id=body.replica.directory_id,
        high_watermark=body.high_watermark,
    )
    return fetch_api.FetchRequest(
        cluster_id=body.cluster_id,
        replica_state=fetch_api.ReplicaState(body.replica.id),
        max_wait_ms=body.wait_ms_max,
        max_bytes=body.bytes_max,
        topics=[fetch_api.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )


def _vote(body: Vote) -> vote_api.VoteRequest:
    partition = vote_api.PartitionDataRequest(
        PARTITION,
        body.epoch,
        body.candidate.id,
        body.candidate.directory_id,
        body.voter.directory_id if body.voter else ZERO_UUID,
        body.log_end.epoch,
        body.log_end.offset,
        body.pre_vote,
    )
    voter_id = body.voter.id if body.voter else -1
    return vote_api.VoteRequest(body.cluster_id, voter_id, [vote_api.TopicDataRequest(TOPIC, [partition])])


def _begin(body: BeginQuorumEpoch) -> begin_api.BeginQuorumEpochRequest:
    directory_id = body.voter.directory_id if body.voter else ZERO_UUID
    partition = begin_api.PartitionDataRequest(PARTITION, directory_id, body.leader_id, body.epoch)
    return begin_api.BeginQuorumEpochRequest(
        body.cluster_id,
        body.voter.id if body.voter else -1,
        [begin_api.TopicDataRequest(TOPIC, [partition])],
        [Listener(*endpoint) for endpoint in body.leader_endpoints],
    )


def _end(body: EndQuorumEpoch) -> end_api.EndQuorumEpochRequest:
    partition = end_api.PartitionDataRequest(
        PARTITION,
        body.leader_id,
        body.epoch,
        [candidate.id for candidate in body.preferred_candidates],
        [end_api.ReplicaInfo(*candidate) for candidate in body.preferred_candidates],
    )
    return end_api.EndQuorumEpochRequest(
        body.cluster_id,
        [end_api.TopicDataRequest(TOPIC, [partition])],
        [Listener(*endpoint) for endpoint in body.leader_endpoints],
    )


def _fetch_snapshot(body: FetchSnapshot) -> snapshot_api.FetchSnapshotRequest:
    partition = snapshot_api.PartitionSnapshotRequest(
        PARTITION, body.epoch, snapshot_api.SnapshotId(*body.snapshot), body.position, body.replica.directory_id
    )
    topic = snapshot_api.TopicSnapshotRequest(TOPIC, [partition])
    return snapshot_api.FetchSnapshotRequest(body.cluster_id, body.replica.id, body.bytes_max, [topic])


def _update(body: UpdateVoter) -> update_api.UpdateRaftVoterRequest:
    voter = body.voter
    return update_api.UpdateRaftVoterRequest(
        body.cluster_id,
        body.epoch,
        voter.id,
        voter.key.directory_id,
        [Listener(*endpoint) for endpoint in voter.endpoints],
        KRaftVersionFeature(voter.kraft_version_min, voter.kraft_version_max),
    )


def _add(body: AddVoter) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        body.cluster_id,
        body.timeout_ms,
        body.voter.id,
        body.voter.directory_id,
        [Listener(*endpoint) for endpoint in body.endpoints],
        body.ack_when_committed,
    )


def _remove(body: RemoveVoter) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(body.cluster_id, body.voter.id, body.voter.directory_id)


def _api_versions(_: SupportedVersions) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=NODE_SOFTWARE, client_software_version=__version__)


def _fetch_reply(response: fetch_api.FetchResponse, listener_name: str) -> FetchReply:
    if response.error_code:
        return FetchReply(error_of(response.error_code))
    part = _only_partition(response.responses, "Fetch response")
    diverging = snapshot = None
    if part.diverging_epoch.epoch >= 0 and part.diverging_epoch.end_offset >= 0:
        diverging = OffsetAndEpoch(part.diverging_epoch.end_offset, part.diverging_epoch.epoch)
    if part.snapshot_id.epoch >= 0 and part.snapshot_id.end_offset >= 0:
        snapshot = OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    return FetchReply(
        *_head(part, part.current_leader, response, listener_name),
        part.high_watermark,
        part.log_start_offset,
        diverging,
        snapshot,
        batches=_batches(part.records),
    )


def _batches(records: Any) -> tuple[Batch, ...]:
    try:
        return read_batches(records) if records else ()
    except KafkaError as fault:
        raise MalformedMessage(f"Fetch response with a damaged batch: {fault}") from None


def _vote_reply(response: vote_api.VoteResponse, listener_name: str) -> VoteReply:
    if response.error_code:
        return VoteReply(error_of(response.error_code))
    part = _only_partition(response.topics)
    return VoteReply(*_head(part, part, response, listener_name), part.vote_granted)


def _epoch_reply(kind: type[LeaderReply], response: Any, listener_name: str) -> LeaderReply:
    if response.error_code:
        return kind(error_of(response.error_code))
    part = _only_partition(response.topics)
    return kind(*_head(part, part, response, listener_name))


def _fetch_snapshot_reply(response: snapshot_api.FetchSnapshotResponse, listener_name: str) -> FetchSnapshotReply:
    if response.error_code:
        return FetchSnapshotReply(error_of(response.error_code))
    part = _only_partition(response.topics)
    return FetchSnapshotReply(
        *_head(part, part.current_leader, response, listener_name),
        OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.position,
        part.size,
        data=bytes(part.unaligned_records),
    )


def _update_reply(response: update_api.UpdateRaftVoterResponse, listener_name: str) -> VoterChangeReply:
    leader = response.current_leader
    endpoints = (QuorumEndpoint(listener_name, leader.host, leader.port),) if leader.host else ()
    return VoterChangeReply(error_of(response.error_code), leader.leader_epoch, leader.leader_id, endpoints)


def _change_reply(response: AddRaftVoterResponse | RemoveRaftVoterResponse, _: str) -> VoterChangeReply:
    return VoterChangeReply(error_of(response.error_code), message=response.error_message)


def _supported_versions_reply(response: ApiVersionsResponse, _: str) -> SupportedVersionsReply:
    feature = next((feature for feature in response.supported_features if feature.name == KRAFT_VERSION), None)
    if feature is None:
        return SupportedVersionsReply(error_of(response.error_code))
    return SupportedVersionsReply(error_of(response.error_code), feature.min_version, feature.max_version)


def error_of(code: int) -> ErrorCode:
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def _only_partition(topics: list[Any], what: str = "response") -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise MalformedMessage(f"{what} for another partition than the metadata log's")
    return topics[0].partitions[0]


def _head(part: Any, leader: Any, response: Any, listener_name: str) -> tuple[ErrorCode, int, int, QuorumEndpoints]:
    """Return the fields of every reply. The leader's endpoint is missing from an old peer; the voter set then has the endpoint."""
    leader_id = leader.leader_id
    nodes = [node for node in response.node_endpoints if node.node_id == leader_id]
    endpoints = tuple(QuorumEndpoint(listener_name, node.host, node.port) for node in nodes)
    return error_of(part.error_code), leader.leader_epoch, leader_id, endpoints


#: The requests of the core: each as Kafka's request, and Kafka's response to it, with the name of a listener, as the core's reply.
FORMS: dict[type[RequestBody], tuple[Callable[[Any], object], Callable[[Any, str], ReplyBody]]] = {
    Fetch: (_fetch, _fetch_reply),
    Vote: (_vote, _vote_reply),
    BeginQuorumEpoch: (_begin, partial(_epoch_reply, BeginQuorumEpochReply)),
    EndQuorumEpoch: (_end, partial(_epoch_reply, EndQuorumEpochReply)),
    FetchSnapshot: (_fetch_snapshot, _fetch_snapshot_reply),
    UpdateVoter: (_update, _update_reply),
    AddVoter: (_add, _change_reply),
    RemoveVoter: (_remove, _change_reply),
    SupportedVersions: (_api_versions, _supported_versions_reply),
}


def request_to_wire(body: RequestBody) -> object:
    return FORMS[type(body)][0](body)


def reply_from_wire(request: RequestBody, response: Any, listener_name: str) -> ReplyBody:
    """Convert a response. `listener_name` is the listener to which the endpoints in the response belong."""
    return FORMS[type(request)][1](response, listener_name)


class Channels:
    """Connections to the other replicas, and the requests on them."""

    def __init__(self, world: World, node_id: int, security: PeerSecurity) -> None:
        self._world = world
        self._node_id = node_id
        self._security = security
        self._open: dict[tuple[QuorumEndpoint, bool], Channel] = {}

    async def ask(self, request: PeerRequest) -> Replied | Failed:
        """Send the request; return the reply or a `Failed`. It does not raise: a peer's failure is an ordinary event."""
        # Fetches have a connection of their own: responses come in order, and a fetch may be delayed for long.
        key = (request.endpoint, isinstance(request.body, Fetch))
        channel = self._open.get(key)
        if channel is None:
            host, port = request.endpoint.host, request.endpoint.port
            channel = Channel(self._world, host, port, f"raft-client-{self._node_id}", self._security)
            self._open[key] = channel
        request_id = request.request_id
        try:
            response = await channel.request(request_to_wire(request.body), timeout_ms=request.timeout_ms)
            return Replied(request_id, reply_from_wire(request.body, response, request.endpoint.name))
        except RequestTimeout:
            return Failed(request_id)
        except ChannelClosed:
            return Failed(request_id, connection_closed=True)
        except UnsupportedVersion:
            return Failed(request_id, unsupported_version=True)
        except (KafkaError, ProtocolError) as fault:
            logger.warning("[raft %d] %s: %s", self._node_id, request.endpoint, fault)
            return Failed(request_id)

    def close(self) -> None:
        for channel in self._open.values():
            channel.close()
