"""Records one long sequence of requests to a group coordinator with its responses, on either of two sides.

`OverTheWire` talks to any broker; `InProcess` to our handlers, on a log in memory and with time that tests move. Lines are
normalised (ids, members in order of their names), so that two sides that answer alike read alike. To record the
answers of a real Apache Kafka (group.initial.rebalance.delay.ms=0, topics dt with 2 partitions and du with 1, both by name):

    python -m tests.broker.groups.request_recorder localhost 9092 > tests/broker/groups/kafka_answers.txt
"""

from __future__ import annotations

import re
import socket
import sys
import time
from struct import pack, unpack
from types import SimpleNamespace
from typing import Any, Protocol

from ottla.broker.groups.deletion import GroupDeletion
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.routes import ROUTES, Answered
from ottla.broker.share.state_persister import StatePersister
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import EMPTY
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import decode, decoder, encode
from ottla.protocol.headers import request_header_version, response_header_version
from ottla.protocol.internal_topics.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.shared_structs import ClassicProtocol, Listener, PartitionIndex, TopicPartitionIndexes
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.server.authorization.authorizer import AllowAll
from ottla.server.network.reply import Reply
from tests.broker.groups.harness import GroupCoordinatorHarness, subscription

PARTITIONS = {"dt": 2, "du": 1, "__consumer_offsets": 50}
# How long an answer may take before it counts as parked.
PATIENCE_S = 0.5
UNKNOWN_TOPIC_ID = b"9" * 16


class Side(Protocol):
    topic_ids: dict[str, bytes]

    def send(self, name: str, request: Any, version: int) -> None: ...

    def receive(self, name: str) -> Any: ...


class OverTheWire:
    """A connection for each client, as parked answers hold back later ones."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._connections: dict[str, socket.socket] = {}
        self._asked: dict[str, tuple[int, int]] = {}
        topics = [MetadataRequestTopic(name=name) for name in ("dt", "du")]
        self.send("x", MetadataRequest(topics=topics), 12)
        self.topic_ids = {topic.name: topic.topic_id for topic in self.receive("x").topics}

    def send(self, name: str, request: Any, version: int) -> None:
        key = request.__message__.key
        self._asked[name] = (key, version)
        if name not in self._connections:
            self._connections[name] = socket.create_connection(self._address)
        client_id = client_id_of(name).encode()
        tags = b"\0" if request_header_version(key, version) == 2 else b""
        frame = pack(">hhih", key, version, 7, len(client_id)) + client_id + tags + encode(request, version)
        self._connections[name].sendall(pack(">i", len(frame)) + frame)

    def receive(self, name: str) -> Any:
        connection = self._connections[name]
        connection.settimeout(PATIENCE_S)
        try:
            prefix = connection.recv(4)
        except TimeoutError:
            return None
        connection.settimeout(10)
        (size,) = unpack(">i", prefix)
        frame = b""
        while len(frame) < size:
            frame += connection.recv(size - len(frame))
        key, version = self._asked[name]
        start = 5 if response_header_version(key, version) == 1 else 4
        return decoder(APIS[ApiKey(key)].response, version)(frame, start, len(frame))[0]


HANDLERS = {APIS[row.api_key].request: row.handler for row in ROUTES if isinstance(row, Answered)}


class InProcess:
    """Our handlers; requests and answers pass through their bytes, as by the wire."""

    def __init__(self) -> None:
        self.harness = GroupCoordinatorHarness(group_initial_rebalance_delay_ms=0)
        self.topic_ids = {name: name.encode().ljust(16, b"!")[:16] for name in PARTITIONS}
        self.harness.topic_ids = set(self.topic_ids.values())
        metadata = MetadataCache(1, "cluster")
        metadata.image = self._image()
        groups = self.harness.coordinator
        persister = StatePersister(self.harness.clock, lambda key: -1, lambda node_id, request: Reply(), lambda: None)
        self._broker = SimpleNamespace(
            groups=groups, group_deletion=GroupDeletion(groups, persister), metadata=metadata, authorizer=AllowAll()
        )
        self._answers: dict[str, list[tuple[Any, int]]] = {}

    def _image(self) -> Any:
        delta = MetadataDelta(EMPTY)
        endpoint = Listener(name="PLAINTEXT", host="localhost", port=9092)
        delta.replay(RegisterBrokerRecord(broker_id=1, fenced=False, broker_epoch=1, end_points=[endpoint]))
        for name, count in PARTITIONS.items():
            topic_id = self.topic_ids[name]
            delta.replay(TopicRecord(name=name, topic_id=topic_id))
            for index in range(count):
                delta.replay(
                    PartitionRecord(
                        index, topic_id, [1], [1], leader=1, leader_epoch=0, partition_epoch=0, directories=[bytes(16)]
                    )
                )
        return delta.apply(1, 1)

    def send(self, name: str, request: Any, version: int) -> None:
        peer = SimpleNamespace(peer_host="127.0.0.1", listener_name="PLAINTEXT", local_host="localhost", local_port=1)
        context = SimpleNamespace(api_version=version, client_id=client_id_of(name), connection=peer)
        request = decode(request.__plain__, encode(request, version), version)
        answer = HANDLERS[request.__plain__](self._broker, request, context)
        answers = self._answers.setdefault(name, [])
        if type(answer).__name__ != "Reply":
            answers.append((answer, version))
        elif answer.done:
            answers.append((answer.take(), version))
        else:
            answer.attach(SimpleNamespace(completed=lambda response: answers.append((response, version))))
        self.harness.clock.advance(0)

    def receive(self, name: str) -> Any:
        self.harness.clock.advance(0)
        if not self._answers.get(name):
            return None
        response, version = self._answers[name].pop(0)
        return decode(response.__plain__, encode(response, version), version)


def client_id_of(name: str) -> str:
    """a, a' and a'' are processes of one client."""
    return name.rstrip("'")


