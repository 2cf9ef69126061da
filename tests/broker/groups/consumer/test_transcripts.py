"""Golden transcripts of consumer groups: the language of classic ones (tests/broker/groups/test_transcripts.py), and

topics t=3 u=2                          the topics that there are, and how many partitions each has
consumer a [instance= topics= regex= hidden= assignor= rebalance= version= member= group=]
beat a [epoch= owned=t/0,t/1 full=1]    a heartbeat; the first one joins
quit a · pause a                        a last heartbeat: for good (-1), or until the process is back (-2)
commit a t/0=5 [epoch= version=] · transactional a t/0=5 [epoch= member=] · fetch a t/0 [epoch=]
consumers [GROUP]                       ConsumerGroupDescribe
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.groups.group_descriptions import CONSUMER_GROUPS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.group_records import GroupMetadataKey, OffsetCommitKey
from tests import transcripts
from tests.broker.groups.consumer.member import ConsumerMember, Owned
from tests.broker.groups.test_transcripts import GroupTranscript, describe, describe_record, tp

TRANSCRIPTS = transcripts.beside(__file__)


class ConsumerTranscript(GroupTranscript):
    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, ConsumerMember] = {}
        self.commands |= {
            "topics": self.topics,
            "consumer": self.consumer,
            "beat": self.beat,
            "quit": self.quit,
            "pause": self.pause,
            "transactional": self.transactional,
            "consumers": self.describe_consumers,
        }

    def topics(self, **counts: str) -> None:
        self.harness.topics = {name: int(count) for name, count in counts.items()}

    def consumer(self, name: str, **settings: Any) -> None:
        for number in settings.keys() & {"rebalance", "version"}:
            settings[number] = int(settings[number])
        hidden = settings.pop("hidden", "")
        self.members[name] = ConsumerMember(self.harness, name, **settings)
        self.members[name].hidden = frozenset(hidden.split(","))

    def _member(self, name: str) -> ConsumerMember:
        return self.members.setdefault(name, ConsumerMember(self.harness, name))

    def beat(self, name: str, **options: str) -> list[str]:
        owned = owned_of(options["owned"]) if "owned" in options else None
        epoch = int(options["epoch"]) if "epoch" in options else None
        return [answered(self._member(name).beat(epoch, owned, "full" in options))]

    def quit(self, name: str) -> list[str]:
        return [answered(self._member(name).leave(-1))]

    def pause(self, name: str) -> list[str]:
        return [answered(self._member(name).leave(-2))]

    def commit(self, name: str, **options: str) -> None:
        if name not in self.members:
            super().commit(name, **options)
            return
        others = {key: int(options.pop(key)) for key in ("epoch", "version") if key in options}
        offsets = {tp(key): int(value) for key, value in options.items()}
        self.printed.append(describe(self.members[name].commit(offsets, **others)))

    def transactional(self, name: str, **options: str) -> list[str]:
        others: dict[str, Any] = {key: int(options.pop(key)) for key in ("epoch",) if key in options}
        if "member" in options:
            others["member_id"] = options.pop("member")
        answer = self.members[name].commit_transactional({tp(k): int(v) for k, v in options.items()}, **others)
        return [ErrorCode(p.error_code).name for topic in answer.topics for p in topic.partitions]

    def fetch(self, name: str, *partitions: str, **fields: str) -> None:
        if name not in self.members:
            super().fetch(name, *partitions, **fields)
            return
        others = {key: int(value) for key, value in fields.items()}
        self.printed.append(describe(self.members[name].fetch([tp(each) for each in partitions], **others)))

    def describe_consumers(self, *groups: str) -> list[str]:
        lines = []
        for group in self.harness.coordinator.describe_modern([*groups] or ["g"], CONSUMER_GROUPS):
            text = f"{group.group_id} {ErrorCode(group.error_code).name} {group.group_state}"
            if group.error_code:
                lines.append(f"{text} {group.error_message}")
                continue
            lines.append(f"{text} epoch={group.group_epoch} assigned={group.assignment_epoch} {group.assignor_name}")
            for m in group.members:
                has, target = (
                    " ".join(f"{t.topic_name}/{p}" for t in a.topic_partitions for p in t.partitions)
                    for a in (m.assignment, m.target_assignment)
                )
                lines.append(f"  {m.member_id} epoch={m.member_epoch} has [{has}] of [{target}]")
        return lines

    def log(self) -> None:
        for offset, key, value in self.harness.records(self._logged):
            known = isinstance(key, GroupMetadataKey | OffsetCommitKey)
            self.printed.append(f"{offset}: {describe_record(key, value) if known else recorded(key, value)}")
            self._logged = offset + 1


def owned_of(text: str) -> Owned:
    owned: Owned = {}
    for each in text.split(",") if text else ():
        topic, partition = tp(each)
        owned.setdefault(topic, set()).add(partition)
    return owned


def answered(answer: Any) -> str:
    if answer.error_code:
        return f"{ErrorCode(answer.error_code).name}: {answer.error_message}"
    assignment = "" if answer.assignment is None else f" [{listed(answer.assignment.topic_partitions)}]"
    return f"{answer.member_id} epoch={answer.member_epoch}{assignment}"


def listed(topics: Any) -> str:
    return " ".join(f"{topic.topic_id.decode().strip(chr(0))}/{p}" for topic in topics for p in topic.partitions)


def recorded(key: Any, value: Any) -> str:
    """Return a record of a consumer group as one line."""
    kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    text = f"{kind} {getattr(key, 'member_id', '')}".strip()
    match kind:
        case _ if value is None:
            return f"{text} {getattr(key, 'regular_expression', '')}".strip() + " tombstone"
        case "Metadata":
            return f"{text} epoch={value.epoch}"
        case "MemberMetadata":
            kind = "" if value.classic_member_metadata is None else " classic"
            regex = f" ~{value.subscribed_topic_regex}" if value.subscribed_topic_regex else ""
            return f"{text} {value.instance_id or '-'} {','.join(value.subscribed_topic_names)}{regex}{kind}"
        case "RegularExpression":
            return f"{text} {key.regular_expression} {','.join(value.topics)}"
        case "TargetAssignmentMetadata":
            return f"{text} epoch={value.assignment_epoch}"
        case "TargetAssignmentMember":
            return f"{text} [{listed(value.topic_partitions)}]"
    return (
        f"{text} epoch={value.previous_member_epoch}->{value.member_epoch} state={value.state}"
        f" [{listed(value.assigned_partitions)}] revokes [{listed(value.partitions_pending_revocation)}]"
    )


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = ConsumerTranscript()
    transcripts.check(path, transcripts.Interpreter(transcript.commands, transcript.drain))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
