"""Configurations of single groups: the table, the broker's defaults for them, and the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.server.config.columns import BOOLEAN, INT, LIST, LONG, LOW, MEDIUM, STRING
from ottla.server.config.errors import ConfigError
from ottla.server.config.key import ConfigKey, Values, table
from ottla.server.config.validators import at_least, one_of, share_offset_reset

# fmt: off
GROUP_CONFIGS = table(
    ConfigKey("consumer.session.timeout.ms", INT, 45_000, MEDIUM, "How long a member may be silent.", at_least(1)),
    ConfigKey("consumer.heartbeat.interval.ms", INT, 5000, MEDIUM, "How often members send heartbeats.", at_least(1)),
    ConfigKey("consumer.assignment.interval.ms", INT, 1000, MEDIUM,
        "The least time between two assignments.", at_least(0)),
    ConfigKey("share.session.timeout.ms", INT, 45_000, MEDIUM, "How long a member may be silent.", at_least(1)),
    ConfigKey("share.heartbeat.interval.ms", INT, 5000, MEDIUM, "How often members send heartbeats.", at_least(1)),
    ConfigKey("share.assignment.interval.ms", INT, 1000, MEDIUM,
        "The least time between two assignments.", at_least(0)),
    ConfigKey("share.record.lock.duration.ms", INT, 30_000, MEDIUM,
        "How long an acquired record stays locked.", at_least(1000)),
    ConfigKey("share.delivery.count.limit", INT, 5, MEDIUM,
        "How often a record is delivered before it is given up.", at_least(2)),
    ConfigKey("share.partition.max.record.locks", INT, 2000, MEDIUM,
        "Records of a partition that may be acquired at once.", at_least(100)),
    ConfigKey("share.auto.offset.reset", STRING, "latest", MEDIUM,
        "Where the group begins in a partition: earliest, latest, or by_duration: and an ISO 8601 duration before now.", share_offset_reset),
    ConfigKey("share.isolation.level", STRING, "read_uncommitted", MEDIUM,
        "Whether records of open and aborted transactions are delivered.", one_of("read_committed", "read_uncommitted")),
    ConfigKey("share.renew.acknowledge.enable", BOOLEAN, True, MEDIUM,
        "Whether members may renew the lock of a record."),
    ConfigKey("streams.session.timeout.ms", INT, 45_000, MEDIUM, "How long a member may be silent.", at_least(1)),
    ConfigKey("streams.heartbeat.interval.ms", INT, 5000, MEDIUM, "How often members send heartbeats.", at_least(1)),
    ConfigKey("streams.assignment.interval.ms", INT, 1000, MEDIUM,
        "The least time between two assignments.", at_least(0)),
    ConfigKey("streams.num.standby.replicas", INT, 0, MEDIUM, "Standby replicas of each task.", at_least(0)),
    ConfigKey("streams.initial.rebalance.delay.ms", INT, 3000, MEDIUM,
        "How long a new group waits for more members before its first assignment.", at_least(0)),
    ConfigKey("streams.assignor.name", STRING, None, MEDIUM,
        "The assignor of a streams group; the first of group.streams.assignors if it is not set."),
    ConfigKey("streams.rack.aware.assignment.tags", LIST, [], LOW,
        "Tags of clients by which standby tasks are spread; without effect here."),
    ConfigKey("consumer.assignor.offload.enable", BOOLEAN, True, MEDIUM,
        "Whether assignments are computed on other threads; without effect here.", internal=True),
    ConfigKey("share.assignor.offload.enable", BOOLEAN, True, MEDIUM,
        "Whether assignments are computed on other threads; without effect here.", internal=True),
    ConfigKey("streams.assignor.offload.enable", BOOLEAN, True, MEDIUM,
        "Whether assignments are computed on other threads; without effect here.", internal=True),
    ConfigKey("streams.num.warmup.replicas", INT, 2, MEDIUM, "Warm-up tasks; without effect here.", at_least(0), internal=True),
    ConfigKey("streams.acceptable.recovery.lag", LONG, 10_000, MEDIUM,
        "The lag at which a task counts as caught up; without effect here.", at_least(0), internal=True),
    ConfigKey("streams.task.offset.interval.ms", INT, 60_000, MEDIUM,
        "How often members report their tasks' offsets; without effect here.", at_least(1), internal=True),
    ConfigKey("errors.deadletterqueue.topic.name", STRING, "", MEDIUM,
        "The topic that gets the dead letters of a share group; none if it is empty."),
    ConfigKey("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, MEDIUM,
        "Whether dead letters have the key, the value and the headers of their record."),
)
# fmt: on

#: Configurations without a default on the broker.
WITHOUT_BROKER_DEFAULT = frozenset(
    {
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
        "errors.deadletterqueue.topic.name",
        "errors.deadletterqueue.copy.record.enable",
    }
)


#: Its broker's default is a list, whose first name counts.
ASSIGNOR = "streams.assignor.name"
ASSIGNORS = "group.streams.assignors"
RACK_TAGS = "streams.rack.aware.assignment.tags"


def broker_default(name: str) -> str | None:
    """Returns the broker's configuration that is the default of a group's."""
    if name == ASSIGNOR:
        return ASSIGNORS
    return None if name in WITHOUT_BROKER_DEFAULT else f"group.{name}"


def _bound(name: str, which: str) -> str:
    """group.share.session.timeout.ms -> group.share.min.session.timeout.ms"""
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.{which}.{rest.removeprefix('num.')}"


def group_values(overrides: Mapping[str, str], broker_values: Values) -> Values:
    """Returns every configuration's parsed value for a group."""
    values: dict[str, Any] = {}
    for name, key in GROUP_CONFIGS.items():
        default = broker_default(name)
        values[name] = key.default if default is None else broker_values.get(default, key.default)
        if name == ASSIGNOR:
            values[name] = broker_values[ASSIGNORS][0]
        if name in overrides:
            values[name] = key.parse(overrides[name])
    return values


