"""A script of requests of streams groups, and what a coordinator answers: Apache Kafka's answers are in kafka_answers.txt.

.venv/bin/python -m tests.broker.groups.streams.scripted PORT     prints the answers of a broker on this port

The broker has group.streams.initial.rebalance.delay.ms=0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.shared_structs import (
    ClassicProtocol,
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from tests.broker.groups.scripted import DELAY, STANDBY, Broker, GroupScript
from tests.broker.groups.streams.topologies import joined, stateful, stateless, word_count

#: More epochs than this script makes.
FUTURE = 99

Owned = dict[str, list[int]]


class Script(GroupScript):
    """Groups have the topic's name and a suffix."""

    protocol = "streams"

    # ---- requests, each in a line

    def beat(self, member: str, epoch: int | None = None, owned: Owned | None = None, **fields: Any) -> str:
        epoch = self.epoch(member) if epoch is None else epoch
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 60_000,
                "topology": stateless(self.side.topic),
                "process_id": f"p-{member}",
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
            } | fields
        elif owned is not None:
            tasks = [TaskIds(subtopology, partitions) for subtopology, partitions in owned.items()]
            fields = {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []} | fields
        request = StreamsGroupHeartbeatRequest(self.group, member, epoch, **fields)
        answer = self.side.request(request, 0)
        if answer.error_code:
            # An unexpected error has no text in Kafka's answer.
            is_expected = answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR
            text = self.common(answer.error_message) if is_expected else ""
            return f"{ErrorCode(answer.error_code).name}: {text}"
        text = f"{answer.member_id} epoch={answer.member_epoch} interval={answer.heartbeat_interval_ms}"
        if answer.active_tasks is not None:
            text += f" {_tasks(answer)}"
        for status in answer.status:
            # Kafka names missing internal topics in the order of its hash map.
            detail, colon, names = self.common(status.status_detail).partition("missing: ")
            text += f" {status.status_code}: {detail}{colon}{', '.join(sorted(names.split(', ')))}"
        if answer.endpoint_information_epoch or answer.partitions_by_user_endpoint is not None:
            text += f" endpoints {answer.endpoint_information_epoch}"
            for each in sorted(answer.partitions_by_user_endpoint or (), key=lambda each: str(each.user_endpoint.host)):
                active = [(self.common(t.topic), t.partitions) for t in each.active_partitions]
                standby = [(self.common(t.topic), t.partitions) for t in each.standby_partitions]
                text += f" {each.user_endpoint.host}:{each.user_endpoint.port} {active} {standby}"
        return text

    def described(self) -> Any:
        return self.side.request(StreamsGroupDescribeRequest(group_ids=[self.group]), 0).groups[0]

    def describe(self) -> str:
        group = self.described()
        if group.error_code:
            return f"{ErrorCode(group.error_code).name}: {self.common(group.error_message)}"
        parts = [f"{group.group_state} {group.group_epoch}/{group.assignment_epoch} topology {group.topology.epoch}"]
        for sub in group.topology.subtopologies or ():
            internal = [
                [(self.common(t.name), t.partitions, t.replication_factor, _pairs(t.topic_configs)) for t in topics]
                for topics in (sub.repartition_source_topics, sub.state_changelog_topics)
            ]
            sources, sinks = ([*map(self.common, names)] for names in (sub.source_topics, sub.repartition_sink_topics))
            parts.append(f"{sub.subtopology_id} {sources} {sinks} {internal}")
        for m in sorted(group.members, key=lambda m: str(m.member_id)):
            endpoint = None if m.user_endpoint is None else (m.user_endpoint.host, m.user_endpoint.port)
            parts.append(
                f"{m.member_id} {m.instance_id} {m.rack_id} epoch={m.member_epoch} {m.client_host} {m.process_id}"
                f" topology={m.topology_epoch} {endpoint} {_pairs(m.client_tags)} classic={m.is_classic}"
                f" has {_tasks(m.assignment)} of {_tasks(m.target_assignment)}"
            )
        return "; ".join(parts)

    def consumers(self) -> str:
        group = self.side.request(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1).groups[0]
        return f"{ErrorCode(group.error_code).name} {self.common(group.error_message)}"

    def consumer_joins(self) -> str:
        request = ConsumerGroupHeartbeatRequest(
            self.group, "c", 0, rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[]
        )
        answer = self.side.request(request, 1)
        return f"{ErrorCode(answer.error_code).name} {self.common(answer.error_message)}"

    def classic_joins(self) -> str:
        protocols = [ClassicProtocol("range", b"")]
        request = JoinGroupRequest(self.group, 10_000, 10_000, "", None, "consumer", protocols)
        return ErrorCode(self.side.request(request, 9).error_code).name

    # ---- the script

    def answers(self) -> Iterator[str]:
        for part in (
            self.bad_requests,
            self.bad_topologies,
            self.two_members,
            self.internal_topics,
            self.missing_topics,
            self.topology_epochs,
            self.endpoints,
            self.shutdown,
            self.standby_tasks,
            self.first_assignment_waits,
            self.the_end,
        ):
            self.group = f"{self.side.topic}-{part.__name__}"
            yield f"---- {part.__name__}"
            yield from part()

    def bad_requests(self) -> Iterator[str]:
        yield self.describe()
        yield self.beat("a", 5)
        yield self.beat("a", -1)
        yield self.beat("a", -2)
        yield self.beat("a", -2, instance_id="i")
        yield self.beat("a", -3)
        yield self.beat("", 0)
        yield self.beat("a", 0, instance_id="i")
        yield self.beat("a", 0, rack_id="")
        yield self.beat("a", 0, rebalance_timeout_ms=-1)
        yield self.beat("a", 0, active_tasks=None)
        yield self.beat("a", 0, active_tasks=[TaskIds("0", [1])])
        yield self.beat("a", 0, standby_tasks=None)
        yield self.beat("a", 0, warmup_tasks=[TaskIds("0", [1])])
        yield self.beat("a", 0, topology=None)
        yield self.beat("a", 0, task_offsets=[TaskOffset("0", 0, 1)])
        yield self.beat("a", 0, task_end_offsets=[])
        yield self.beat("a", 0, client_tags=[KeyValue("k", "1"), KeyValue("k", "2")])
        yield self.beat("a", 5, topology=stateless("x"))
        yield self.beat("a", 5, active_tasks=[])
        yield self.describe()

    def bad_topologies(self) -> Iterator[str]:
        topic = self.side.topic
        sub = Subtopology
        bad = {
            "the epoch is negative": stateless(topic, epoch=-1),
            "a subtopology is there twice": Topology(0, [sub("0", [topic]), sub("0", [topic])]),
            "a regular expression": Topology(0, [sub("0", [], ["t.*"])]),
            "a changelog has a number": Topology(0, [sub("0", [topic], [], [TopicInfo("c", 3)])]),
            "a Kafka topic": stateless("__consumer_offsets"),
            "a name that is none": stateless("a b", "ok"),
            "no inputs": Topology(0, [sub("0")]),
            "a copartition group out of range": Topology(
                0, [sub("0", [topic], copartition_groups=[CopartitionGroup([7])])]
            ),
            "a repartition topic that is never written": Topology(
                0, [sub("0", [topic]), sub("1", repartition_source_topics=[TopicInfo("r")])]
            ),
            "a loop": Topology(
                0,
                [
                    sub("0", repartition_source_topics=[TopicInfo("r1")], repartition_sink_topics=["r2"]),
                    sub("1", repartition_source_topics=[TopicInfo("r2")], repartition_sink_topics=["r1"]),
                ],
            ),
            "a negative number of partitions": Topology(
                0, [sub("0", [topic], repartition_source_topics=[TopicInfo("r", -3)])]
            ),
        }
        for name, topology in bad.items():
            yield f"{name}: {self.beat('a', 0, topology=topology)}"
            yield self.describe()

    def two_members(self) -> Iterator[str]:
        yield self.beat("a", 0)
        yield self.beat("a")
        yield self.beat("a", 0)
        yield self.beat("a", FUTURE)
        yield self.beat("a", owned={"0": [0, 1, 2, 3]})
        yield self.beat("a", owned={"0": [4]})
        yield self.beat("a", owned={"0": [-1]})
        yield self.beat("a", owned={"7": [0]})
        yield self.beat("q", 2)
        yield self.describe()
        yield self.beat("b", 0)
        self.side.wait()
        yield self.beat("b")
        yield self.describe()
        before = self.epoch("a")
        yield self.beat("a", before)
        yield self.describe()
        yield self.beat("a", before, {"0": [0, 1, 2, 3]})
        yield self.beat("a", before, {"0": [0, 1]})
        yield self.beat("b")
        yield self.describe()
        now = self.epoch("a")
        yield self.beat("a", before, {"0": [0]})
        yield self.beat("a", before, {"0": [0, 3]})
        yield self.beat("a", before)
        for epoch, partition, version in ((before, 0, 9), (before, 3, 9), (now, 0, 9), (FUTURE, 0, 9), (now, 0, 8)):
            yield self.commit("a", epoch, partition, version)
        yield self.commit("q", 1, 0)
        yield self.commit("", -1, 0)
        for member, epoch in (("a", now), ("a", 1), ("q", 2), (None, -1)):
            yield self.fetch(member, epoch)
        yield self.beat("a", -1)
        yield self.beat("a", -1)
        yield self.describe()
        self.side.wait()
        yield self.beat("b")
        yield self.describe()

    def internal_topics(self) -> Iterator[str]:
        topology = word_count(self.side.topic, f"{self.side.topic}-app")
        yield self.beat("a", 0, topology=topology)
        self.side.wait()
        yield self.beat("a")
        self.side.wait()
        yield self.beat("a")
        yield self.beat("a")
        yield self.describe()

    def missing_topics(self) -> Iterator[str]:
        topic = self.side.topic
        yield self.beat("a", 0, topology=joined([topic, f"{topic}-late", f"{topic}-a", f"{topic}-b", f"{topic}-c"]))
        yield self.describe()
        for suffix, partitions in (("-a", 4), ("-b", 4), ("-c", 4), ("-late", 3)):
            self.side.create(suffix, partitions)
        self.side.wait()
        yield self.beat("a")
        yield self.describe()
        yield self.beat("a", -1)
        self.group += "-changelog"
        self.side.create("-store-changelog", 2)
        self.side.wait()
        yield self.beat("a", 0, topology=stateful(topic, name=f"{topic}-store"))

    def topology_epochs(self) -> Iterator[str]:
        topic = self.side.topic
        yield self.beat("a", 0, topology=stateless(topic, epoch=3))
        yield self.beat("a", 0, topology=stateless(topic, f"{topic}-a", epoch=3))
        yield self.beat("a", 0, topology=stateless(topic, epoch=4))
        yield self.beat("b", 0, topology=stateless(topic, f"{topic}-a", epoch=2))
        self.side.wait()
        yield self.beat("b")
        yield self.describe()
        yield self.beat("b", -1)
        yield self.beat("a", -1)
        yield self.beat("c", 0, topology=stateless(topic, f"{topic}-a", epoch=3))
        yield self.describe()

    def endpoints(self) -> Iterator[str]:
        tags = [KeyValue("zone", "z"), KeyValue("cluster", "c")]
        yield self.beat("a", 0, user_endpoint=Endpoint("host-a", 65_535), client_tags=tags, rack_id="r")
        yield self.beat("a")
        yield self.beat("a", endpoint_information_epoch=1)
        yield self.beat("b", 0, user_endpoint=Endpoint("host-b", 1))
        self.side.wait()
        yield self.beat("b")
        yield self.beat("a")
        yield self.beat("a", owned={"0": [0, 1]})
        yield self.beat("b")
        yield self.beat("a")
        yield self.beat("a", endpoint_information_epoch=FUTURE)
        yield self.describe()

    def shutdown(self) -> Iterator[str]:
        yield self.beat("a", 0)
        yield self.beat("b", 0)
        yield self.beat("b", shutdown_application=True)
        yield self.beat("a", shutdown_application=True)
        yield self.beat("b", -1)
        yield self.beat("a")
        yield self.beat("a", -1)
        yield self.beat("c", 0)

    def standby_tasks(self) -> Iterator[str]:
        topology = stateful(self.side.topic, name=f"{self.side.topic}-standby")
        self.side.create("-standby-changelog", 4)
        yield self.beat("a", 0, topology=topology)
        self.side.configure(self.group, STANDBY, 1)
        self.side.wait()
        yield self.beat("a")
        yield self.describe()
        yield self.beat("b", 0, topology=topology)
        self.side.wait()
        yield self.beat("b")
        yield self.describe()
        yield self.beat("a")
        yield self.beat("a", owned={"0": [0, 1]})
        yield self.beat("b")
        yield self.beat("a", owned={"0": [0, 1]}, standby_tasks=[TaskIds("0", [2, 3])])
        yield self.beat("b")
        yield self.describe()
        yield self.beat("b", -1)
        self.side.wait()
        yield self.beat("a")
        yield self.beat("a", owned={"0": [0, 1]}, standby_tasks=[])
        yield self.beat("a")
        yield self.describe()
        self.side.configure(self.group, STANDBY, 0)
        yield self.beat("a")
        yield self.describe()

    def first_assignment_waits(self) -> Iterator[str]:
        self.side.configure(self.group, DELAY, 1_000)
        yield self.beat("a", 0)
        yield self.beat("a", 0)
        yield self.beat("b", 0)
        yield self.beat("b", 1)
        yield self.describe()
        yield self.beat("b", -1)
        self.side.wait()
        yield self.describe()
        yield self.beat("a")
        yield self.describe()
        yield self.beat("a", -1)
        yield self.beat("c", 0)
        yield self.describe()
        self.side.configure(self.group, DELAY, 0)

    def the_end(self) -> Iterator[str]:
        yield self.beat("a", 0)
        yield self.beat("a", rack_id="r2")
        yield self.beat("a", process_id="p2")
        yield self.describe()
        yield self.classic()
        yield self.consumers()
        yield self.consumer_joins()
        yield self.classic_joins()
        yield self.list()
        yield self.delete()
        yield self.beat("a", -1)
        yield self.describe()
        yield self.list()
        yield self.commit("", -1, 0)
        yield self.delete()
        yield self.describe()


def _tasks(assignment: Any) -> str:
    kinds = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return "/".join(
        " ".join(
            f"{t.subtopology_id}_{p}" for t in sorted(tasks, key=lambda t: str(t.subtopology_id)) for p in t.partitions
        )
        for tasks in kinds
    )


def _pairs(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in sorted(pairs, key=lambda pair: str(pair.key))}


if __name__ == "__main__":
    print("\n".join(Script(Broker(int(sys.argv[1]))).answers()))
