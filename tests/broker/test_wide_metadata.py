"""Metadata of named topics that have more partitions than are encoded in one turn: the response is the same, made from encoded
topics that are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from ottla.server.authorization.operations import ALL, TOPIC
from tests.broker.authorization.entries import ALICE, TOPIC_REFUSED, acl
from tests.broker.authorization.entries import create as create_acl
from tests.broker.counted_node import CountedNode
from tests.broker.wire import Wire

#: The version from which requests can name topics by id.
IDS_SINCE = 12
PARTITIONS = {"wide": 7, "other": 1, "hidden": 3}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedNode]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        started = CountedNode(
            tmp_path_factory.mktemp("data"),
            monkeypatch,
            auto_create_topics_enable="false",
            authorizer_class_name=STANDARD_AUTHORIZER,
            allow_everyone_if_no_acl_found="true",
            super_users="User:root",
        )
        with started.wire() as wire:
            topics = [
                CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in PARTITIONS.items()
            ]
            assert not any(t.error_code for t in wire.request(CreateTopicsRequest(topics=topics)).topics)
            deadline = time.monotonic() + 10
            while any(p.error_code for topic in named(wire, 12, *PARTITIONS) for p in topic.partitions):
                assert time.monotonic() < deadline
            create_acl(wire, acl(TOPIC, "hidden", ALL, principal=ALICE))
            while named(wire, 12, "hidden")[0].error_code != TOPIC_REFUSED:
                assert time.monotonic() < deadline
        yield started
        started.stop()


def named(wire: Wire, version: int, *names: str, ids: tuple[bytes, ...] = ()) -> list[Any]:
    asked = [MetadataRequestTopic(name=name) for name in names]
    asked += [MetadataRequestTopic(name=None, topic_id=each) for each in ids]
    return list(wire.request(MetadataRequest(topics=asked), version).topics)


@pytest.mark.parametrize("version", range(14))
def test_topics_that_take_more_than_a_turn_are_answered_as_others_are(
    node: CountedNode, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    names = ("wide", "a b", "hidden", "other", "unheard-of", "other")
    with node.wire() as wire:
        ids = [topic.topic_id for topic in named(wire, IDS_SINCE, "wide", "other")]
        by_id = (*ids, b"?" * 16, ids[0])
        at_once = named(wire, version, *names)
        by_id_at_once = named(wire, version, ids=by_id) if version >= IDS_SINCE else []
        monkeypatch.setattr("ottla.broker.api.metadata.PARTITIONS_PER_TURN", 2)
        monkeypatch.setattr("ottla.broker.api._metadata_topics.PARTITIONS_PER_TURN", 2)
        monkeypatch.setattr("ottla.broker.encoded_metadata.PARTITIONS_PER_TURN", 2)
        assert named(wire, version, *names) == at_once
        if version >= IDS_SINCE:
            assert named(wire, version, ids=by_id) == by_id_at_once
            assert [len(topic.partitions) for topic in by_id_at_once] == [7, 1, 0]
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in at_once}
        assert (found["wide"], found["other"], found["hidden"]) == ((0, 7), (0, 1), (TOPIC_REFUSED, 0))
