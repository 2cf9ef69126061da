"""The valid names of topics, and Kafka's internal topics."""

from __future__ import annotations

import re

#: 249, so that "<topic>-<partition>" with the longest suffix is still a file name of 255 bytes.
TOPIC_NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})


def is_valid_topic_name(name: str) -> bool:
    return name not in ("", ".", "..") and len(name) <= TOPIC_NAME_LENGTH_MAX and _LEGAL.match(name) is not None
