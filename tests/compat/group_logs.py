"""Apache Kafka 4.3.1 goes on with the groups of a `__consumer_offsets` that Ottla wrote, and Ottla with Kafka's, while their
members live.

One data directory goes from Apache Kafka to Ottla and back. Each finds every group as the other left it: epochs, members,
assignments, regular expressions, the metadata hash (another one would raise the group's epoch), offsets; and the members go on
in their epochs.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolAssignment
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.shared_structs import ClassicProtocol, TopicIdPartitions, TopicNamePartitions
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.consumer.described import described
from tests.broker.groups.harness import subscription
from tests.broker.wire import Wire
from tests.compat.node import serving_from
from tools import apache_kafka

BASE_PORT = 31970
GROUPS = ["names", "expressions", "mixed"]
WAIT_SECONDS_MAX = 120


class Member:
    """A member of a group by the consumer protocol; it outlives the broker."""

    def __init__(
        self, group_id: str, member_id: str, names: list[str], expression: str = "", rack: str | None = None
    ) -> None:
        self.group_id, self.member_id, self.names, self.expression, self.rack = (
            group_id,
            member_id,
            names,
            expression,
            rack,
        )
        self.epoch = 0
        self.owned: list[TopicIdPartitions] = []

    def beat(self, wire: Wire) -> Any:
        request = ConsumerGroupHeartbeatRequest(self.group_id, self.member_id, self.epoch, topic_partitions=self.owned)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.rack_id = 300_000, self.rack
            request.subscribed_topic_names, request.subscribed_topic_regex = self.names, self.expression or None
        answer = wire.request(request, 1)
        assert not answer.error_code, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [TopicIdPartitions(t.topic_id, t.partitions) for t in answer.assignment.topic_partitions]
        return answer


class ClassicMember:
    """The only member of its group until others join it by the consumer protocol."""

    group_id, member_id, generation = "mixed", "", -1

    def join(self, wire: Wire) -> None:
        request = JoinGroupRequest(
            self.group_id, 45_000, 300_000, self.member_id, None, "consumer",
            [ClassicProtocol("range", subscription("t"))],
        )  # fmt: skip
        answer = wire.request(request, 3)
        assert not answer.error_code, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        everything = b"\0\0" + encode(ConsumerProtocolAssignment([TopicNamePartitions("t", [0, 1, 2, 3])]), 0)
        assignments = (
            [SyncGroupRequestAssignment(self.member_id, everything)] if answer.leader == self.member_id else []
        )
        sync = SyncGroupRequest(self.group_id, self.generation, self.member_id, assignments=assignments)
        assert wire.request(sync, 3).error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    def beat(self, wire: Wire) -> Any:
        answer = wire.request(HeartbeatRequest(self.group_id, self.generation, self.member_id), 3)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(wire)
        else:
            assert not answer.error_code, answer
        return answer


def said(wire: Wire) -> list[str]:
    def offsets_of(group_id: str) -> list[tuple[str, int, int]]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, None, -1, None)])
        topics = wire.request(request, 9).groups[0].topics
        return [(t.name, p.partition_index, p.committed_offset) for t in topics for p in t.partitions]

    return described(wire.request(ConsumerGroupDescribeRequest(group_ids=GROUPS), 1).groups, offsets_of)


def settle(wire: Wire, members: list[Any]) -> list[str]:
    """Let all members send heartbeats until their groups are Stable and each has partitions."""

    def is_stable() -> bool:
        for member in members:
            member.beat(wire)
        # This may take a while, because a new expression is resolved at most every ten seconds.
        has_all = all(member.owned for member in members if isinstance(member, Member))
        return has_all and sum(" Stable " in line for line in said(wire)) == len(GROUPS)

    eventually(is_stable)
    return said(wire)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "not within two minutes"
        time.sleep(0.5)


@contextmanager
def connected(bootstrap: str) -> Iterator[Wire]:
    """Connect when the groups are loaded."""
    with Wire(int(bootstrap.rpartition(":")[2])) as wire:
        find = FindCoordinatorRequest(coordinator_keys=GROUPS)
        eventually(lambda: not any(each.error_code for each in wire.request(find, 4).coordinators))
        missing = ConsumerGroupDescribeRequest(group_ids=GROUPS)
        loaded = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        eventually(lambda: all(group.error_code in loaded for group in wire.request(missing, 1).groups))
        yield wire


def go_on(wire: Wire, members: list[Any], before: list[str]) -> None:
    """Check that nothing has changed, and that no heartbeat changes anything."""
    assert said(wire) == before, (said(wire), before)
    for member in members:
        epoch = getattr(member, "epoch", None)
        answer = member.beat(wire)
        assert not answer.error_code and getattr(answer, "member_epoch", None) == epoch, answer
    assert said(wire) == before, (said(wire), before)


def commit(wire: Wire, group_id: str, offset: int) -> None:
    members = wire.request(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1).groups[0].members
    topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])
    request = OffsetCommitRequest(group_id, members[0].member_epoch, members[0].member_id, topics=[topic])
    answer = wire.request(request, 9)
    assert not answer.topics[0].partitions[0].error_code, answer


def hand_over(keep: Path | None = None) -> None:
    """Hand the groups over. `keep` gets the segments that Apache Kafka has written, and its description of the groups."""
    top = Path(tempfile.mkdtemp(prefix="ottla-group-logs-"))
    data = top / "cluster"
    properties = {"offsets.topic.num.partitions": "1", "log.segment.bytes": "1048576"}
    classic = ClassicMember()
    members: list[Any] = [Member("names", "a", ["t", "u1"], rack="r1"), Member("names", "b", ["t"])]
    members += [Member("expressions", "x", [], "u.*"), Member("expressions", "y", ["t"], "u[12]")]
    try:
        with (
            apache_kafka.ApacheKafka(BASE_PORT, data=data, properties=properties) as kafka,
            connected(kafka.bootstrap) as wire,
        ):
            topics = [CreatableTopic(name, count, 1) for name, count in (("t", 4), ("u1", 1), ("u2", 2))]
            created = wire.request(CreateTopicsRequest(topics)).topics
            assert not any(topic.error_code for topic in created)
            classic.join(wire)
            members += [classic, Member("mixed", "n", ["t"])]
            for member in members[:2] + members[-1:]:
                member.beat(wire)
            by_kafka = settle(wire, members)
            commit(wire, "names", 5)
            by_kafka = said(wire)
            log_dir, cluster_id = kafka.log_dir(), kafka.cluster_id
        if keep is not None:
            shutil.copy(log_dir / "__consumer_offsets-0/00000000000000000000.log", keep / "kafka_segment.log")
            ids = [f"topic {topic.name} {topic.topic_id.hex()}" for topic in created]
            (keep / "kafka_segment.txt").write_text("\n".join([*ids, *by_kafka]) + "\n")
        with (
            serving_from(log_dir, BASE_PORT, top / "ours.log", **properties) as bootstrap,
            connected(bootstrap) as wire,
        ):
            go_on(wire, members, by_kafka)
            members.append(Member("names", "c", ["t", "u2"]))
            members.append(Member("expressions", "z", [], "t"))
            settle(wire, members)
            commit(wire, "names", 6)
            commit(wire, "expressions", 7)
            by_us = said(wire)
        with (
            apache_kafka.ApacheKafka(BASE_PORT, data=data, properties=properties, cluster_id=cluster_id) as kafka,
            connected(kafka.bootstrap) as wire,
        ):
            go_on(wire, members, by_us)
            members.append(Member("mixed", "o", ["u1"]))
            settle(wire, members)
    finally:
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    hand_over(Path(__file__).parents[1] / "broker/groups/consumer/data")
