"""A segment of `__consumer_offsets` that Apache Kafka 4.3.1 wrote while members lived: this coordinator goes on with its
groups.

`python -m tests.compat.group_logs` records it; `make compat` has each go on with what the other wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group_descriptions import CONSUMER_GROUPS
from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.modern.assignment import assignment_of, partitions_of
from ottla.controller.metadata.shared_map import Map
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage, TopicsImage
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.records.batch import iter_batches
from tests.broker.groups.consumer.described import described
from tests.broker.groups.harness import TP, GroupCoordinatorHarness

DATA = Path(__file__).with_name("data")
SEGMENT, SAID = DATA / "kafka_segment.log", DATA / "kafka_segment.txt"
PARTITIONS = {"t": 4, "u1": 1, "u2": 2}
GROUPS = ["names", "expressions", "mixed"]


class KafkasGroups(GroupCoordinatorHarness):
    """A harness whose topics have the ids of Kafka's cluster."""

    def __init__(self) -> None:
        lines = SAID.read_text().splitlines()
        self.said = [line for line in lines if not line.startswith("topic ")]
        partition = PartitionRegistration((1,), (1,))
        topics = [
            TopicImage(name, bytes.fromhex(topic_id), Map(dict.fromkeys(range(PARTITIONS[name]), partition)))
            for _, name, topic_id in (line.split() for line in lines if line.startswith("topic "))
        ]
        self.kafkas = TopicsImage(Map({t.id: t for t in topics}), Map({t.name: t.id for t in topics}))
        super().__init__()
        for view in iter_batches(SEGMENT.read_bytes()):
            self.log.append(TP, bytes(view.buffer))
        self.restart()

    def topics_image(self) -> TopicsImage:
        return self.kafkas

    def rack_of(self, broker_id: int) -> str | None:
        """Return no rack: the only broker of Kafka's cluster had none."""
        return None

    def says(self) -> list[str]:
        def offsets_of(group_id: str) -> list[tuple[str, int, int]]:
            topics = self.shard.offsets.of_group(group_id).items()
            return [(topic, p, offset.offset) for topic, partitions in topics for p, offset in partitions.items()]

        groups: Any = self.coordinator.describe_modern(GROUPS, CONSUMER_GROUPS)
        return described(groups, offsets_of)


def test_every_group_is_as_kafka_described_it() -> None:
    harness = KafkasGroups()
    assert harness.shard.unreadable == {}
    assert harness.says() == harness.said


def test_the_metadata_hash_of_each_group_is_the_one_that_kafka_recorded() -> None:
    harness = KafkasGroups()
    hashes = harness.shard.cluster.hashes
    for group in harness.shard.groups_of(ConsumerGroup):
        assert group.metadata_hash == hashes.of_group(harness.kafkas, group.subscribed_topics({})) != 0


def test_members_go_on_in_their_epochs_with_what_they_have() -> None:
    harness = KafkasGroups()
    for group in harness.shard.groups_of(ConsumerGroup):
        for member in group.members.values():
            answer: Any
            if member.is_classic:
                request = HeartbeatRequest(group.group_id, member.current.epoch, member.member_id)
                answer = harness.coordinator.heartbeat(request)
            else:
                beat = ConsumerGroupHeartbeatRequest(group.group_id, member.member_id, member.current.epoch)
                answer = harness.coordinator.consumer_heartbeat(beat, Client(1, "wire", "/127.0.0.1"))
                assert answer.member_epoch == member.current.epoch
                assert assignment_of(answer.assignment.topic_partitions) == partitions_of(member.current.assigned)
            assert not answer.error_code, answer
    assert harness.says() == harness.said
