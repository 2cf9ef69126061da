"""The valid names of topics, and Kafka's internal topics."""

from __future__ import annotations

from ottla.controller.metadata.topic_names import name_fault

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
#: Only this client may write to internal topics from outside: Kafka's own tools repair them under that name.
ADMIN_CLIENT_ID = "__admin_client"


def is_valid_topic_name(name: str) -> bool:
    return name_fault(name) is None
