"""A group on a real node that is stopped and started: the next coordinator knows it from its log alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.shared_structs import ClassicProtocol, PartitionIndex
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.groups.harness import subscription
from tests.broker.wire import Wire

GROUP = "shop"
COMMIT_VERSION, FETCH_VERSION = 9, 9  # the last versions with names of topics


class Member:
    """A member with a connection of its own."""

    def __init__(self, node: Node) -> None:
        self.wire = node.wire()
        self.member_id, self.generation = "", -1
        self.protocol: str | None = None

    def send_join(self, protocols: str, *topics: str) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[ClassicProtocol(name, subscription(*topics)) for name in protocols.split(",")],
        )
        self._asked = self.wire.send(request)

    def joined(self) -> Any:
        answer = self.wire.receive(*self._asked)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.protocol = answer.protocol_name
        return answer

    def sync(self, *members: str) -> ErrorCode:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[SyncGroupRequestAssignment(member, b"x") for member in members],
        )
        return ErrorCode(self.wire.request(request).error_code)

    def commit(self, topic: str, offset: int) -> ErrorCode:
        row = OffsetCommitRequestPartition(0, offset)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        return ErrorCode(self.wire.request(request, COMMIT_VERSION).topics[0].partitions[0].error_code)

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        return ErrorCode(self.wire.request(request).error_code)


def first_generation(node: Node, protocols: str, *topics: str) -> Member:
    member = Member(node)
    for _ in range(2):
        member.send_join(protocols, *topics)
        member.joined()
    assert member.sync(member.member_id) == ErrorCode.NONE
    return member


def committed_offset(wire: Wire, topic: str) -> tuple[ErrorCode, int]:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
    group = wire.request(request, FETCH_VERSION).groups[0]
    return ErrorCode(group.error_code), group.topics[0].partitions[0].committed_offset if group.topics else -1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def nodes(directory: Path) -> Iterator[list[Node]]:
    """Yield the list of started nodes, of which the last one runs."""
    started = [start_node(directory, group_initial_rebalance_delay_ms="0")]
    for topic in ("t", "u"):
        started[0].create(topic)
    with started[0].wire() as wire:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        eventually(lambda: not wire.request(find).coordinators[0].error_code, "the coordinator")
        eventually(lambda: committed_offset(wire, "t")[0] == ErrorCode.NONE, "the coordinator to be loaded")
    yield started
    stop_node(started[-1])


def restart(nodes: list[Node], directory: Path) -> Node:
    stop_node(nodes[-1])
    nodes.append(start_node(directory, port=nodes[-1].port, group_initial_rebalance_delay_ms="0"))
    with nodes[-1].wire() as wire:
        eventually(lambda: committed_offset(wire, "t")[0] == ErrorCode.NONE, "the group to be loaded")
    return nodes[-1]


def test_a_group_whose_protocol_changed_under_its_members_is_known_after_a_restart(
    nodes: list[Node], directory: Path
) -> None:
    """The documented rolling change from one assignor to another. Before the fix the whole partition was unreadable after
    it.
    """
    old = first_generation(nodes[0], "range,roundrobin", "t")
    new = Member(nodes[0])
    new.send_join("roundrobin", "t")
    new.joined()
    new.send_join("roundrobin", "t")
    eventually(lambda: old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance")
    old.send_join("range,roundrobin", "t")
    assert (old.joined().protocol_name, new.joined().protocol_name) == ("roundrobin", "roundrobin")
    assert old.sync(old.member_id, new.member_id) == ErrorCode.NONE
    assert old.commit("t", 7) == ErrorCode.NONE
    restart(nodes, directory)
    for member in (old, new):
        member.wire.sock.close()
    with nodes[-1].wire() as old.wire:
        assert committed_offset(old.wire, "t") == (ErrorCode.NONE, 7)
        assert old.heartbeat() == ErrorCode.NONE
        assert old.commit("t", 8) == ErrorCode.NONE


def test_a_topic_that_a_member_began_to_read_counts_as_read_after_a_restart(nodes: list[Node], directory: Path) -> None:
    member = first_generation(nodes[0], "range", "t")
    member.send_join("range", "t", "u")
    member.joined()
    assert member.sync(member.member_id) == ErrorCode.NONE
    assert member.commit("u", 5) == ErrorCode.NONE
    restart(nodes, directory)
    member.wire.sock.close()
    with nodes[-1].wire() as wire:
        topic = OffsetDeleteRequestTopic("u", [PartitionIndex(0)])
        deleted = wire.request(OffsetDeleteRequest(group_id=GROUP, topics=[topic]))
        assert deleted.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert committed_offset(wire, "u") == (ErrorCode.NONE, 5)
