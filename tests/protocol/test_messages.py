"""Every declaration against Kafka's specifications, field by field (data/message_facts.txt, see tools/make_facts.py)."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ottla.protocol.messages
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.json_form import json_name
from ottla.protocol.schema import UNSET, ZERO_UUID, Field, WireType, fields, info_of, parse_versions
from tests.protocol.catalog import DATA, messages

CODE_LINES_MAX = 3_000
WIRE_NAMES = {"string": "str", "records": "Records"}


@dataclass
class Fact:
    """A line of the file and the lines nested in it."""

    words: list[str]
    nested: list[Fact] = field(default_factory=list)

    def get(self, key: str) -> str | None:
        return next((word.removeprefix(f"{key}=") for word in self.words if word.startswith(f"{key}=")), None)

    def versions(self, key: str) -> set[int]:
        text = self.get(key)
        return (
            set() if text is None else set(parse_versions(text)._replace(high=min(parse_versions(text).high, 99)).all())
        )


@cache
def facts(file: str = "message_facts.txt") -> dict[str, Fact]:
    tops: dict[str, Fact] = {}
    open_facts: list[Fact] = []
    for line in (DATA / file).read_text().splitlines():
        depth = len(line) - len(line.lstrip())
        fact = Fact(line.split())
        open_facts = [*open_facts[:depth], fact]
        if depth:
            open_facts[depth - 1].nested.append(fact)
        else:
            tops[fact.words[1]] = fact
    return tops


def test_there_is_a_class_for_every_message_and_no_other() -> None:
    assert messages().keys() == facts().keys()


@pytest.mark.parametrize("name", facts())
def test_declaration_says_what_the_specification_says(name: str) -> None:
    fact, cls = facts()[name], messages()[name]
    info = info_of(cls)
    key = fact.get("key")
    assert info.key == (None if key is None else int(key))
    present = fact.versions("versions")
    assert present == {version for version in info.versions.all() if version not in before_4_0(cls)}
    assert str(info.flexible) == fact.get("flexible")
    common = {nested.words[1]: nested.nested for nested in fact.nested if nested.words[0] == "struct"}
    check_struct(cls, [nested for nested in fact.nested if nested.words[0] != "struct"], present, common)


def before_4_0(cls: type[Any]) -> range:
    """Return the versions of a message that Kafka 4.0 removed (KIP-896), and that are here for clients of older releases."""
    key = info_of(cls).key
    if key is None or not cls.__name__.endswith(("Request", "Response")):
        return range(0)
    return range(APIS[ApiKey(key)].oldest, APIS[ApiKey(key)].min_version)


OLDER = facts("older_message_facts.txt")


def test_older_versions_are_those_of_apache_kafka_3_9() -> None:
    ours = {name: list(before_4_0(cls)) for name, cls in messages().items() if before_4_0(cls)}
    assert ours == {
        name: [v for v in fact.versions("versions") if v < min(facts()[name].versions("versions"))]
        for name, fact in OLDER.items()
    }


@pytest.mark.parametrize("name", OLDER)
def test_an_older_version_is_what_its_specification_says(name: str) -> None:
    fact, cls = OLDER[name], messages()[name]
    assert str(info_of(cls).flexible) == fact.get("flexible")
    check_fields(cls, fact.nested, set(before_4_0(cls)))


def check_fields(cls: type[Any], specified: list[Fact], present: set[int]) -> None:
    """Check the names, types and versions of fields. Facts about defaults are not sent over the network."""
    specified = [fact for fact in specified if fact.versions("versions") & present]
    own_fields = [own for own in fields(cls) if any(version in own.versions for version in present)]
    assert [json_name(own.name).lower() for own in own_fields] == [fact.words[0].lower() for fact in specified]
    for own, fact in zip(own_fields, specified, strict=True):
        where, versions = f"{cls.__name__}.{own.name}", fact.versions("versions") & present
        assert fact.words[1] in wire_names(own.type), where
        assert {version for version in present if version in own.versions} == versions, where
        assert nullable(own) & versions == fact.versions("nullable") & versions, where
        assert own.tag is None, where
        struct = own.type.struct or (own.type.item and own.type.item.struct)
        if struct:
            check_fields(struct, fact.nested, versions)


def check_struct(cls: type[Any], specified: list[Fact], present: set[int], common: dict[str, list[Fact]]) -> None:
    """Compare a struct with Kafka's facts; `present` are the versions of the message in which it appears, and only these count."""
    specified = [fact for fact in specified if fact.versions("versions") & present]
    own_fields = [own for own in fields(cls) if any(version in own.versions for version in present)]
    assert [json_name(own.name).lower() for own in own_fields] == [fact.words[0].lower() for fact in specified]
    for own, fact in zip(own_fields, specified, strict=True):
        where = f"{cls.__name__}.{own.name}"
        versions = fact.versions("versions") & present
        assert fact.words[1] in wire_names(own.type), where
        assert {version for version in present if version in own.versions} == versions, where
        assert nullable(own) & versions == fact.versions("nullable") & versions, where
        assert own.tag == (None if fact.get("tag") is None else int(fact.get("tag") or 0)), where
        assert own.default == expected_default(own, fact), where
        if versions != present:  # a field that always exists is never dropped
            assert own.ignorable == ("ignorable" in fact.words), where
        struct = own.type.struct or (own.type.item and own.type.item.struct)
        if struct:
            check_struct(struct, fact.nested or common[fact.words[1].removeprefix("[]")], versions, common)


