"""The metadata hash of a group is Kafka's: these values are those of hash4j 0.22.0, which Kafka 4.3.1 has."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.groups.modern.topics import SUBSCRIBED_TOPICS_MAX, Racks, TopicHashes, topic_hash
from ottla.controller.metadata.shared_map import Map
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage, TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinator.working_clock import TURN_MAX_NS, WorkingClock, clock
from tests.broker.groups.cluster import topics_image
from tests.manual_clock import ManualClock

__all__ = ["clock"]

ID = bytes(range(1, 17))
RACKS = {1: "rack0", 2: "rack1", 3: "äß中"}
FOO = TopicImage("foo", ID, Map({0: PartitionRegistration((2, 1), (1,)), 1: PartitionRegistration((2, 9, 3), (2,))}))
BAR = TopicImage("bar", ID, Map({0: PartitionRegistration((9,), (9,))}))
FOO_HASH, BAR_HASH, GROUP_HASH = 1845754996740986036, 6742955666226792022, 7947653812869554974


def image(*topics: TopicImage) -> TopicsImage:
    return TopicsImage(Map({topic.id: topic for topic in topics}), Map({topic.name: topic.id for topic in topics}))


def test_the_hash_of_a_topic_is_over_its_id_its_name_and_the_racks_of_its_partitions() -> None:
    assert topic_hash(FOO, Racks(RACKS.get)) == FOO_HASH
    assert topic_hash(BAR, Racks(RACKS.get)) == BAR_HASH


def test_the_hash_of_a_group_is_over_those_of_its_topics_in_the_order_of_their_names() -> None:
    # Both topics have the same id, because the values of hash4j were computed with one id.
    topics = TopicsImage(Map({b"f": FOO, b"b": BAR}), Map({"foo": b"f", "bar": b"b"}))
    hashes = TopicHashes(RACKS.get, ShardTurns(ManualClock()).loads)
    assert hashes.of_group(topics, {"foo", "bar", "missing"}) == GROUP_HASH
    assert hashes.of_group(topics, ["missing"]) == 0


def test_a_topic_is_hashed_again_when_it_has_changed() -> None:
    hashes = TopicHashes(RACKS.get, ShardTurns(ManualClock()).loads)
    before = hashes.of_group(image(FOO), ["foo"])
    grown = FOO._replace(partitions=FOO.partitions.update({2: PartitionRegistration((1,), (1,))}))
    assert hashes.of_group(image(grown), ["foo"]) != before
    assert hashes.of_group(image(FOO), ["foo"]) == before
    other_name = FOO._replace(name="fop")
    assert hashes.of_group(image(other_name), ["fop"]) != before


def test_the_topics_that_a_member_may_name_are_hashed_in_turns(clock: WorkingClock) -> None:
    many = topics_image({f"orders.in.{number:06d}": 3 for number in range(SUBSCRIBED_TOPICS_MAX)})
    hashes = TopicHashes(RACKS.get, ShardTurns(clock).loads)

    def refused() -> None:
        with pytest.raises(KafkaError) as error:
            hashes.of_group(many, many.names)
        assert error.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    clock.run(refused)
    refused()  # and does not start the work again
    clock.advance(100)
    found = []
    clock.run(lambda: found.append(hashes.of_group(many, many.names)))
    assert clock.longest_ns < TURN_MAX_NS // 2
    assert found == [TopicHashes(RACKS.get, ShardTurns(clock).loads).of_group(many, many.names, at_once=True)]
