"""Dead letters on a real node: rejected records, records whose deliveries are used up, copies, and topics that cannot have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.broker.share.in_flight import RecordState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.record import Record
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.share.member import REJECT, RELEASE, set_group
from tests.broker.share.state_client import StateClient
from tests.broker.share.test_fetch_over_the_wire import Share, records_of, until
from tests.broker.wire import Wire


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    started = start_node(
        group_share_min_delivery_count_limit="2",
        errors_deadletterqueue_auto_create_topics_enable="true",
    )
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


def test_a_record_whose_deliveries_are_used_up_has_a_copy_in_a_topic_that_is_created_for_it(share: Share) -> None:
    topic = f"dlq.{share.topic}"
    set_group(
        share.wire,
        share.group,
        errors_deadletterqueue_topic_name=topic,
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
    )
    share.produce(b"bad", b"good")
    member = share.member()
    for _ in range(2):
        assert until(lambda: records_of(member, share.at))[0] == b"bad"
        assert member.acknowledge(share.at, (0, 0, [RELEASE])) == ErrorCode.NONE
    (letter,) = letters_of(share, topic, 1)
    assert letter.value == b"bad"
    assert headers_of(letter)["delivery.count"] == b"2"
    assert headers_of(letter)["message"] == b"Offset delivery count exceeded the threshold."


def test_a_topic_that_may_not_have_dead_letters_gets_none_and_the_group_goes_on(share: Share) -> None:
    share.node.create(f"dlq.{share.topic}")
    member = share.member()
    for name in (f"dlq.{share.topic}", f"letters.{share.topic}"):
        set_group(share.wire, share.group, errors_deadletterqueue_topic_name=name)
        share.produce(b"bad")
        (offset,) = until(lambda: records_of(member, share.at))
        assert member.acknowledge(share.at, (offset, offset, [REJECT])) == ErrorCode.NONE
        eventually(lambda offset=offset: is_archived(share, offset), "the record to be archived")
        assert dead_letters(share.wire, name) == []


def is_archived(share: Share, offset: int) -> bool:
    batches = StateClient(share.wire, share.group, *share.at).read().state_batches
    return (offset, RecordState.ARCHIVED) in [(batch.last_offset, batch.delivery_state) for batch in batches]


def test_a_leader_that_was_killed_writes_the_dead_letters_of_archiving_records_again(share: Share) -> None:
    """Such a leader leaves records in the state ARCHIVING (3) in `__share_group_state`."""
    topic = f"dlq.{share.topic}"
    set_group(share.wire, share.group, errors_deadletterqueue_topic_name=topic)
    share.produce(b"good", b"bad")
    state = StateClient(share.wire, share.group, *share.at)
    assert state.write((1, 1, 3, 1), state_epoch=0, leader_epoch=0, start_offset=0).error_code == ErrorCode.NONE
    assert until(lambda: records_of(share.member(), share.at)) == {0: b"good"}
    (letter,) = letters_of(share, topic, 1)
    assert headers_of(letter)["offset"] == b"1"
    assert headers_of(letter)["message"] == b"Offset rejected by client."
