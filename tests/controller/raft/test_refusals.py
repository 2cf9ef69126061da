"""A quorum rejects requests that need another state: a snapshot that exists, voters that may change, a replica that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    PartitionSnapshotRequest,
    SnapshotId,
    TopicSnapshotRequest,
)
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.controller.raft.nodes import CLUSTER_ID, directory_id
from tests.controller.raft.test_driver import ask, dynamic_quorum, quorum, take_snapshot, until


@pytest.mark.parametrize(
    ("position", "expected"),
    [(0, ErrorCode.NONE), (1 << 40, ErrorCode.POSITION_OUT_OF_RANGE), (-1, ErrorCode.POSITION_OUT_OF_RANGE)],
)
async def test_a_snapshot_is_not_read_beyond_its_ends(tmp_path: Path, position: int, expected: ErrorCode) -> None:
    async with quorum(1, tmp_path) as made:
        node = await made.elect()
        await made.commit_everywhere(b"record")
        snapshot = take_snapshot(node)
        wanted = PartitionSnapshotRequest(
            0, node.raft.state.epoch, SnapshotId(snapshot.offset, snapshot.epoch), position
        )
        request = FetchSnapshotRequest(CLUSTER_ID, 2, 100, [TopicSnapshotRequest("__cluster_metadata", [wanted])])
        answer: Any = await ask(node, node.config.endpoints[0].port, request)
        assert answer.topics[0].partitions[0].error_code == expected


async def test_a_replica_that_is_no_voter_is_not_removed_from_them(tmp_path: Path) -> None:
    made, ports = await dynamic_quorum(tmp_path)
    try:
        await made.commit_everywhere(b"first")
        request = RemoveRaftVoterRequest(CLUSTER_ID, 9, directory_id(9))
        answer: Any = await ask(made.nodes[0], ports[0], request)
        assert answer.error_code == ErrorCode.VOTER_NOT_FOUND
    finally:
        for node in made.nodes:
            await node.stop()


async def test_a_replica_that_has_stopped_answers_nothing_more(tmp_path: Path) -> None:
    async with quorum(1, tmp_path) as made:
        node = await made.elect()
        await until(lambda: node.raft.is_leader, "a leader")
        await node.raft.stop()
        with pytest.raises(KafkaError) as refused:
            node.raft.handle(None, None)
        assert refused.value.code == ErrorCode.BROKER_NOT_AVAILABLE
