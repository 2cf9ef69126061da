"""What the group coordinator reads of the broker's configuration, under Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    # Not a setting in Kafka either: how long a JoinGroup without a member id may be parked.
    new_member_join_timeout_ms: int = 5 * MINUTE_MS


def from_properties(values: Mapping[str, Any]) -> GroupCoordinatorConfig:
    """From parsed broker properties by their Kafka names; what is absent keeps its default."""
    default = GroupCoordinatorConfig()
    return GroupCoordinatorConfig(
        values.get("group.initial.rebalance.delay.ms", default.group_initial_rebalance_delay_ms),
        values.get("group.min.session.timeout.ms", default.group_min_session_timeout_ms),
        values.get("group.max.session.timeout.ms", default.group_max_session_timeout_ms),
        values.get("group.max.size", default.group_max_size),
        values.get("offset.metadata.max.bytes", default.offset_metadata_max_bytes),
        values.get("offsets.retention.minutes", default.offsets_retention_ms // MINUTE_MS) * MINUTE_MS,
        values.get("offsets.retention.check.interval.ms", default.offsets_retention_check_interval_ms),
        values.get("offsets.commit.timeout.ms", default.offsets_commit_timeout_ms),
    )
