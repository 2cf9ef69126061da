"""Requests of ConsumerGroupHeartbeat: which ones are valid, and what absent fields mean."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.heartbeats import check, check_ids
from ottla.broker.groups.modern.assignment import Assignment, assignment_of
from ottla.broker.groups.modern.modern_group import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.broker.groups.modern.topics import check_subscription
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: From v1 on clients generate their member ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1


def validate(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raise KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    needs_member_id = api_version >= OWN_MEMBER_ID_SINCE or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH
    check_ids(request, has_member_id=needs_member_id)
    if epoch == JOINING_EPOCH:
        check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        check(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        check(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVING_EPOCH:
        check(request.instance_id is not None, "InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        check(False, "MemberEpoch is invalid.")
    check_subscription(request.group_id, len(request.subscribed_topic_names or ()))
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True for a full request, of a member that joins or has missed responses. Its response is full, too."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def owned_in(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """Return the partitions that the member names as its own; None if the request does not have that field."""
    return None if request.topic_partitions is None else assignment_of(request.topic_partitions)


def updated(
    before: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMemberMetadataValue:
    """Return the member with the fields of the request; absent fields keep their values."""
    names, regex, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )
