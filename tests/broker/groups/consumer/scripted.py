"""A script of requests of consumer groups, and what a coordinator answers: Apache Kafka's answers are in kafka_answers.txt.

.venv/bin/python -m tests.broker.groups.consumer.scripted PORT     prints the answers of a broker on this port
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import TopicIdPartitions
from tests.broker.groups.scripted import Broker, GroupScript


class Script(GroupScript):
    protocol = "consumer"

    # ---- requests, each in a line

    def beat(self, member: str, epoch: int | None = None, owned: list[int] | None = None, **fields: Any) -> str:
        epoch = self.epoch(member) if epoch is None else epoch
        if epoch == 0 or fields.pop("full", False):
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.side.topic]} | fields
            owned = owned or []
        topics = None
        if owned is not None:
            topics = [TopicIdPartitions(self.side.topic_id, owned)] if owned else []
        answer = self.side.request(
            ConsumerGroupHeartbeatRequest(self.group, member, epoch, topic_partitions=topics, **fields), 1
        )
        error = ErrorCode(answer.error_code).name
        if answer.error_code:
            return f"{error}: {self.common(answer.error_message)}"
        text = f"{answer.member_id} epoch={answer.member_epoch} interval={answer.heartbeat_interval_ms}"
        return text if answer.assignment is None else f"{text} {_partitions(answer.assignment)}"

    def described(self) -> Any:
        return self.side.request(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1).groups[0]

    def describe(self) -> str:
        group = self.described()
        if group.error_code:
            return f"{ErrorCode(group.error_code).name}: {self.common(group.error_message)}"
        members = [
            f"{m.member_id} {m.instance_id} {m.rack_id} epoch={m.member_epoch} {m.client_host} type={m.member_type}"
            f" {','.join(sorted(map(self.common, m.subscribed_topic_names)))} {m.subscribed_topic_regex!r}"
            f" has {_partitions(m.assignment)} of {_partitions(m.target_assignment)}"
            for m in sorted(group.members, key=lambda m: str(m.member_id))
        ]
        epochs = f"{group.group_epoch}/{group.assignment_epoch}"
        return "; ".join([f"{group.group_state} {epochs} {group.assignor_name}", *members])

    # ---- the script

    def answers(self) -> Iterator[str]:
        yield from self.bad_requests()
        yield from self.two_members()
        yield from self.static_members()
        yield from self.the_end()

    def bad_requests(self) -> Iterator[str]:
        yield self.describe()
        yield self.beat("a", 5)
        yield self.beat("a", -1)
        yield self.beat("", 0)
        yield self.beat("a", -3)
        yield self.beat("a", 0, server_assignor="x")
        yield self.beat("a", 0, instance_id="")
        yield self.beat("a", 0, rack_id="")
        yield self.beat("a", 0, rebalance_timeout_ms=-1)
        yield self.beat("a", 0, subscribed_topic_names=None)
        yield self.beat("a", 0, owned=[1])
        yield self.beat("a", -2)
        yield self.beat("z", 0, subscribed_topic_names=[])
        yield self.beat("z", -1)
        yield self.describe()

    def two_members(self) -> Iterator[str]:
        for _ in range(2):
            yield self.beat("a", 0)
        yield self.beat("a")
        yield self.beat("a", 9)
        yield self.beat("b", 0)
        yield self.describe()
        yield self.beat("b")
        self.side.wait()
        yield self.beat("b")
        before = self.epoch("a")
        yield self.beat("a", before)
        yield self.describe()
        yield self.commit("a", before, 3)
        yield self.beat("a", before, [0, 1, 2, 3])
        yield self.beat("a", before)
        yield self.beat("a", before, [0, 1])
        yield self.describe()
        yield self.beat("b")
        yield self.describe()
        now = self.epoch("a")
        for epoch, partition, version in ((before, 0, 9), (before, 3, 9), (now, 0, 9), (9, 0, 9), (now, 0, 8)):
            yield self.commit("a", epoch, partition, version)
        yield self.commit("q", 1, 0)
        yield self.commit("", -1, 0)
        for member, epoch in (("a", now), ("a", 1), ("q", 2), (None, -1)):
            yield self.fetch(member, epoch)
        yield self.beat("a", 0)
        yield self.describe()
        yield self.beat("a", -1)
        yield self.beat("a", -1)
        yield self.describe()
        self.side.wait()
        yield self.beat("b")
        yield self.beat("b")
        yield self.describe()

    def static_members(self) -> Iterator[str]:
        yield self.beat("s", 0, instance_id="i")
        self.side.wait()
        yield self.beat("s", instance_id="i")
        yield self.beat("b")
        yield self.beat("b", owned=[0, 1])
        yield self.beat("s", instance_id="i")
        yield self.describe()
        epoch = self.epoch("s")
        yield self.beat("s2", 0, instance_id="i")
        yield self.beat("s2", epoch, instance_id="i")
        yield self.beat("s", -2, instance_id="i")
        yield self.describe()
        yield self.beat("s", epoch, instance_id="i")
        yield self.beat("s2", 0, instance_id="i")
        yield self.describe()
        yield self.beat("s", epoch, instance_id="i")
        yield self.beat("s", -1, instance_id="i")
        yield self.beat("s", -1, instance_id="j")

    def the_end(self) -> Iterator[str]:
        yield self.beat("b", owned=[0, 1], full=True)
        yield self.beat("b", self.epoch("b") - 1, [0, 1], full=True)
        yield self.beat("b", self.epoch("b") - 1, [2], full=True)
        yield self.beat("b", subscribed_topic_names=[self.side.topic, "q"])
        yield self.describe()
        yield self.beat("b", rack_id="r")
        yield self.beat("b", server_assignor="range")
        yield self.describe()
        yield self.classic()
        yield self.list()
        yield self.delete()
        yield self.beat("b", -1)
        yield self.beat("s2", -1, instance_id="i")
        yield self.describe()
        yield self.commit("", -1, 0)
        yield self.delete()
        yield self.describe()


def _partitions(assignment: Any) -> list[int]:
    return [partition for topic in assignment.topic_partitions for partition in topic.partitions]


if __name__ == "__main__":
    print("\n".join(Script(Broker(int(sys.argv[1]))).answers()))