def effective_group_values(overrides: Mapping[str, str], broker_values: Values) -> Values:
    """Values of a group like `group_values`, but each value that a group has of its own lies within the broker's bounds, which may be newer."""
    values = dict(group_values(overrides, broker_values))
    for name in overrides:
        low, high = (broker_values.get(_bound(name, which)) for which in ("min", "max"))
        values[name] = values[name] if low is None else max(low, values[name])
        values[name] = values[name] if high is None else min(high, values[name])
    return values


def check_group_configs(configs: Mapping[str, str], broker_values: Values) -> None:
    """Raises ConfigError if these configurations of a group are invalid."""
    for name in configs:
        if name not in GROUP_CONFIGS:
            raise ConfigError(name, configs[name], "", message=f"Unknown group config name: {name}")
    values = group_values(configs, broker_values)
    for name in configs:
        for which, word, fails in (("min", "greater", int.__lt__), ("max", "less", int.__gt__)):
            bound = broker_values.get(_bound(name, which))
            if bound is not None and fails(values[name], bound):
                text = f"{name} must be {word} than or equal to {_bound(name, which)}"
                raise ConfigError(name, values[name], text, message=text)
    if ASSIGNOR in configs and values[ASSIGNOR] not in (registered := broker_values[ASSIGNORS]):
        text = f"{ASSIGNOR} '{values[ASSIGNOR]}' is not a registered task assignor. Registered assignors are: [{', '.join(registered)}]."
        raise ConfigError(ASSIGNOR, values[ASSIGNOR], text, message=text)
    if len(set(values[RACK_TAGS])) < len(values[RACK_TAGS]):
        text = f"{RACK_TAGS} must not contain duplicate tag keys."
        raise ConfigError(RACK_TAGS, configs.get(RACK_TAGS), text, message=text)
    for protocol in ("consumer", "share", "streams"):
        heartbeat, session = f"{protocol}.heartbeat.interval.ms", f"{protocol}.session.timeout.ms"
        if values[session] <= values[heartbeat]:
            text = f"{session} must be greater than {heartbeat}"
            raise ConfigError(session, values[session], text, message=text)
