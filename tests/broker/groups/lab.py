"""A group coordinator on a log in memory, and clients that send it requests; time passes only when told to.

`Lab` is for tests in Python. `play` runs a script of commands and gives the transcript; the files in transcripts/ are
such scripts together with what they print.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.config import GroupCoordinatorConfig
from ottla.broker.groups.records import GroupRecordCodec
from ottla.broker.groups.service import TOPIC, GroupCoordinator
from ottla.broker.groups.shard import Client, GroupShard
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.group_records import GroupMetadataKey
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.records.batch import BatchView
from ottla.server.network.reply import Reply
from tests.broker.coordinator.memory_log import ManualClock, MemoryLog

TP = (TOPIC, 0)
PARKED = "parked"


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription v0."""
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


class Lab:
    """One partition of `__consumer_offsets`; the group is "g" unless said otherwise."""

    def __init__(self, **config: int) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.config = GroupCoordinatorConfig(**config)
        self._uuids = 0
        self.epoch = 0
        self.topic_ids: set[bytes] = set()
        self.coordinator = self._coordinator()
        self.elect()

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.config, self.log, self.clock, self._new_uuid, lambda: 1, lambda topic_id: topic_id in self.topic_ids
        )

    def _new_uuid(self) -> str:
        self._uuids += 1
        return str(self._uuids)

    def elect(self) -> None:
        self.epoch += 1
        self.coordinator.on_elected(0, self.epoch)

    def restart(self) -> None:
        """Another broker takes over: everything but the log is gone."""
        self.coordinator.close()
        self.coordinator = self._coordinator()
        self.elect()

    @property
    def shard(self) -> GroupShard:
        return self.coordinator.runtime.shard(0)

    def records(self, start: int = 0) -> list[tuple[int, Any, Any]]:
        """(offset, key, value) of everything in the log."""
        codec = GroupRecordCodec()
        found = []
        for batch in self.log.batches.get(TP, ()):
            view = BatchView(memoryview(batch))
            for record in () if view.is_control or view.last_offset < start else view.records():
                if record.offset >= start:
                    decoded = codec.decode(record.key or b"", record.value)
                    assert decoded is not None
                    found.append((record.offset, *decoded))
        return found

    def client(self, name: str, **settings: Any) -> LabClient:
        return LabClient(self, name, **settings)


class LabClient:
    """Remembers what a consumer remembers: its member id and generation."""

    def __init__(
        self,
        lab: Lab,
        name: str,
        *,
        group: str = "g",
        instance: str | None = None,
        session: int = 10_000,
        rebalance: int = 60_000,
        protocols: str = "range",
        topics: str = "t",
        type: str = "consumer",
        version: int = 9,
    ) -> None:
        self.lab = lab
        self.name = name
        self.group = group
        self.instance = instance
        self.session = session
        self.rebalance = rebalance
        self.protocols = protocols
        self.topics = topics
        self.type = type
        self.version = version
        self.member_id = ""
        self.generation = -1

    # ---- requests: the answer, or PARKED; `on_answer` hears of it either way

    def _send(self, answer: Any, on_answer: Any = None) -> Any:
        arrived: list[Any] = []

        def receive(response: Any) -> None:
            self._learn(response)
            arrived.append(response)
            if on_answer is not None:
                on_answer(response)

        if type(answer) is Reply:
            answer.when_done(receive)
            self.last = arrived
            return arrived[0] if arrived else PARKED
        receive(answer)
        self.last = arrived
        return answer

    def _learn(self, response: Any) -> None:
        if type(response).__name__ == "JoinGroupResponse" and response.error_code in (
            ErrorCode.NONE,
            ErrorCode.MEMBER_ID_REQUIRED,
        ):
            self.member_id = response.member_id
            self.generation = response.generation_id

    def join(self, on_answer: Any = None, **other: Any) -> Any:
        protocols = [
            JoinGroupRequestProtocol(name, subscription(*self.topics.split(","))) for name in self.protocols.split(",")
        ]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session,
            rebalance_timeout_ms=self.rebalance,
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
            protocol_type=self.type,
            protocols=protocols if self.protocols else [],
        )
        client = Client(self.version, self.name, "/127.0.0.1")
        return self._send(self.lab.coordinator.join(request, client), on_answer)

    def sync(self, on_answer: Any = None, assignments: dict[str, bytes] | None = None, **other: Any) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=int(other.get("generation", self.generation)),
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
            protocol_type=other.get("type", self.type),
            protocol_name=other.get("protocol"),
            assignments=[SyncGroupRequestAssignment(m, a) for m, a in (assignments or {}).items()],
        )
        return self._send(self.lab.coordinator.sync(request), on_answer)

    def heartbeat(self, on_answer: Any = None, **other: Any) -> Any:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=int(other.get("generation", self.generation)),
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
        )
        return self._send(self.lab.coordinator.heartbeat(request), on_answer)

    def leave(self, on_answer: Any = None, **other: Any) -> Any:
        identity = MemberIdentity(other.get("member", self.member_id), other.get("instance", self.instance))
        request = LeaveGroupRequest(group_id=self.group, members=[identity])
        return self._send(self.lab.coordinator.leave(request), on_answer)

    def commit(self, on_answer: Any = None, *, offsets: dict[tuple[str, int], int], **other: Any) -> Any:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=int(other.get("generation", self.generation)),
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
            retention_time_ms=int(other.get("retention", -1)),
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=other.get("topic_id", bytes(16)),
                    partitions=[
                        OffsetCommitRequestPartition(partition, offset, committed_metadata=other.get("metadata", ""))
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        return self._send(self.lab.coordinator.commit_offsets(request, int(other.get("version", 9))), on_answer)

    def fetch(self, on_answer: Any = None, *, partitions: list[tuple[str, int]] | None, **other: Any) -> Any:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(topic, other.get("topic_id", bytes(16)), [partition])
                for topic, partition in partitions
            ]
        request = OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        answer = self.lab.coordinator.fetch_offsets(request, bool(other.get("stable", False)))
        return self._send(answer, on_answer)

    def delete_offsets(self, on_answer: Any = None, *, partitions: list[tuple[str, int]]) -> Any:
        topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(p)]) for topic, p in partitions]
        request = OffsetDeleteRequest(group_id=self.group, topics=topics)
        return self._send(self.lab.coordinator.delete_offsets(request), on_answer)


