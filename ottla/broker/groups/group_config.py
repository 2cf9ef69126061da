"""The broker configs that the group coordinator reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.protocol.slotted import frozen
from ottla.server.client_bounds import GROUPS, Bound
from ottla.server.config.key import ConfigError
from ottla.server.config.settings import read, setting

MINUTE_MS = 60_000


#: Kafka's own assignors, which it takes by their classes, too.
ASSIGNORS = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
#: Each of these kinds of groups has a single assignor, which is given by its name or its class.
ONE_ASSIGNOR = {
    "group.share.assignors": ("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"),
    "group.streams.assignors": ("sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"),
}


def _assignor(setting: str, known: Mapping[str, str], name: str) -> str:
    if name not in known:
        usable = " or ".join(dict.fromkeys(known.values()))
        raise ConfigError(setting, name, "this assignor is unknown", f"use {usable}")
    return known[name]


def _consumer_assignors(names: Sequence[str]) -> Sequence[str]:
    return [_assignor("group.consumer.assignors", ASSIGNORS, name) for name in names]


@frozen
class GroupCoordinatorConfig:
    group_initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms")
    group_min_session_timeout_ms: int = setting("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = setting("group.max.session.timeout.ms")
    group_max_size: int = setting("group.max.size")
    offset_metadata_max_bytes: int = setting("offset.metadata.max.bytes")
    offsets_retention_ms: int = setting("offsets.retention.minutes", lambda minutes: minutes * MINUTE_MS)
    offsets_retention_check_interval_ms: int = setting("offsets.retention.check.interval.ms")
    offsets_commit_timeout_ms: int = setting("offsets.commit.timeout.ms")
    consumer_group_max_size: int = setting("group.consumer.max.size")
    consumer_regex_refresh_interval_ms: int = setting("group.consumer.regex.refresh.interval.ms")
    consumer_group_assignors: Sequence[str] = setting("group.consumer.assignors", _consumer_assignors)
    consumer_migration_policy: str = setting("group.consumer.migration.policy")
    share_group_max_size: int = setting("group.share.max.size")
    share_initialize_retry_interval_ms: int = setting("group.share.initialize.retry.interval.ms")
    streams_group_max_size: int = setting("group.streams.max.size")
    # The limit of groups per partition, which Kafka does not have.
    groups: Bound = setting(GROUPS, partial(Bound, GROUPS))
    # The heartbeat interval of a member that waits for its assignment; Kafka has none, and only a broker sets it.
    waiting_heartbeat_interval_ms: int = setting("ottla.group.waiting.heartbeat.interval.ms", default=2**31 - 1)
    # The limit of a delayed JoinGroup without a member id, which is a constant in Kafka.
    new_member_join_timeout_ms: int = 5 * MINUTE_MS

    def heartbeat_interval_ms(self, interval_ms: int, *, is_waiting: bool) -> int:
        """Return the interval until a member's next heartbeat, which is at most the group's `interval_ms`.

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
        """Return whether a consumer group takes no classic members; with UPGRADE alone it takes them, though it never becomes classic again."""
        return self.consumer_migration_policy.upper() == "DISABLED"


class GroupSettings(NamedTuple):
    """The settings that a group may override; the last two are of streams groups alone."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    standby_replicas: int = 0


def from_properties(value_of: Callable[[str], Any]) -> GroupCoordinatorConfig:
    """Read the settings, and check those that have one possible value."""
    for name, known in ONE_ASSIGNOR.items():
        names = value_of(name)
        if len(names) != 1:
            raise ConfigError(name, ",".join(names), f"{name} must contain exactly one assignor", f"use {known[0]}")
        _assignor(name, dict.fromkeys(known, known[0]), names[0])
    return read(GroupCoordinatorConfig, value_of)
