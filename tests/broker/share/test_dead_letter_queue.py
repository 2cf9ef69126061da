"""Dead letters on a real node: rejected records, records whose deliveries are used up, copies, and topics that cannot have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SHARE_VERSION
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.record import Record
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.share.member import REJECT, RELEASE, ShareMember, set_group
from tests.broker.share.test_fetch_over_the_wire import Share, records_of, until
from tests.broker.wire import Wire

UPGRADE = 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    started = start_node(
        unstable_feature_versions_enable="true",
        group_share_min_delivery_count_limit="2",
        errors_deadletterqueue_auto_create_topics_enable="true",
    )
    with started.wire() as wire:
        update = FeatureUpdateKey(SHARE_VERSION, 2, upgrade_type=UPGRADE)
        answer = wire.request(UpdateFeaturesRequest(feature_updates=[update]))
        assert not answer.error_code, answer
    yield started
    stop_node(started)


@pytest.fixture
def share(node: Node) -> Iterator[Share]:
    made = Share(node)
    yield made
    made.close()


def dead_letters(wire: Wire, topic: str) -> list[Record]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    found = wire.request(request, 12).topics[0]
    if found.error_code:
        return []
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=found.topic_id, partitions=[FetchPartition(partition_max_bytes=1 << 20)])],
    )
    data = bytes(wire.request(fetch, 13).responses[0].partitions[0].records or b"")
    return [record for batch in iter_batches(data) for record in batch.records()]


def letters_of(share: Share, topic: str, count: int) -> list[Record]:
    eventually(lambda: len(dead_letters(share.wire, topic)) >= count, f"{count} dead letters")
    return dead_letters(share.wire, topic)


def headers_of(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


def test_rejected_records_have_dead_letters_with_kafkas_headers(share: Share) -> None:
    topic = f"dlq.{share.topic}"
    share.node.create(topic, errors_deadletterqueue_group_enable="true")
    set_group(share.wire, share.group, errors_deadletterqueue_topic_name=topic)
    share.produce(b"good", b"bad", b"worse")
    member = share.member()
    until(lambda: records_of(member, share.at))
    assert member.acknowledge(share.at, (0, 0, [1]), (1, 2, [REJECT])) == ErrorCode.NONE
    letters = letters_of(share, topic, 2)
    assert [(letter.key, letter.value) for letter in letters] == [(None, None)] * 2
    assert [headers_of(letter) for letter in letters] == [
        {
            "topic": share.topic.encode(),
            "partition": b"0",
            "offset": offset,
            "group": share.group.encode(),
            "delivery.count": b"1",
            "message": b"Offset rejected by client.",
        }
        for offset in (b"1", b"2")
    ]
    assert not records_of(member, share.at)
