"""Bytes of a consumer group's records, as Kafka reads them and as older ones wrote them."""

from __future__ import annotations

from ottla.broker.groups.consumer.consumer_group import recorded_assignment
from ottla.broker.groups.group import GroupRecordCodec
from ottla.protocol.internal_topics.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTopicPartitions,
)
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness

TOPIC = bytes(16)


def test_a_member_is_not_recorded_as_one_of_the_classic_protocol() -> None:
    harness = GroupCoordinatorHarness()
    ConsumerMember(harness, "a").beat()
    values = [value for _, key, value in harness.records() if isinstance(key, ConsumerGroupMemberMetadataKey)]
    assert [value.classic_member_metadata for value in values] == [None]


def test_partitions_recorded_without_epochs_of_their_own_have_the_members() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7, assigned_partitions=[ConsumerGroupTopicPartitions(TOPIC, [0, 2])]
    )
    codec = GroupRecordCodec()
    decoded = codec.decode(*codec.encode(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value))
    assert decoded is not None
    assert isinstance(decoded[1], ConsumerGroupCurrentMemberAssignmentValue)
    assert recorded_assignment(decoded[1]).assigned == {TOPIC: {0: 7, 2: 7}}
