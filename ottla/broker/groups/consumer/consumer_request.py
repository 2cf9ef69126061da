"""Validation of a ConsumerGroupHeartbeat that does not depend on the state of the group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.groups.modern.modern_group import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.broker.groups.modern.topics import check_subscription
from ottla.broker.groups.modern_heartbeat import check, check_ids
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: From v1 on clients generate their member ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1


def validate(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    check_ids(request, has_member_id=api_version >= OWN_MEMBER_ID_SINCE or epoch != JOINING_EPOCH)
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
