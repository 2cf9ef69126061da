"""Golden transcripts of streams groups: the language of classic ones (tests/broker/groups/test_transcripts.py), and

topics t=3 u=2                          the topics that there are, and how many partitions each has
settings delay=3000 standby=1 interval=1000
member a [process=] [topology=stateless|stateful|words] [epoch=] [rebalance=]
beat a [epoch= active=0_0,1_2 standby= full=1]    a heartbeat; the first one joins
quit a                                  a last heartbeat
create                                  the internal topics that the last answer found missing
streams                                 StreamsGroupDescribe
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.groups.group_config import GroupSettings
from ottla.broker.groups.group_descriptions import STREAMS_GROUPS
from ottla.broker.groups.streams.streams_group import TaskSet, TasksTuple
from ottla.protocol.errors import ErrorCode
from tests import transcripts
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import stateful, stateless, word_count
from tests.broker.groups.test_transcripts import GroupTranscript

TRANSCRIPTS = transcripts.beside(__file__)
TOPOLOGIES = {"stateless": stateless, "stateful": stateful, "words": word_count}
SETTINGS = {"delay": "initial_rebalance_delay_ms", "standby": "standby_replicas", "interval": "assignment_interval_ms"}


class StreamsTranscript(GroupTranscript):
    def __init__(self) -> None:
        super().__init__()
        self.harness.streams_settings = GroupSettings(initial_rebalance_delay_ms=0)
        self.members: dict[str, StreamsMember] = {}
        self.missing: dict[str, int] = {}
        self.commands |= {
            "topics": self.topics,
            "settings": self.settings,
            "member": self.member,
            "beat": self.beat,
            "quit": self.quit,
            "create": self.create,
            "streams": self.streams,
        }

    def topics(self, **counts: str) -> None:
        self.harness.topics = {name: int(count) for name, count in counts.items()}

    def settings(self, **values: str) -> None:
        new = {SETTINGS[name]: int(value) for name, value in values.items()}
        self.harness.streams_settings = self.harness.streams_settings._replace(**new)

    def member(
        self,
        name: str,
        process: str | None = None,
        topology: str = "stateless",
        epoch: str = "0",
        rebalance: str = "60000",
    ) -> None:
        made = TOPOLOGIES[topology]("t", epoch=int(epoch))
        self.members[name] = StreamsMember(self.harness, name, made, process=process, rebalance=int(rebalance))

    def _member(self, name: str) -> StreamsMember:
        if name not in self.members:
            self.member(name)
        return self.members[name]

    def beat(
        self, name: str, epoch: str | None = None, active: str | None = None, standby: str = "", full: str = ""
    ) -> list[str]:
        owned = None if active is None else TasksTuple(tasks_of(active), tasks_of(standby))
        member = self._member(name)
        answer = member.beat(None if epoch is None else int(epoch), owned, bool(full))
        self.missing = member.missing
        if answer.error_code:
            return [f"{ErrorCode(answer.error_code).name}: {answer.error_message}"]
        text = f"{name} epoch={answer.member_epoch}"
        if answer.active_tasks is not None:
            text += f" {listed(answer)}"
        return [text, *(f"  {status.status_code}: {status.status_detail}" for status in answer.status)]

    def quit(self, name: str) -> list[str]:
        answer = self._member(name).leave()
        return [ErrorCode(answer.error_code).name]

    def create(self) -> None:
        self.harness.topics |= self.missing

    def streams(self) -> list[str]:
        (group,) = self.harness.coordinator.describe_modern(["g"], STREAMS_GROUPS)
        if group.error_code:
            return [f"{ErrorCode(group.error_code).name} {group.error_message}"]
        lines = [f"{group.group_state} epoch={group.group_epoch} assigned={group.assignment_epoch}"]
        lines += [
            f"  {m.member_id} epoch={m.member_epoch} has {listed(m.assignment)} of {listed(m.target_assignment)}"
            for m in group.members
        ]
        return lines

    def log(self) -> None:
        for offset, key, value in self.harness.records(self._logged):
            self.printed.append(f"{offset}: {recorded(key, value)}")
            self._logged = offset + 1


def tasks_of(text: str) -> TaskSet:
    tasks: dict[str, frozenset[int]] = {}
    for each in text.split(",") if text else ():
        name, _, partition = each.partition("_")
        tasks[name] = tasks.get(name, frozenset()) | {int(partition)}
    return tasks


def listed(tasks: Any) -> str:
    kinds = (tasks.active_tasks, tasks.standby_tasks, tasks.warmup_tasks)
    active, standby, warmup = (
        " ".join(f"{t.subtopology_id}_{p}" for t in kind for p in t.partitions) for kind in kinds
    )
    return f"[{active}]" + (f" standby [{standby}]" if standby else "") + (f" warm-up [{warmup}]" if warmup else "")


def recorded(key: Any, value: Any) -> str:
    """A record of a streams group in a line."""
    kind = type(key).__name__.removeprefix("StreamsGroup").removesuffix("Key")
    text = f"{kind} {getattr(key, 'member_id', '')}".strip()
    match kind:
        case _ if value is None:
            return f"{text} tombstone"
        case "Metadata":
            configs = ",".join(f"{config.key}={config.value}" for config in value.last_assignment_configs)
            return f"{text} epoch={value.epoch} validated={value.validated_topology_epoch} {configs}"
        case "Topology":
            return f"{text} epoch={value.epoch} {','.join(each.subtopology_id for each in value.subtopologies)}"
        case "MemberMetadata":
            return f"{text} process={value.process_id} topology={value.topology_epoch}"
        case "TargetAssignmentMetadata":
            return f"{text} epoch={value.assignment_epoch}"
        case "TargetAssignmentMember":
            return f"{text} {listed(value)}"
    pending = value.active_tasks_pending_revocation + value.standby_tasks_pending_revocation
    closes = " ".join(f"{t.subtopology_id}_{p}" for t in pending for p in t.partitions)
    epochs = f"{value.previous_member_epoch}->{value.member_epoch}"
    return f"{text} epoch={epochs} state={value.state} {listed(value)} closes [{closes}]"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = StreamsTranscript()
    transcripts.check(path, transcripts.Interpreter(transcript.commands, transcript.drain))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 7
