"""Metadata of all topics is encoded once per image, a bounded part of it per turn, and its bytes are those of the message's
encoder.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from ottla.broker import encoded_metadata
from ottla.broker.encoded_metadata import (
    PARTITIONS_PER_TURN,
    VIEWS_MAX,
    AllTopics,
    EncodedMetadata,
    Rows,
    View,
    encode_in_pieces,
    encode_topic,
    metadata_encoder,
)
from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.compile import encode
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.controller.harness import DecisionHarness
from tests.manual_clock import ManualClock

VIEW = View(12, "PLAINTEXT")
PARTITIONS, TOPICS = 100, 12
TOPIC = MetadataResponseTopic(name="t", topic_id=b"i" * 16)


@pytest.mark.parametrize("count", [0, 1, 200])
@pytest.mark.parametrize("version", range(14))
def test_topics_that_are_bytes_already_make_the_same_answer(version: int, count: int) -> None:
    partition = MetadataResponsePartition(
        partition_index=3, leader_id=2, leader_epoch=5, replica_nodes=[2, 1], isr_nodes=[2]
    )
    topics = [
        MetadataResponseTopic(name=f"topic-{n}", topic_id=bytes((n % 256,)) * 16, partitions=[partition] * (n % 3))
        for n in range(count)
    ]
    answer = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=2, host="here", port=9092, rack="r")], cluster_id="c", controller_id=2
    )
    if 8 <= version <= 10:
        answer.cluster_authorized_operations = 77
    encoded = [(topic.name or "", encode_topic(topic, version)) for topic in topics]
    rows = Rows(encoded, b"".join(bytes_ for _, bytes_ in encoded))
    parts: list[bytes] = []
    metadata_encoder(version)(EncodedMetadata(answer, rows), parts)
    answer.topics = topics
    assert b"".join(parts) == encode(answer, version)
    plain: list[bytes] = []
    metadata_encoder(version)(answer, plain)
    assert plain == parts or b"".join(plain) == b"".join(parts)


@pytest.mark.parametrize("version", [0, 3, 13])
def test_a_client_that_is_throttled_has_the_time_and_others_do_not(version: int) -> None:
    head = MetadataResponse(cluster_id="c", controller_id=2)
    encoded = encode_topic(TOPIC, version)
    answer = EncodedMetadata(head, Rows([("t", encoded)], encoded))
    throttled = copy.copy(answer)
    throttled.throttle_time_ms = 250
    assert (throttled.throttle_time_ms, answer.throttle_time_ms) == (250, 0)
    for each, wait_ms in ((throttled, 250), (answer, 0)):
        parts: list[bytes] = []
        metadata_encoder(version)(each, parts)
        whole = MetadataResponse(throttle_time_ms=wait_ms, cluster_id="c", controller_id=2, topics=[TOPIC])
        assert b"".join(parts) == encode(whole, version)


class Cluster:
    """A broker's metadata and its encoded topics, in turns that the test makes."""

    def __init__(self) -> None:
        self.controller = DecisionHarness(brokers=3)
        for number in range(TOPICS):
            self.controller.topic(f"t{number}", "1 2 3", partitions=PARTITIONS)
        self.metadata = MetadataCache(1, "cluster")
        self.clock = ManualClock()
        self.encoded: list[str] = []
        self.fails = False
        self.answers: list[list[str] | None] = []
        self.all_topics = AllTopics(self.metadata, self.clock, lambda view: self.encode)
        self.publish()

    def publish(self) -> None:
        self.metadata.image = self.controller.image

    def encode(self, image: TopicImage) -> Iterator[bytes]:
        if self.fails:
            raise ZeroDivisionError
        for begin in range(0, len(image.partitions), PARTITIONS_PER_TURN):
            self.encoded.append(image.name)
            yield image.name.encode() if not begin else b"+"

    def ask(self) -> None:
        self.all_topics.when_encoded(VIEW, lambda rows: self.answers.append(rows and [name for name, _ in rows.topics]))

    def turn(self) -> int:
        """Run one turn of the loop; return how many topics were encoded in it."""
        before, due = len(self.encoded), self.clock.armed[:1]
        for timer in due:
            self.clock.call(timer)
        return len(self.encoded) - before


