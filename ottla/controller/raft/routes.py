"""The routes of the quorum's APIs, for a controller's listeners: Fetch there is of the metadata log alone. And DescribeQuorum.

The listener that has these routes must authorize the sender (ClusterAction).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.leader import Leader, Progress
from ottla.controller.raft.metadata_log import PARTITION, TOPIC
from ottla.controller.raft.voters import ReplicaKey
from ottla.controller.raft.wire.requests_in import READERS, RESPONSES, PendingRaftResponse
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import describe_quorum as api
from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.schema import ZERO_UUID
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Handler, Route

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
#: The version from which on responses have directory ids and endpoints (KIP-853).
WITH_DIRECTORIES = 2
UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def quorum_routes(node: RaftNode) -> list[Route]:
    rows = [Route(api_key, _handler(node, api_key)) for api_key in READERS]
    return [
        *rows,
        Route(ApiKey.DESCRIBE_QUORUM, lambda asked, context: describe_quorum(node, asked, context.api_version)),
    ]


def _handler(node: RaftNode, api_key: ApiKey) -> Handler:
    read = READERS[api_key]

    def handle(request: object, context: RequestContext) -> Any:
        body = read(request)
        if body is None:
            return RESPONSES[api_key](error_code=ErrorCode.INVALID_REQUEST)
        return node.handle(body, PendingRaftResponse(context))

    return handle


def describe_quorum(node: RaftNode, request: api.DescribeQuorumRequest, version: int) -> api.DescribeQuorumResponse:
    """DescribeQuorum: the log end offset and fetch times of every replica, as known to the leader.

    Only the metadata partition is described. As in Kafka, any other list of partitions gets an error for each.
    """
    state, now_ms, wall_ms = node.state, node.clock.mono_ms(), node.clock.wall_ms()
    with_directories = version >= WITH_DIRECTORIES
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    if asked != [(TOPIC, PARTITION)]:
        return _errors(request, UNKNOWN_PARTITION)
    leader = state.role
    if not isinstance(leader, Leader):
        return _errors(request, NOT_LEADER)
    leader.forget_silent_observers(now_ms)

    def described(progress: Progress, key: ReplicaKey) -> api.ReplicaState:
        directory_id = key.directory_id if with_directories else ZERO_UUID
        if key.id == state.key.id:
            return api.ReplicaState(key.id, directory_id, state.log.end_offset, wall_ms, wall_ms)
        fetch_ms, caught_up_ms = progress.last_fetch_ms, progress.last_caught_up_ms
        return api.ReplicaState(
            key.id,
            directory_id,
            progress.end_offset,
            wall_ms - (now_ms - fetch_ms) if fetch_ms >= 0 else -1,
            wall_ms - (now_ms - caught_up_ms) if caught_up_ms >= 0 else -1,
        )

    partition = api.PartitionDataResponse(
        partition_index=PARTITION,
        error_message="",
        leader_id=state.key.id,
        leader_epoch=leader.epoch,
        high_watermark=leader.high_watermark,
        current_voters=[described(progress, progress.key) for progress in leader.voters.values()],
        observers=[described(progress, key) for key, progress in leader.observers.items()],
    )
    nodes = [
        api.Node(voter.id, [Listener(*endpoint) for endpoint in voter.endpoints])
        for voter in state.voters.last
        if voter.endpoints and with_directories
    ]
    topics = [api.TopicDataResponse(TOPIC, [partition])]
    return api.DescribeQuorumResponse(topics=topics, nodes=nodes)


def _errors(request: api.DescribeQuorumRequest, error: ErrorCode) -> api.DescribeQuorumResponse:
    topics = [
        api.TopicDataResponse(
            topic.topic_name,
            [
                api.PartitionDataResponse(
                    part.partition_index, error, error.message, leader_id=-1, leader_epoch=-1, high_watermark=-1
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return api.DescribeQuorumResponse(topics=topics)