# ---- scripts


class Player:
    """Runs commands, one per line:

    config NAME=VALUE ...                              before anything else
    A is [instance= session= rebalance= protocols= topics= type= version= group=]
    A join|sync|heartbeat|leave [member= generation= ... | MEMBER=ASSIGNMENT]
    A commit|fetch|forget TOPIC/PARTITION[=OFFSET] ... [metadata= generation= member=]
    wait MS | hold | release | restart | log | describe [GROUP] | list [states= types=] | delete GROUP
    """

    def __init__(self) -> None:
        self.lab = Lab()
        self.clients: dict[str, LabClient] = {}
        self.out: list[str] = []
        self.logged = 0

    def run(self, line: str) -> list[str]:
        self.out = []
        words = line.split()
        plain = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        command = getattr(self, f"_{plain[0]}", None)
        if command is not None:
            command(plain[1:], options)
        else:
            self._client(plain[0], plain[1], plain[2:], options)
        return self.out

    def _client(self, name: str, verb: str, plain: list[str], options: dict[str, str]) -> None:
        if verb == "is":
            settings: dict[str, Any] = dict(options)
            for number in ("session", "rebalance", "version"):
                if number in settings:
                    settings[number] = int(settings[number])
            known = self.clients.get(name)
            self.clients[name] = self.lab.client(name.split("'")[0], **settings)
            if known is not None:
                self.clients[name].member_id, self.clients[name].generation = known.member_id, known.generation
            return
        client = self.clients.setdefault(name, self.lab.client(name))

        def hear(response: Any) -> None:
            self.out.append(f"  {name} {verb}: {say(response)}")

        if verb == "sync":
            said = {key: value for key, value in options.items() if key in ("member", "generation", "type", "protocol")}
            given = {key: value.encode() for key, value in options.items() if key not in said}
            answer = client.sync(hear, given, **said)
        elif verb == "commit":
            offsets = {_tp(key): int(value) for key, value in options.items() if "/" in key}
            rest = {key: value for key, value in options.items() if "/" not in key}
            answer = client.commit(hear, offsets=offsets, **rest)
        elif verb == "fetch":
            answer = client.fetch(hear, partitions=[_tp(word) for word in plain] if plain else None, **options)
        elif verb == "forget":
            answer = client.delete_offsets(hear, partitions=[_tp(word) for word in plain])
        else:
            answer = getattr(client, verb)(hear, **options)
        if answer is PARKED:
            self.out.append(f"  {name} {verb}: parked")

    def _config(self, plain: list[str], options: dict[str, str]) -> None:
        self.lab = Lab(**{key: int(value) for key, value in options.items()})

    def _wait(self, plain: list[str], options: dict[str, str]) -> None:
        self.lab.clock.advance(int(plain[0]))

    def _hold(self, plain: list[str], options: dict[str, str]) -> None:
        self.lab.log.hold = True

    def _release(self, plain: list[str], options: dict[str, str]) -> None:
        self.lab.log.hold = False
        self.lab.log.release(TP)

    def _restart(self, plain: list[str], options: dict[str, str]) -> None:
        self.lab.restart()

    def _log(self, plain: list[str], options: dict[str, str]) -> None:
        for offset, key, value in self.lab.records(self.logged):
            self.out.append(f"  {offset}: {say_record(key, value)}")
            self.logged = offset + 1

    def _describe(self, plain: list[str], options: dict[str, str]) -> None:
        for group in self.lab.coordinator.describe(plain or ["g"], error_since=True):
            self.out.append(f"  {say(group)}")

    def _list(self, plain: list[str], options: dict[str, str]) -> None:
        states = options["states"].split(",") if "states" in options else []
        types = options["types"].split(",") if "types" in options else []
        error, groups = self.lab.coordinator.list(states, types)
        self.out.append(f"  {error.name} {' '.join(f'{g.group_id}:{g.group_state}' for g in groups)}".rstrip())

    def _delete(self, plain: list[str], options: dict[str, str]) -> None:
        for result in self.lab.coordinator.delete(plain):
            self.out.append(f"  {result.group_id}: {ErrorCode(result.error_code).name}")


