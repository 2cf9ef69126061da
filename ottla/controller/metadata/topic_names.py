"""The valid names of topics by Kafka's rules, and Kafka's internal topics."""

from __future__ import annotations

import re

from ottla.protocol.errors import ErrorCode, KafkaError

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
#: These topics have no remote storage, whatever their configuration says, because remote storage itself reads them (KIP-405).
LOCAL_TOPICS = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC, CLUSTER_METADATA_TOPIC}
#: Only this client may write to internal topics from outside: Kafka's own tools repair them under that name.
ADMIN_CLIENT_ID = "__admin_client"
NAME_LENGTH_MAX = 249  # a log directory's name is the topic's with "-<partition>" and a suffix, and 255 is the limit
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def name_fault(name: str) -> str | None:
    """Return why a topic's name is invalid, or None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def is_valid_topic_name(name: str) -> bool:
    return name_fault(name) is None


def check_name(name: str) -> None:
    fault = name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