class RequestRecorder:
    """Sends requests to a side, and records them and the responses as lines."""

    def __init__(self, side: Side, group: str) -> None:
        self.side = side
        self.group = group
        self.lines: list[str] = []
        self._numbers: dict[str, int] = {}

    def ask(self, name: str, request: Any, version: int) -> Any:
        self.side.send(name, request, version)
        api = type(request).__name__.removesuffix("Request")
        self.lines.append(f"{name} {api} v{version} {self._say(request)}")
        return self.receive(name)

    def receive(self, name: str) -> Any:
        response = self.side.receive(name)
        self.lines.append(f"    {name}: {'parked' if response is None else self._say(response)}")
        return response

    def _say(self, message: Any) -> str:
        text = compact(message).replace(self.group, "G")
        for topic, topic_id in self.side.topic_ids.items():
            text = text.replace(repr(topic_id), f"<{topic}>")
        text = re.sub(r"\bport=\d+", "port=PORT", text)
        return re.sub(r"\b(one|two|a|b|c|x)-([0-9a-f]{8}-[0-9a-f-]{27}|\d+)\b", self._number, text)

    def _number(self, match: re.Match[str]) -> str:
        return f"{match[1]}-{self._numbers.setdefault(match[0], len(self._numbers) + 1)}"

    # ---- requests in short

    def join(
        self,
        name: str,
        member: str = "",
        *,
        instance: str | None = None,
        protocols: str = "range:dt",
        type: str = "consumer",
        version: int = 9,
        session_ms: int = 10_000,
        group: str | None = None,
    ) -> Any:
        pairs = [pair.split(":") for pair in protocols.split(",") if pair]
        request = JoinGroupRequest(
            group_id=self.group if group is None else group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type=type,
            protocols=[ClassicProtocol(protocol, subscription(topic)) for protocol, topic in pairs],
        )
        return self.ask(name, request, version)

    def sync(
        self,
        name: str,
        generation: int,
        member: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        type: str | None = "consumer",
        protocol: str | None = "range",
        group: str | None = None,
    ) -> Any:
        given = [SyncGroupRequestAssignment(to, what) for to, what in (assignments or {}).items()]
        group_id = self.group if group is None else group
        return self.ask(name, SyncGroupRequest(group_id, generation, member, instance, type, protocol, given), 5)

    def heartbeat(
        self, name: str, generation: int, member: str, instance: str | None = None, group: str | None = None
    ) -> Any:
        group_id = self.group if group is None else group
        return self.ask(name, HeartbeatRequest(group_id, generation, member, instance), 4)

    def leave(self, *members: tuple[str, str | None], version: int = 5, group: str | None = None) -> Any:
        group_id = self.group if group is None else group
        if version < 3:
            return self.ask("x", LeaveGroupRequest(group_id, members[0][0]), version)
        return self.ask(
            "x", LeaveGroupRequest(group_id, members=[MemberIdentity(*member) for member in members]), version
        )

    def commit(
        self,
        name: str,
        generation: int,
        member: str,
        *offsets: tuple[str | bytes, dict[int, int]],
        version: int = 9,
        instance: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        group: str | None = None,
    ) -> Any:
        topics = [
            OffsetCommitRequestTopic(
                *self._topic(topic, version >= 10),
                [OffsetCommitRequestPartition(p, offset, leader_epoch, metadata) for p, offset in partitions.items()],
            )
            for topic, partitions in offsets
        ]
        group_id = self.group if group is None else group
        return self.ask(name, OffsetCommitRequest(group_id, generation, member, instance, -1, topics), version)

    def _topic(self, topic: str | bytes, by_id: bool) -> tuple[str, bytes]:
        if isinstance(topic, bytes):
            return "", topic
        return ("", self.side.topic_ids[topic]) if by_id else (topic, bytes(16))

    def fetch(
        self,
        *partitions: tuple[str | bytes, list[int]],
        version: int = 8,
        all: bool = False,
        stable: bool = False,
        group: str | None = None,
    ) -> Any:
        group_id = self.group if group is None else group
        if version < 8:
            old = None if all else [TopicPartitionIndexes(str(topic), indexes) for topic, indexes in partitions]
            return self.ask("x", OffsetFetchRequest(group_id, old, require_stable=stable), version)
        topics = None
        if not all:
            topics = [OffsetFetchRequestTopics(*self._topic(t, version >= 10), indexes) for t, indexes in partitions]
        wanted = OffsetFetchRequestGroup(group_id, topics=topics)
        return self.ask("x", OffsetFetchRequest(groups=[wanted], require_stable=stable), version)

    def forget(self, *partitions: tuple[str, list[int]], group: str | None = None) -> Any:
        topics = [
            OffsetDeleteRequestTopic(topic, [PartitionIndex(index) for index in indexes])
            for topic, indexes in partitions
        ]
        return self.ask("x", OffsetDeleteRequest(self.group if group is None else group, topics), 0)

    def describe(self, version: int = 6, *, authorized: bool = False, group: str | None = None) -> Any:
        group_id = self.group if group is None else group
        return self.ask("x", DescribeGroupsRequest([group_id], authorized), version)

    def find(self, version: int, key_type: int = 0, *keys: str) -> Any:
        if version < 4:
            return self.ask("x", FindCoordinatorRequest(key=self.group, key_type=key_type), version)
        return self.ask("x", FindCoordinatorRequest(coordinator_keys=[self.group, *keys], key_type=key_type), version)