def nullable(own: Field) -> set[int]:
    return {version for version in range(100) if version in own.nullable}


def wire_names(wire_type: WireType) -> set[str]:
    """Kafka's names of the type: one, or that of each message that shares the struct."""
    if wire_type.item:
        return {f"[]{name}" for name in wire_names(wire_type.item)}
    if wire_type.struct:
        # a struct name that request and response use for different things has Request or Response at its end, and
        # records that share a file distinguish their structs by other names
        own = wire_type.struct.__name__
        return {RENAMED.get(own, own), *SHARED.get(own, "").split()}
    return {{own: kafka for kafka, own in WIRE_NAMES.items()}.get(wire_type.name, wire_type.name)}


RENAMED = {
    f"{name}{suffix}": name
    for suffix in ("Request", "Response")
    for name in (
        "DirectoryData", "EntryData", "PartitionData", "PartitionSnapshot", "SnapshotId", "TopicData", "TopicSnapshot"
    )
} | {
    "ConsumerGroupTopicPartitions": "TopicPartitions",
    "CurrentTaskIds": "TaskIds",
    "LeaderChangeVoter": "Voter",
    "QuorumVoter": "Voter",
    "ShareTopicInfo": "TopicInfo",
}  # fmt: skip


#: Kafka has these structs once in each message, under these names.
SHARED = {
    "AcknowledgePartition": "FetchPartition",
    "AcknowledgeTopic": "FetchTopic",
    "ClassicProtocol": "JoinGroupRequestProtocol",
    "CurrentLeader": "LeaderIdAndEpoch",
    "Feature": "BrokerFeature ControllerFeature",
    "KeyValue": "LastAssignmentConfig TopicConfig",
    "Listener": "BrokerEndpoint ControllerEndpoint Endpoint LeaderEndpoint",
    "PartitionErrorCode": "AlterReplicaLogDirPartitionResult OffsetCommitResponsePartition OffsetDeleteResponsePartition "
    "PartitionData TxnOffsetCommitResponsePartition WritableTxnMarkerPartitionResult",
    "PartitionIndex": "OffsetDeleteRequestPartition PartitionData",
    "ReadStatePartition": "PartitionData",
    "ReadStateTopic": "ReadStateData ReadStateSummaryData",
    "SharePartitionResult": "PartitionResult",
    "ShareStateResult": "DeleteStateResult InitializeStateResult WriteStateResult",
    "TokenPrincipal": "CreatableRenewers DescribeDelegationTokenOwner DescribedDelegationTokenRenewer",
    "TopicIdAssignment": "Assignment",
    "TopicIdPartitions": "ForgottenTopic TopicPartition TopicPartitions",
    "TopicNamePartitions": "DescribableLogDirTopic TopicData TopicPartition TopicPartitions",
    "TopicPartitionErrors": "OffsetDeleteResponseTopic WritableTxnMarkerTopicResult",
    "TopicPartitionIndexes": "ListPartitionReassignmentsTopics OffsetFetchRequestTopic "
    "TopicRequest WritableTxnMarkerTopic",
    "TopicPartitions": "TopicPartitionsInfo",
}  # fmt: skip


def expected_default(own: Field, fact: Fact) -> Any:
    text, kind = fact.get("default"), fact.words[1]
    default = None if text is None else json.loads(text)
    if kind.startswith("[]") or kind[0].isupper():
        return None if default == "null" else UNSET
    if kind == "records":
        return None if own.nullable else b""
    if default == "null":
        return None
    if kind == "bool":
        return default in (True, "true")
    if kind in ("string", "bytes", "uuid"):
        return default or {"string": "", "bytes": b"", "uuid": ZERO_UUID}[kind]
    return int(str(default or 0), 0)


def test_all_apis_together_stay_short() -> None:
    """The whole wire should be readable in an afternoon; docstrings do not count."""
    assert sum(code_lines(path) for path in Path(ottla.protocol.messages.__path__[0]).glob("*.py")) < CODE_LINES_MAX


def code_lines(path: Path) -> int:
    text = path.read_text()
    docstring = ast.parse(text).body[0]
    rest = text.splitlines()[docstring.end_lineno :]
    return sum(1 for line in rest if line.strip() and not line.strip().startswith("#"))