@pytest.mark.parametrize("version", range(14))
def test_a_topic_encoded_in_pieces_has_the_same_bytes(version: int) -> None:
    partitions = [
        MetadataResponsePartition(partition_index=n, leader_id=n % 3, replica_nodes=[1] * (n % 4), isr_nodes=[2])
        for n in range(300)
    ]
    for count, size in ((0, 10), (1, 1), (300, 128), (300, 7), (300, 300)):
        topic = MetadataResponseTopic(name="large", topic_id=b"i" * 16, is_internal=version > 0)
        pieces = [partitions[:count][begin : begin + size] for begin in range(0, count, size)]
        encoded = b"".join(encode_in_pieces(topic, count, pieces, version))
        topic.partitions = partitions[:count]
        assert encoded == encode_topic(topic, version), (count, size)


def test_a_topic_of_more_partitions_than_a_turn_has_is_encoded_in_several() -> None:
    cluster = Cluster()
    cluster.controller.topic("wide", "1 2 3", partitions=3 * PARTITIONS_PER_TURN)
    cluster.publish()
    cluster.ask()
    turns = [len(cluster.encoded)]
    while not cluster.answers:
        turns.append(cluster.turn())
    share = PARTITIONS_PER_TURN // PARTITIONS
    assert max(turns) <= share
    assert cluster.encoded.count("wide") == 3
    assert cluster.answers[0] is not None and "wide" in cluster.answers[0]


def test_no_turn_encodes_more_than_its_share_and_all_who_ask_meanwhile_share_one_pass() -> None:
    cluster = Cluster()
    share = PARTITIONS_PER_TURN // PARTITIONS
    for _ in range(20):
        cluster.ask()
    assert (len(cluster.encoded), cluster.answers) == (share, [])
    assert [cluster.turn(), cluster.turn()] == [share, TOPICS - 2 * share]
    assert len(cluster.answers) == 20
    assert all(sorted(answer or ()) == sorted(f"t{n}" for n in range(TOPICS)) for answer in cluster.answers)
    cluster.ask()
    assert (len(cluster.encoded), len(cluster.answers)) == (TOPICS, 21), "answered at once, by what is kept"


def test_a_topic_that_changes_is_encoded_alone_and_a_change_of_the_brokers_means_all() -> None:
    cluster = Cluster()
    cluster.ask()
    while cluster.turn():
        pass
    cluster.controller.topic("new", "1 2 3")
    cluster.publish()
    cluster.encoded.clear()
    cluster.ask()
    assert cluster.encoded == ["new"]
    assert cluster.answers[-1] is not None and "new" in cluster.answers[-1]
    cluster.controller.broker(4)
    cluster.publish()
    cluster.encoded.clear()
    cluster.ask()
    while cluster.turn():
        pass
    assert len(cluster.encoded) == TOPICS + 1


def test_who_asks_after_newer_metadata_arrived_is_not_answered_by_the_pass_of_before() -> None:
    cluster = Cluster()
    cluster.ask()
    cluster.controller.topic("new", "1 2 3")
    cluster.publish()
    cluster.ask()
    while cluster.turn():
        pass
    old, new = cluster.answers
    assert old is not None and new is not None
    assert ("new" in old, "new" in new) == (False, True)
    assert len(cluster.encoded) == TOPICS + 1, "what the first pass has made is used again"


def test_a_topic_that_cannot_be_encoded_leaves_no_request_waiting(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.ask()
    cluster.fails = True
    cluster.ask()
    cluster.turn()
    assert cluster.answers == [None, None]
    cluster.fails = False
    cluster.ask()
    while cluster.turn():
        pass
    assert cluster.answers[2] is not None
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_bounded_number_of_views_is_kept() -> None:
    cluster = Cluster()
    for version in range(VIEWS_MAX + 3):
        cluster.all_topics.when_encoded(View(version, "PLAINTEXT"), lambda rows: cluster.answers.append([]))
        while cluster.turn():
            pass
        assert len(cluster.all_topics._passes) <= VIEWS_MAX
    assert len(cluster.answers) == VIEWS_MAX + 3


def test_topics_that_are_kept_already_are_looked_through_in_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.ask()
    while cluster.turn():
        pass
    monkeypatch.setattr(encoded_metadata, "PARTITIONS_PER_TURN", 1)
    monkeypatch.setattr(encoded_metadata, "KEPT_PER_PARTITION", 4)
    cluster.controller.fence(3)
    cluster.publish()
    cluster.ask()
    cluster.encoded.clear()
    turns = 1
    while len(cluster.answers) < 2:
        cluster.turn()
        turns += 1
    assert turns > TOPICS // encoded_metadata.KEPT_PER_PARTITION
