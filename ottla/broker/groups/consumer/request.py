"""Validation of a ConsumerGroupHeartbeat that does not depend on the state of the group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.groups.consumer.member import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from ottla.broker.groups.modern.topics import check_subscription
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: From v1 on clients generate their member ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1


def validate(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= OWN_MEMBER_ID_SINCE or epoch != JOINING_EPOCH:
        _check(request.member_id.strip(), "MemberId can't be empty.")
    _check(request.group_id.strip(), "GroupId can't be empty.")
    _check(request.instance_id is None or request.instance_id.strip(), "InstanceId can't be empty.")
    _check(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _check(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        _check(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVING_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        _check(False, "MemberEpoch is invalid.")
    check_subscription(request.group_id, len(request.subscribed_topic_names or ()))
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check(is_right: object, message: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
