"""The bytes of classic members inside a consumer group: their subscription and assignment (ConsumerProtocol)."""

from __future__ import annotations

from ottla.broker.groups.modern.assignment import Assignment
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.compile import encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.internal_topics.control_messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
)
from ottla.protocol.messages.shared_structs import TopicIdPartitions, TopicNamePartitions
from ottla.protocol.schema import info_of

#: The protocol type of consumers.
CONSUMER = "consumer"


class CustomAssignor(ProtocolError):
    """An assignment has data of an assignor of the client."""


def subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """ProtocolError if it is malformed."""
    return decode_versioned(ConsumerProtocolSubscription, metadata, newer_too=True)[0]


def owned(subscribed: ConsumerProtocolSubscription, topics: TopicsImage) -> list[TopicIdPartitions]:
    """What the member says that it has, without topics that are gone."""
    return [
        TopicIdPartitions(topic_id, each.partitions)
        for each in subscribed.owned_partitions
        if (topic_id := topics.id_of(each.topic)) is not None
    ]


def assigned(assignment: bytes, topics: TopicsImage) -> Assignment:
    """ProtocolError if it is malformed; CustomAssignor if it has data that would be lost."""
    if not assignment:
        return {}
    value = decode_versioned(ConsumerProtocolAssignment, assignment, newer_too=True)[0]
    if value.user_data:
        raise CustomAssignor("userData from a custom assignor would be lost")
    return {
        topic_id: frozenset(each.partitions)
        for each in value.assigned_partitions
        if each.partitions and (topic_id := topics.id_of(each.topic)) is not None
    }


def assignment_bytes(assignment: Assignment, topics: TopicsImage, subscription_metadata: bytes) -> bytes:
    """In the version of the member's subscription."""
    versions = info_of(ConsumerProtocolAssignment).versions
    version = min(int.from_bytes(subscription_metadata[:2], "big", signed=True), versions.high)
    value = ConsumerProtocolAssignment(
        [
            TopicNamePartitions(topic.name, sorted(partitions))
            for topic_id, partitions in sorted(assignment.items())
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
    return version.to_bytes(2, "big") + encode(value, version)


def first_protocol(metadata: ConsumerGroupMemberMetadataValue) -> tuple[str, bytes]:
    """A classic member's name and metadata of the protocol that it likes best."""
    assert metadata.classic_member_metadata is not None
    protocol = metadata.classic_member_metadata.supported_protocols[0]
    return protocol.name, bytes(protocol.metadata)