def compact(value: Any) -> str:
    """A struct with the fields that are not at their default; members sorted, since Kafka's order is a hash map's."""
    if isinstance(value, list):
        items = value
        if items and hasattr(items[0], "member_id"):
            items = sorted(items, key=lambda item: str(item.member_id))
        return f"[{', '.join(compact(item) for item in items)}]"
    names = getattr(type(value), "__field_names__", None)
    if names is None:
        return f"{value[:8]}...({len(value)})" if isinstance(value, str) and len(value) > 400 else repr(value)
    default = type(value)()
    said = [
        f"{name}={compact(getattr(value, name))}" for name in names if getattr(value, name) != getattr(default, name)
    ]
    return f"({' '.join(said)})"


def before_there_is_a_group(c: RequestRecorder) -> None:
    c.heartbeat("a", 1, "m")
    c.sync("a", 1, "m")
    for version in (2, 8, 9):
        c.commit("a", 1, "m", ("dt", {0: 1}), version=version)
    c.fetch(("dt", [0, 9]), ("nope", [0]))
    for version in (1, 5, 7):
        c.fetch(("dt", [0]), version=version, stable=version == 7)
    for version in (2, 8, 10):
        c.fetch(all=True, version=version)
    c.fetch(("dt", [0]), (UNKNOWN_TOPIC_ID, [0, 1]), version=10)
    for version in (0, 3, 5, 6):
        c.describe(version, authorized=version >= 3)
    c.ask("x", DeleteGroupsRequest([c.group, c.group]), 2)
    c.leave(("m", None))
    c.leave(("m", None), version=2)
    c.leave(("m", None), version=0)
    c.leave(("m", None), group="")
    c.leave()
    c.forget(("dt", [0]))
    c.forget(("nope", [0]))
    c.forget(group="")