def play(script: str) -> str:
    """The script with what it prints: commands start with "> ", everything else but comments is output."""
    player = Player()
    lines = []
    for line in script.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines.extend(player.run(line[2:]))
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _tp(text: str) -> tuple[str, int]:
    topic, _, partition = text.partition("/")
    return topic, int(partition)


def say(response: Any) -> str:
    """A response in a line: its error and what is not at its default."""
    name = type(response).__name__
    error = ErrorCode(getattr(response, "error_code", 0)).name
    if name == "JoinGroupResponse":
        if response.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            return f"{error} member={response.member_id}"
        if response.error_code:
            return f"{error} member={response.member_id}"
        members = ",".join(m.member_id for m in response.members)
        skip = " skip_assignment" if response.skip_assignment else ""
        return (
            f"{error} generation={response.generation_id} {response.protocol_name} leader={response.leader} "
            f"member={response.member_id} members=[{members}]{skip}"
        )
    if name == "SyncGroupResponse":
        return f"{error} assignment={response.assignment.decode()!r}" if not response.error_code else error
    if name == "LeaveGroupResponse":
        return " ".join([error, *(f"{m.member_id}:{ErrorCode(m.error_code).name}" for m in response.members)])
    if name in ("OffsetCommitResponse", "OffsetDeleteResponse"):
        parts = [
            f"{topic.name}/{p.partition_index}:{ErrorCode(p.error_code).name}"
            for topic in response.topics
            for p in topic.partitions
        ]
        return " ".join([error, *parts]) if response.__class__.__name__ == "OffsetDeleteResponse" else " ".join(parts)
    if name == "OffsetFetchResponseGroup":
        parts = [
            f"{topic.name}/{p.partition_index}={p.committed_offset}"
            + (f":{ErrorCode(p.error_code).name}" if p.error_code else "")
            + (f" metadata={p.metadata}" if p.metadata else "")
            for topic in response.topics
            for p in topic.partitions
        ]
        return " ".join([error, *parts])
    if name == "DescribedGroup":
        members = " ".join(
            f"{m.member_id}({m.group_instance_id or m.client_id}{m.client_host} {m.member_assignment.decode()!r})"
            for m in response.members
        )
        said = f"{response.group_id} {error} {response.group_state} {response.protocol_type}/{response.protocol_data}"
        return f"{said} {members}".rstrip()
    return error


def say_record(key: Any, value: Any) -> str:
    """A record of `__consumer_offsets` in a line."""
    if type(key) is GroupMetadataKey:
        if value is None:
            return f"group {key.group} tombstone"
        members = " ".join(
            f"{m.member_id}({m.group_instance_id or m.client_id} {m.assignment.decode()!r})" for m in value.members
        )
        said = f"group {key.group} generation={value.generation} {value.protocol_type or '-'}/{value.protocol}"
        return f"{said} leader={value.leader} [{members}]"
    if value is None:
        return f"offset {key.group} {key.topic}/{key.partition} tombstone"
    return f"offset {key.group} {key.topic}/{key.partition}={value.offset}"
