"""Golden transcripts of a group coordinator and its clients (docs/dev/TESTS.md describes the language).

    config NAME=VALUE                       a new coordinator
    client a [instance= session= rebalance= protocols= topics= type= version= group=]
    join a [member=]
    heartbeat a [member= generation=]
    leave a [member= instance=]
    sync a [MEMBER=ASSIGNMENT]              [member= generation= type= protocol=]; t/0,t/1 is what consumers send
    commit a TOPIC/PARTITION=OFFSET         [member= generation= metadata= retention= version=]
    fetch a [TOPIC/PARTITION] · forget a TOPIC/PARTITION
    wait MS · hold · release · restart      milliseconds; commits of the log; a new coordinator
    clock MS                                the wall clock is set forward, or back
    log                                     the records since the last `log`
    describe [GROUP] · list [states= types=] · delete GROUP

A client a' is another process of client a. An answer that comes later stands below the command that brought it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolAssignment, decode_versioned
from ottla.protocol.internal_topics.group_records import GroupMetadataKey
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from tests import transcripts
from tests.broker.groups.harness import PARKED, TP, GroupClient, GroupCoordinatorHarness

TRANSCRIPTS = transcripts.beside(__file__)


class GroupTranscript:
    """A harness, its clients by name, and the lines that they have printed."""

    def __init__(self) -> None:
        self.harness = GroupCoordinatorHarness()
        self.clients: dict[str, GroupClient] = {}
        self.printed: list[str] = []
        self._logged = 0
        self.commands: dict[str, transcripts.Command] = {
            "config": self.config,
            "client": self.client,
            "join": self.join,
            "heartbeat": self.heartbeat,
            "leave": self.leave,
            "sync": self.sync,
            "commit": self.commit,
            "fetch": self.fetch,
            "forget": self.forget,
            "wait": self.wait,
            "clock": self.clock,
            "hold": self.hold,
            "release": self.release,
            "restart": self.restart,
            "log": self.log,
            "describe": self.describe,
            "list": self.list,
            "delete": self.delete,
        }

    def drain(self) -> list[str]:
        printed, self.printed = self.printed, []
        return printed

    def config(self, **config: str) -> None:
        values: dict[str, Any] = {name: int(v) if v.isdigit() else v for name, v in config.items()}
        self.harness = GroupCoordinatorHarness(**values)

    def client(self, name: str, **settings: Any) -> None:
        for number in settings.keys() & {"session", "rebalance", "version"}:
            settings[number] = int(settings[number])
        client = self.harness.client(name.split("'")[0], **settings)
        if name in self.clients:
            client.member_id, client.generation = self.clients[name].member_id, self.clients[name].generation
        self.clients[name] = client

    # -- Requests of clients -----------------------------------------------------------------------------------------

    def _client(self, name: str) -> GroupClient:
        return self.clients.setdefault(name, self.harness.client(name))

    def _receiver(self, name: str, verb: str) -> Callable[[Any], None]:
        return lambda response: self.printed.append(f"{name} {verb}: {describe(response)}")

    def _sent(self, name: str, verb: str, answer: Any) -> None:
        if answer is PARKED:
            self.printed.append(f"{name} {verb}: parked")

    def _send(self, verb: str, name: str, **fields: str | None) -> None:
        given = {field: value for field, value in fields.items() if value is not None}
        answer = getattr(self._client(name), verb)(self._receiver(name, verb), **given)
        self._sent(name, verb, answer)

    # The signatures list the options, so that a misspelt one is a TypeError.

    def join(self, name: str, *, member: str | None = None) -> None:
        self._send("join", name, member=member)

    def heartbeat(self, name: str, *, member: str | None = None, generation: str | None = None) -> None:
        self._send("heartbeat", name, member=member, generation=generation)

    def leave(self, name: str, *, member: str | None = None, instance: str | None = None) -> None:
        self._send("leave", name, member=member, instance=instance)

    def sync(self, name: str, **options: str) -> None:
        fields = {key: options.pop(key) for key in ("member", "generation", "type", "protocol") if key in options}
        # Names of members have a dash: the harness numbers them a-1, b-2.
        reject_unknown(key for key in options if "-" not in key)
        assignments = {member: assignment_bytes(assignment) for member, assignment in options.items()}
        self._sent(name, "sync", self._client(name).sync(self._receiver(name, "sync"), assignments, **fields))

    def commit(self, name: str, **options: str) -> None:
        offsets = {tp(key): int(options.pop(key)) for key in list(options) if "/" in key}
        reject_unknown(options.keys() - {"member", "generation", "metadata", "retention", "version"})
        answer = self._client(name).commit(self._receiver(name, "commit"), offsets=offsets, **options)
        self._sent(name, "commit", answer)

    def fetch(self, name: str, *partitions: str) -> None:
        wanted = [tp(each) for each in partitions] or None
        answer = self._client(name).fetch(self._receiver(name, "fetch"), partitions=wanted)
        self._sent(name, "fetch", answer)

    def forget(self, name: str, *partitions: str) -> None:
        wanted = [tp(each) for each in partitions]
        answer = self._client(name).delete_offsets(self._receiver(name, "forget"), partitions=wanted)
        self._sent(name, "forget", answer)

    # -- The coordinator ---------------------------------------------------------------------------------------------

    def clock(self, ms: str) -> None:
        self.harness.clock.wall_at_start_ms += int(ms)

    def wait(self, duration_ms: str) -> None:
        self.harness.clock.advance(int(duration_ms))

    def hold(self) -> None:
        self.harness.log.hold = True

    def release(self) -> None:
        self.harness.log.hold = False
        self.harness.log.release(TP)

    def restart(self) -> None:
        self.harness.restart()

    def log(self) -> None:
        for offset, key, value in self.harness.records(self._logged):
            self.printed.append(f"{offset}: {describe_record(key, value)}")
            self._logged = offset + 1

    def describe(self, *groups: str) -> None:
        for group in self.harness.coordinator.describe([*groups] or ["g"], error_since=True):
            self.printed.append(describe(group))

    def list(self, states: str = "", types: str = "") -> None:
        chosen = [[each for each in names.split(",") if each] for names in (states, types)]
        error, groups = self.harness.coordinator.list(*chosen)
        self.printed.append(" ".join([error.name, *(f"{g.group_id}:{g.group_state}" for g in groups)]))

    def delete(self, *groups: str) -> None:
        for result in self.harness.delete_groups([*groups]):
            self.printed.append(f"{result.group_id}: {ErrorCode(result.error_code).name}")


def reject_unknown(options: Iterable[str]) -> None:
    unknown = sorted(options)
    if unknown:
        raise TypeError(f"unknown options: {', '.join(unknown)}")


def assignment_bytes(text: str) -> bytes:
    """Return the assignment of a text like "t/0,t/1" in the form that consumers have, and the bytes of any other text."""
    if "/" not in text:
        return text.encode()
    partitions = [tp(each) for each in text.split(",")]
    topics = {topic: [p for other, p in partitions if other == topic] for topic, _ in partitions}
    return b"\0\0" + encode(ConsumerProtocolAssignment([TopicNamePartitions(*each) for each in topics.items()]), 0)


def assignment_text(assignment: bytes) -> str:
    if not assignment.startswith(b"\0"):
        return repr(assignment.decode())
    topics = decode_versioned(ConsumerProtocolAssignment, assignment)[0].assigned_partitions
    return f"[{' '.join(f'{each.topic}/{p}' for each in topics for p in each.partitions)}]"


def tp(text: str) -> tuple[str, int]:
    topic, _, partition = text.partition("/")
    return topic, int(partition)


def describe(response: Any) -> str:
    """Return a response as one line: its error, and the fields that are not at their defaults."""
    name = type(response).__name__
    error = ErrorCode(getattr(response, "error_code", 0)).name
    if name == "JoinGroupResponse":
        if response.error_code:
            return f"{error} member={response.member_id}"
        members = ",".join(m.member_id for m in response.members)
        skip = " skip_assignment" if response.skip_assignment else ""
        return (
            f"{error} generation={response.generation_id} {response.protocol_name} leader={response.leader} "
            f"member={response.member_id} members=[{members}]{skip}"
        )
    if name == "SyncGroupResponse":
        return f"{error} assignment={assignment_text(response.assignment)}" if not response.error_code else error
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
            f"{m.member_id}({m.group_instance_id or m.client_id}{m.client_host} {assignment_text(m.member_assignment)})"
            for m in response.members
        )
        text = f"{response.group_id} {error} {response.group_state} {response.protocol_type}/{response.protocol_data}"
        return f"{text} {members}".rstrip()
    return error


def describe_record(key: Any, value: Any) -> str:
    """Return a record of `__consumer_offsets` as one line."""
    if type(key) is GroupMetadataKey:
        if value is None:
            return f"group {key.group} tombstone"
        members = " ".join(
            f"{m.member_id}({m.group_instance_id or m.client_id} {assignment_text(m.assignment)})"
            for m in value.members
        )
        text = f"group {key.group} generation={value.generation} {value.protocol_type or '-'}/{value.protocol}"
        return f"{text} leader={value.leader} [{members}]"
    if value is None:
        return f"offset {key.group} {key.topic}/{key.partition} tombstone"
    return f"offset {key.group} {key.topic}/{key.partition}={value.offset}"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = GroupTranscript()
    transcripts.check(path, transcripts.Interpreter(transcript.commands, transcript.drain))


@pytest.mark.parametrize(
    "command",
    [
        "join a memberr=a-1",
        "heartbeat a generaton=1",
        "leave a membr=a-1",
        "sync a generaton=1",
        "commit a t/0=5 generaton=1",
        "fetch a t/0 stabel=1",
        "client a sesion=6000",
        "config offsets_retention=1",
    ],
)
def test_a_misspelt_option_is_an_error_that_names_its_line_and_the_option(tmp_path: Path, command: str) -> None:
    path = tmp_path / "typo.txt"
    path.write_text(f"hold\n----\n\n{command}\n----\n")
    transcript = GroupTranscript()
    with pytest.raises(TypeError, match=re.escape(command.split()[-1].partition("=")[0])) as raised:
        transcripts.check(path, transcripts.Interpreter(transcript.commands, transcript.drain))
    assert raised.value.__notes__ == [f"{path}:4: {command}"]


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 10
