"""The broker configs that the group coordinator reads, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.server.config.errors import ConfigError
from ottla.server.quotas.bounds import GROUPS, Bound

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
    consumer_group_max_size: int = 2**31 - 1
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_group_assignors: Sequence[str] = ("uniform", "range")
    consumer_migration_policy: str = "BIDIRECTIONAL"
    share_group_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    streams_group_max_size: int = 2**31 - 1
    # The limit of groups per partition, which Kafka does not have.
    groups: Bound = field(default_factory=lambda: Bound(GROUPS, 100_000))
    # The heartbeat interval of a member that waits for its assignment; Kafka has none.
    waiting_heartbeat_interval_ms: int = 2**31 - 1
    # The limit of a delayed JoinGroup without a member id, which is a constant in Kafka.
    new_member_join_timeout_ms: int = 5 * MINUTE_MS

    def heartbeat_interval_ms(self, interval_ms: int, *, is_waiting: bool) -> int:
        """Returns the interval until a member's next heartbeat, of the group's `interval_ms`.

        A member that waits for partitions of others learns only by a heartbeat that they are free. With Kafka's five seconds a
        rebalance of many members takes ten: one interval until all know the target, one until the last partition is free.
        """
        return min(interval_ms, self.waiting_heartbeat_interval_ms) if is_waiting else interval_ms

    @property
    def is_upgrade_enabled(self) -> bool:
        return self.consumer_migration_policy.upper() in ("UPGRADE", "BIDIRECTIONAL")

    @property
    def is_downgrade_enabled(self) -> bool:
        return self.consumer_migration_policy.upper() in ("DOWNGRADE", "BIDIRECTIONAL")

    @property
    def is_migration_disabled(self) -> bool:
        """Whether a consumer group takes no classic members; with UPGRADE alone it takes them, though it never becomes classic again."""
        return self.consumer_migration_policy.upper() == "DISABLED"


# Field -> Kafka's name, and what one unit of that is in the field's.
PROPERTIES = {
    "group_initial_rebalance_delay_ms": ("group.initial.rebalance.delay.ms", 1),
    "group_min_session_timeout_ms": ("group.min.session.timeout.ms", 1),
    "group_max_session_timeout_ms": ("group.max.session.timeout.ms", 1),
    "group_max_size": ("group.max.size", 1),
    "offset_metadata_max_bytes": ("offset.metadata.max.bytes", 1),
    "offsets_retention_ms": ("offsets.retention.minutes", MINUTE_MS),
    "offsets_retention_check_interval_ms": ("offsets.retention.check.interval.ms", 1),
    "offsets_commit_timeout_ms": ("offsets.commit.timeout.ms", 1),
    "consumer_group_max_size": ("group.consumer.max.size", 1),
    "consumer_migration_policy": ("group.consumer.migration.policy", 1),
    "consumer_regex_refresh_interval_ms": ("group.consumer.regex.refresh.interval.ms", 1),
    "consumer_group_assignors": ("group.consumer.assignors", 1),
    "share_group_max_size": ("group.share.max.size", 1),
    "share_initialize_retry_interval_ms": ("group.share.initialize.retry.interval.ms", 1),
    "streams_group_max_size": ("group.streams.max.size", 1),
    "waiting_heartbeat_interval_ms": ("ottla.group.waiting.heartbeat.interval.ms", 1),
}


class GroupSettings(NamedTuple):
    """The settings that a group may override; the last two are of streams groups alone."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    standby_replicas: int = 0


def from_properties(value_of: Callable[[str], Any]) -> GroupCoordinatorConfig:
    """Reads the settings from parsed broker properties."""
    values = {field: value_of(name) * unit for field, (name, unit) in PROPERTIES.items()}
    values["consumer_group_assignors"] = [
        _assignor("group.consumer.assignors", ASSIGNORS, name) for name in values["consumer_group_assignors"]
    ]
    for setting, known in ONE_ASSIGNOR.items():
        names = value_of(setting)
        if len(names) != 1:
            raise ConfigError(
                setting, ",".join(names), f"{setting} must contain exactly one assignor", f"use {known[0]}"
            )
        _assignor(setting, dict.fromkeys(known, known[0]), names[0])
    return GroupCoordinatorConfig(**values, groups=Bound(GROUPS, value_of(GROUPS)))


#: Kafka's own assignors, which it takes by their classes, too.
ASSIGNORS = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
#: Groups of these kinds have one assignor, by its name or its class.
ONE_ASSIGNOR = {
    "group.share.assignors": ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"),
    "group.streams.assignors": ("sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"),
}


def _assignor(setting: str, known: Mapping[str, str], name: str) -> str:
    if name not in known:
        usable = " or ".join(dict.fromkeys(known.values()))
        raise ConfigError(setting, name, "this assignor is unknown", f"use {usable}")
    return known[name]