def bad_joins(c: RequestRecorder) -> None:
    for version in (0, 3, 4, 6, 7, 9):
        c.join("a", "unknown", version=version)
    c.join("a", session_ms=5_999)
    c.join("a", session_ms=1_800_001)
    c.join("a", group="")
    c.join("a", protocols="", version=3)
    c.describe()
    c.join("a", type="", version=3)
    c.heartbeat("a", 0, "m", group="")
    c.sync("a", 0, "m", group="")
    c.sync("a", 1, "m", type=None)
    c.sync("a", 1, "m", protocol=None)


def first_member(c: RequestRecorder) -> tuple[str, int]:
    a = c.join("a").member_id
    c.describe()
    c.heartbeat("a", 0, a)
    c.commit("a", 0, a, ("dt", {0: 1}))
    generation = c.join("a", a).generation_id
    c.describe()
    c.heartbeat("a", generation, a)
    c.commit("a", generation, a, ("dt", {0: 1}))
    c.heartbeat("a", generation + 1, a)
    c.heartbeat("a", generation, "unknown")
    c.heartbeat("a", generation, a, "instance")
    c.join("a", a)
    c.sync("a", generation + 1, a)
    c.sync("a", generation, a, protocol="other")
    c.sync("a", generation, a, type="connect")
    c.sync("a", generation, a, {a: b"everything"})
    c.describe(6, authorized=True)
    c.describe(2)
    c.sync("a", generation, a)
    return a, generation


def commits(c: RequestRecorder, a: str, generation: int) -> None:
    c.commit("a", generation, a, ("dt", {0: 10, 1: 11, 7: 1}), ("nope", {0: 1}), ("du", {0: 5}))
    c.commit("a", generation, a, ("dt", {0: 12}), (UNKNOWN_TOPIC_ID, {0: 1}), version=10)
    c.commit("a", generation, a, ("nope", {0: 1}))
    c.commit("a", generation, a, ("dt", {0: 1}), metadata="x" * 4097)
    c.commit("a", generation, a, ("dt", {1: -5}))
    c.commit("a", generation, a)
    c.commit("a", -1, "", ("dt", {0: 1}))
    c.commit("a", generation - 1, a, ("dt", {0: 1}))
    c.commit("a", generation, "unknown", ("dt", {0: 1}))
    c.commit("a", generation, a, ("dt", {0: 1}), instance="instance")
    c.commit("a", -1, a, ("dt", {0: 1}))
    c.commit("a", generation, a, ("dt", {0: 33}), metadata=None, leader_epoch=3)
    c.fetch(("dt", [0, 1, 2]), ("nope", [0]))
    c.fetch(("dt", [0]), version=5)
    c.fetch(("dt", [0]), version=1)
    c.fetch(("dt", [0, 1]), version=10)
    c.forget(("dt", [0]), ("du", [0, 5]))
    c.ask("x", DeleteGroupsRequest([c.group]), 1)


