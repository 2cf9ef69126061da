"""Requests that a replica must reject, over the wire, with Kafka's error codes; they change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.controller.raft.wire.requests_in import read_fetch
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import add_raft_voter as add
from ottla.protocol.messages import begin_quorum_epoch as begin
from ottla.protocol.messages import end_quorum_epoch as end
from ottla.protocol.messages import fetch, vote
from ottla.protocol.messages import fetch_snapshot as snapshot
from ottla.protocol.messages import remove_raft_voter as remove
from ottla.protocol.messages import update_raft_voter as update
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.server.network.client import Channel
from tests.controller.raft.nodes import CLUSTER_ID, quorum

TOPIC = "__cluster_metadata"
TOPIC_ID = (1).to_bytes(16, "big")
#: The only voter leads epoch 1, and its log ends at offset 1.
EPOCH = 1
E = ErrorCode


def a_vote(*, topic: str = TOPIC, cluster: str | None = CLUSTER_ID, voter: int = 1, **fields: Any) -> vote.VoteRequest:
    part = vote.PartitionDataRequest(
        **{"replica_epoch": 5, "replica_id": 2, "last_offset_epoch": 1, "last_offset": 9, **fields}
    )
    return vote.VoteRequest(cluster, voter, [vote.TopicDataRequest(topic, [part])])


def a_begin(*, topic: str = TOPIC, cluster: str | None = CLUSTER_ID, epoch: int = 5, leader: int = 2) -> Any:
    part = begin.PartitionDataRequest(leader_id=leader, leader_epoch=epoch)
    return begin.BeginQuorumEpochRequest(cluster, 1, [begin.TopicDataRequest(topic, [part])])


def an_end(*, topic: str = TOPIC, cluster: str | None = CLUSTER_ID, epoch: int = 5, leader: int = 2) -> Any:
    part = end.PartitionDataRequest(leader_id=leader, leader_epoch=epoch)
    return end.EndQuorumEpochRequest(cluster, [end.TopicDataRequest(topic, [part])])


def a_fetch(
    *,
    topic_id: bytes = TOPIC_ID,
    cluster: str | None = CLUSTER_ID,
    replica: int = 2,
    max_bytes: int = 100,
    **fields: Any,
) -> Any:
    defaults = {"current_leader_epoch": EPOCH, "fetch_offset": 1, "last_fetched_epoch": 1, "partition_max_bytes": 100}
    part = fetch.FetchPartition(**{**defaults, **fields})
    topics = [fetch.FetchTopic(topic_id=topic_id, partitions=[part])]
    return fetch.FetchRequest(
        cluster_id=cluster, replica_state=fetch.ReplicaState(replica), max_bytes=max_bytes, topics=topics
    )


def a_fetch_snapshot(
    *, topic: str = TOPIC, cluster: str | None = CLUSTER_ID, epoch: int = EPOCH, position: int = 0
) -> Any:
    part = snapshot.PartitionSnapshotRequest(0, epoch, snapshot.SnapshotId(1, 1), position)
    return snapshot.FetchSnapshotRequest(cluster, 2, 100, [snapshot.TopicSnapshotRequest(topic, [part])])


def test_a_fetch_of_kafkas_voter_which_leaves_the_partitions_limit_0_gets_as_much_as_the_request_allows() -> None:
    """Before the fix the lower of the two limits was used, so a fetch got one batch per round trip: ten thousand batches took
    eleven seconds.
    """
    read = read_fetch(a_fetch(partition_max_bytes=0, max_bytes=1 << 20))
    assert read is not None and read.bytes_max == 1 << 20


LISTENER = [add.Listener("CONTROLLER", "127.0.0.1", 1)]
DIRECTORY = b"d" * 16

# (request, error of the whole response, error of the partition)
REFUSED: list[tuple[str, Any, ErrorCode, ErrorCode | None]] = [
    ("another cluster votes", a_vote(cluster="other"), E.INCONSISTENT_CLUSTER_ID, None),
    ("a vote on another topic", a_vote(topic="t"), E.INVALID_REQUEST, None),
    ("a vote on no topic", vote.VoteRequest(CLUSTER_ID, 1, []), E.INVALID_REQUEST, None),
    ("a vote in an old epoch", a_vote(replica_epoch=0, last_offset_epoch=-1), E.NONE, E.INVALID_REQUEST),
    ("a candidate that is no voter", a_vote(), E.INCONSISTENT_VOTER_SET, None),
    ("a candidate whose log is ahead of its epoch", a_vote(last_offset_epoch=5), E.NONE, E.INVALID_REQUEST),
    ("a candidate with a negative log", a_vote(last_offset=-1), E.NONE, E.INVALID_REQUEST),
    ("a candidate with our node id", a_vote(replica_id=1), E.NONE, E.INVALID_REQUEST),
    ("a candidate with no node id", a_vote(replica_id=-1), E.NONE, E.INVALID_REQUEST),
    ("another cluster's leader", a_begin(cluster="other"), E.INCONSISTENT_CLUSTER_ID, None),
    ("a leader of another topic", a_begin(topic="t"), E.INVALID_REQUEST, None),
    ("a leader that is no voter", a_begin(), E.INCONSISTENT_VOTER_SET, None),
    ("a leader with our node id", a_begin(leader=1), E.NONE, E.INVALID_REQUEST),
    ("another cluster's resignation", an_end(cluster="other"), E.INCONSISTENT_CLUSTER_ID, None),
    ("a resignation on another topic", an_end(topic="t"), E.INVALID_REQUEST, None),
    ("the resignation of who is no voter", an_end(), E.INCONSISTENT_VOTER_SET, None),
    ("another cluster fetches", a_fetch(cluster="other"), E.INCONSISTENT_CLUSTER_ID, None),
    ("a fetch of another topic", a_fetch(topic_id=b"t" * 16), E.INVALID_REQUEST, None),
    ("a fetch of another partition", a_fetch(partition=1), E.INVALID_REQUEST, None),
    ("a fetch at a negative offset", a_fetch(fetch_offset=-1), E.NONE, E.INVALID_REQUEST),
    ("a fetch from the leader's own id", a_fetch(replica=1), E.NONE, E.INVALID_REQUEST),
    ("a fetch with a log ahead of its epoch", a_fetch(last_fetched_epoch=2), E.NONE, E.INVALID_REQUEST),
    ("a fetch in an old epoch", a_fetch(current_leader_epoch=0, last_fetched_epoch=0), E.NONE, E.FENCED_LEADER_EPOCH),
    ("a fetch in a later epoch", a_fetch(current_leader_epoch=7), E.NONE, E.UNKNOWN_LEADER_EPOCH),
    ("another cluster wants the snapshot", a_fetch_snapshot(cluster="other"), E.INCONSISTENT_CLUSTER_ID, None),
    ("a snapshot of another topic", a_fetch_snapshot(topic="t"), E.INVALID_REQUEST, None),
    ("a snapshot that is not there", a_fetch_snapshot(), E.NONE, E.SNAPSHOT_NOT_FOUND),
    ("a snapshot of a later leader", a_fetch_snapshot(epoch=9), E.NONE, E.UNKNOWN_LEADER_EPOCH),
    ("another cluster adds a voter", add.AddRaftVoterRequest("other", 1, 2, DIRECTORY, LISTENER), E.INCONSISTENT_CLUSTER_ID, None),
    ("a voter without a directory", add.AddRaftVoterRequest(CLUSTER_ID, 1, 2, bytes(16), LISTENER), E.INVALID_REQUEST, None),
    ("a voter without an endpoint", add.AddRaftVoterRequest(CLUSTER_ID, 1, 2, DIRECTORY, []), E.INVALID_REQUEST, None),
    ("a voter where voters are static", add.AddRaftVoterRequest(CLUSTER_ID, 1, 2, DIRECTORY, LISTENER), E.UNSUPPORTED_VERSION, None),
    ("another cluster removes a voter", remove.RemoveRaftVoterRequest("other", 1, DIRECTORY), E.INCONSISTENT_CLUSTER_ID, None),
    ("a removal without a directory", remove.RemoveRaftVoterRequest(CLUSTER_ID, 1, bytes(16)), E.INVALID_REQUEST, None),
    ("a removal where voters are static", remove.RemoveRaftVoterRequest(CLUSTER_ID, 1, DIRECTORY), E.UNSUPPORTED_VERSION, None),
    ("an update in a later epoch", update.UpdateRaftVoterRequest(CLUSTER_ID, 7, 1, DIRECTORY, LISTENER), E.UNKNOWN_LEADER_EPOCH, None),
    ("an update without endpoints", update.UpdateRaftVoterRequest(CLUSTER_ID, 1, 1, DIRECTORY, []), E.INVALID_REQUEST, None),
]  # fmt: skip


async def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        channel = Channel(node.real.world, "127.0.0.1", node.config.endpoints[0].port)
        for case, request, top, partition in REFUSED:
            response = await channel.request(request)
            assert response.error_code == top, f"{case}: {response}"
            if partition is not None:
                topics = response.responses if hasattr(response, "responses") else response.topics
                assert topics[0].partitions[0].error_code == partition, f"{case}: {response}"
            assert (node.raft.is_leader, node.raft.state.epoch, node.raft.log_end_offset) == (True, EPOCH, 1), case
        channel.close()


@pytest.mark.parametrize("meant_for", [{"voter": 9}, {"voter_directory_id": b"x" * 16}])
async def test_a_vote_meant_for_another_replica_is_not_given(tmp_path: Path, meant_for: dict[str, Any]) -> None:
    async with quorum(3, tmp_path) as made:
        node = await made.elect()
        channel = Channel(node.real.world, "127.0.0.1", node.config.endpoints[0].port)
        own = {"voter": node.config.node_id} | meant_for
        other = node.config.node_id % 3 + 1
        request = a_vote(replica_epoch=node.raft.state.epoch, last_offset_epoch=0, replica_id=other, **own)
        response = await channel.request(request)
        part = response.topics[0].partitions[0]
        assert (part.error_code, part.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
        channel.close()


async def test_describing_another_partition(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        channel = Channel(node.real.world, "127.0.0.1", node.config.endpoints[0].port)
        response = await channel.request(DescribeQuorumRequest([TopicDataRequest("t", [PartitionIndex(0)])]))
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        channel.close()


@pytest.mark.parametrize("version", [12, 13, 16, 17, 18])
async def test_every_version_of_fetch_gets_the_log(tmp_path: Path, version: int) -> None:
    async with quorum(1, tmp_path) as made:
        node = made.nodes[0]
        channel = Channel(node.real.world, "127.0.0.1", node.config.endpoints[0].port)
        request = a_fetch(fetch_offset=0, last_fetched_epoch=0)
        if version < 13:
            request.topics[0].topic = TOPIC
        if version < 15:
            request.replica_id, request.replica_state = 2, fetch.ReplicaState()
        response = await channel.request(request, version=version)
        part = response.responses[0].partitions[0]
        assert (part.error_code, part.high_watermark, part.current_leader.leader_id) == (ErrorCode.NONE, 1, 1)
        assert len(part.records) > 61
        channel.close()
