"""JSON as Kafka's tools write it; test_golden_messages compares all messages with Kafka's own output."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.internal_topics.control_messages import QuorumStateData
from ottla.protocol.internal_topics.metadata_records import PartitionRecord
from ottla.protocol.json_form import json_name, to_json
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import fields, info_of
from tests.protocol.arbitrary import random_message
from tests.protocol.catalog import messages, records
from tests.protocol.from_json import from_json
from tests.protocol.test_messages import Fact, facts

UUID = bytes(15) + b"\1"


def test_quorum_state_file() -> None:
    state = QuorumStateData(leader_id=1, leader_epoch=5, voted_id=2, voted_directory_id=UUID)
    data = {"leaderId": 1, "leaderEpoch": 5, "votedId": 2, "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert to_json(state, 1) == data
    assert from_json(QuorumStateData, data | {"data_version": 1}, 1) == state


def test_tagged_fields_at_their_default_are_left_out() -> None:
    assert "eligibleLeaderReplicas" not in to_json(PartitionRecord(), 2)
    assert to_json(PartitionRecord(eligible_leader_replicas=[1]), 2)["eligibleLeaderReplicas"] == [1]


def test_batches_are_shown_by_their_size() -> None:
    data = [TopicProduceData(partition_data=[PartitionProduceData(records=[memoryview(b"abc"), memoryview(b"d")])])]
    assert to_json(ProduceRequest(topic_data=data), 9)["topicData"][0]["partitionData"] == [
        {"index": 0, "recordsSizeInBytes": 4}
    ]


@pytest.mark.parametrize("cls", records().values(), ids=records())
def test_records_come_back(cls: type[Any]) -> None:
    rng = Random(5)
    for version in info_of(cls).versions.all():
        for _ in range(5):
            obj = random_message(cls, version, rng)
            assert from_json(cls, to_json(obj, version), version) == obj


def test_spelling_of_every_name() -> None:
    def check(fact: Fact) -> None:
        for nested in fact.nested:
            check(nested)
            if nested.words[0] != "struct":
                spelled = nested.words[0][0].lower() + nested.words[0][1:]
                assert spelled in known or not nested.versions("versions") & valid, spelled

    known = {json_name(name) for name in field_names()}
    for fact in facts().values():
        valid = fact.versions("versions")
        check(fact)


def field_names() -> set[str]:
    names: set[str] = set()

    def walk(cls: type[Any]) -> None:
        for own in fields(cls):
            names.add(own.name)
            struct = own.type.struct or (own.type.item and own.type.item.struct)
            if struct:
                walk(struct)

    for cls in messages().values():
        walk(cls)
    return names


def test_value_that_the_version_cannot_hold() -> None:
    with pytest.raises(UnsupportedVersion):
        to_json(HeartbeatRequest(group_instance_id="i"), 2)
    with pytest.raises(UnsupportedVersion):
        to_json(HeartbeatRequest(), 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leaderId", "1"),
        ("leaderId", True),
        ("leaderId", 2**31),
        ("leaderId", None),
        ("votedDirectoryId", "short"),
        ("votedDirectoryId", 5),
    ],
)
def test_value_of_the_wrong_kind(name: str, value: Any) -> None:
    with pytest.raises(MalformedMessage):
        from_json(QuorumStateData, to_json(QuorumStateData(), 1) | {name: value}, 1)


def test_field_missing() -> None:
    data: Any
    for data in ({}, [], {"leaderId": 1}):
        with pytest.raises(MalformedMessage):
            from_json(QuorumStateData, data, 1)