def second_member(c: RequestRecorder, a: str, generation: int) -> None:
    both = "range:dt,sticky:dt"
    b = c.join("b", protocols=both, version=5).member_id
    c.join("b", b, protocols=both)
    c.heartbeat("a", generation, a)
    c.describe()
    c.sync("a", generation, a)
    c.commit("a", generation, a, ("dt", {0: 50}))
    c.join("c", protocols="roundrobin:dt")
    c.join("c", type="connect")
    generation = c.join("a", a).generation_id
    c.receive("b")
    c.sync("b", generation, b)
    c.sync("a", generation, a, {a: b"1", b: b"2", "unknown": b"3"})
    c.receive("b")
    c.join("b", b, protocols=both)
    c.join("b", b, protocols="range:du,sticky:du")
    c.heartbeat("a", generation, a)
    c.leave((a, None), ("unknown", None), ("", "ghost"), ("", None))
    generation = c.receive("b").generation_id
    c.heartbeat("a", generation, a)
    c.sync("b", generation, b, {b: b"all"})
    c.leave((b, None), version=1)
    c.describe()
    c.heartbeat("b", generation, b)
    c.sync("b", generation, b)
    c.join("b", b)
    c.leave((b, None), version=3)


def empty_group(c: RequestRecorder) -> None:
    c.commit("x", -1, "", ("dt", {1: 77}))
    c.commit("x", 0, "", ("dt", {1: 78}))
    c.commit("x", 5, "q", ("dt", {1: 78}))
    c.commit("x", -1, "q", ("dt", {1: 79}), instance="instance")
    c.fetch(all=True, version=7)
    c.forget(("dt", [0]), ("nope", [0]))
    c.fetch(all=True, version=9)


def static_members(c: RequestRecorder) -> None:
    one = (c.join("a", instance="one") or c.receive("a")).member_id
    generation = 4
    c.sync("a", generation, one, {one: b"s1"}, instance="one")
    c.describe()
    again = c.join("a'", instance="one").member_id
    c.heartbeat("a", generation, one, "one")
    c.sync("a", generation, one, instance="one")
    c.commit("a", generation, one, ("dt", {0: 3}), instance="one")
    c.join("a", one, instance="one")
    c.heartbeat("a'", generation, again, "one")
    c.heartbeat("a'", generation, again)
    c.heartbeat("a", generation, one)
    third = c.join("a''", instance="one", version=8).member_id
    c.heartbeat("a''", generation, third, "one")
    c.sync("a''", generation, third, instance="one")
    c.join("b", instance="two")
    c.join("b'", instance="two")
    c.receive("b")
    c.heartbeat("a''", generation, third, "one")
    generation = c.join("a''", third, instance="one").generation_id
    two = c.receive("b'").member_id
    c.sync("b'", generation, two, instance="two")
    c.join("b''", instance="two")
    c.receive("b'")
    c.heartbeat("a''", generation, third, "one")
    c.leave(("", "one"), ("wrong", "two"), ("", "two"))
    c.receive("b''")
    c.describe()


def at_last(c: RequestRecorder) -> None:
    c.ask("x", ListGroupsRequest(["bogus"], []), 5)
    c.ask("x", ListGroupsRequest([], ["bogus"]), 5)
    c.ask("x", ListGroupsRequest([], ["consumer"]), 5)
    c.ask("x", DeleteGroupsRequest([c.group]), 2)
    c.fetch(all=True)
    c.describe()
    for version in (0, 1, 3):
        c.find(version)
    c.find(4, 0, "")
    c.find(4, 2)
    c.find(6, 2)


def record(side: Side, group: str) -> str:
    """The lines of the whole sequence."""
    c = RequestRecorder(side, group)
    before_there_is_a_group(c)
    bad_joins(c)
    a, generation = first_member(c)
    commits(c, a, generation)
    second_member(c, a, generation)
    empty_group(c)
    static_members(c)
    at_last(c)
    return "\n".join(c.lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(record(OverTheWire(sys.argv[1], int(sys.argv[2])), f"group{int(time.time())}"))
