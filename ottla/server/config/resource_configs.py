"""Configurations of topics, of groups, and of client-metrics subscriptions (KIP-714): tables, the broker's values for them, and rules between them.

If a topic does not set a configuration, it has the broker's value of the synonym, converted if the units differ; three
configurations without a synonym have their own defaults. A group's default is also a broker's configuration, and is within the
broker's bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import CODECS
from ottla.server import extras
from ottla.server.config.key import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    ConfigError,
    ConfigKey,
    Scope,
    Values,
    table,
)
from ottla.server.config.remote_storage import check_remote_storage
from ottla.server.config.table_places import check_table
from ottla.server.config.tables.log import LOG, REPLICATION
from ottla.server.config.tables.topic_tables import (
    CATALOG,
    FORMAT,
    LOCATION,
    TABLE_BROKER_CONFIGS,
    TABLE_TOPIC_CONFIGS,
)
from ottla.server.config.validators import (
    at_least,
    names,
    one_of,
    share_offset_reset,
    throttled_replicas,
)
from ottla.server.extras import Pattern
from ottla.storage.log_config import LogConfig

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

TABLE_PREFIX = "ottla.table."
#: Topic configurations that are a broker's configurations under another name. Type, default, text and rule come from the
#: broker's row.
OF_BROKER = {
    **{name: name for codec in CODECS if codec.has_levels for name in [f"compression.{codec.name}.level"]},
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.decompressed.message.bytes": "max.decompressed.message.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
    "remote.copy.lag.ms": "log.remote.copy.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    LOCATION: LOCATION,
    CATALOG: CATALOG,
}
#: Topic configuration -> the broker's synonyms in the order of precedence, each with the factor that converts its unit to the
#: topic's.
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    **{name: ((synonym, 1),) for name, synonym in OF_BROKER.items()},
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
}
_BROKER = LOG | REPLICATION | TABLE_BROKER_CONFIGS
_TOPIC = LogConfig()

# fmt: off
_TOPIC_ROWS = table(
    *(replace(_BROKER[synonym], name=name, importance=MEDIUM, dynamic=Scope.READ_ONLY) for name, synonym in OF_BROKER.items()),
    ConfigKey("errors.deadletterqueue.group.enable", BOOLEAN, False, MEDIUM,
        "Whether share groups may use the topic as their dead-letter queue."),
    ConfigKey("flush.ms", LONG, _TOPIC.flush_ms, MEDIUM, "The longest time a record stays unflushed.", at_least(0)),
    ConfigKey("follower.replication.throttled.replicas", LIST, [], MEDIUM,
        "Replicas whose replication is throttled on the follower, as partition:broker pairs; * means all.", throttled_replicas),
    ConfigKey("internal.segment.bytes", INT, None, MEDIUM, "The size of a segment, for tests.", internal=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, [], MEDIUM,
        "Replicas whose replication is throttled on the leader, as partition:broker pairs; * means all.", throttled_replicas),
    ConfigKey("remote.log.copy.disable", BOOLEAN, False, MEDIUM,
        "Whether copying to remote storage is off while what is there can still be read."),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, False, MEDIUM,
        "Whether switching remote storage off deletes what is there."),
    ConfigKey("remote.storage.enable", BOOLEAN, False, MEDIUM,
        "Whether segments are copied to remote storage; not to be switched off by itself."),
    ConfigKey("retention.ms", LONG, _TOPIC.retention_ms, MEDIUM, "How long records are kept; -1 means for ever.", at_least(-1)),
    ConfigKey("segment.jitter.ms", LONG, _TOPIC.segment_jitter_ms, MEDIUM,
        "The most by which the age of a segment is shortened at random.", at_least(0)),
    ConfigKey("segment.ms", LONG, _TOPIC.segment_ms, MEDIUM, "The age at which a segment is full.", at_least(1)),
)
# fmt: on
#: In the order of names, in which Kafka describes them.
TOPIC_CONFIGS = dict(sorted((_TOPIC_ROWS | TABLE_TOPIC_CONFIGS).items()))


def is_shown(name: str, overrides: Mapping[str, str]) -> bool:
    """Return whether this configuration is described for a topic that has set these.

    A topic without a table has only the configurations of Kafka's topics: clients print and copy what is described.
    """
    return name in overrides or not name.startswith(TABLE_PREFIX) or FORMAT in overrides


def topic_defaults(broker_values: Values) -> Values:
    """Return the default of every topic configuration, from the broker's parsed values."""
    defaults = {}
    for name, key in TOPIC_CONFIGS.items():
        defaults[name] = key.default
        for synonym, factor in TOPIC_SYNONYMS.get(name, ()):
            value = broker_values.get(synonym)
            if value is not None:
                # Retention in hours may be -1 (unlimited), which is not converted.
                defaults[name] = -1 if factor > 1 and value < 0 else value * factor if factor > 1 else value
                break
    return defaults


def topic_values(overrides: Mapping[str, str], broker_values: Values) -> Values:
    """Return every topic configuration's parsed value. The overrides were checked when they were stored."""
    values = dict(topic_defaults(broker_values))
    for name, text in overrides.items():
        key = TOPIC_CONFIGS.get(name)
        if key is not None:
            values[name] = key.parse(text)
    return values


def check_topic_configs(configs: Mapping[str, str], broker_values: Values) -> None:
    """Raise ConfigError if these configurations of a topic are invalid."""
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise ConfigError(name, configs[name], "", message=f"Unknown topic config name: {name}")
    values = topic_values(configs, broker_values)
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        text = f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        raise ConfigError("min.compaction.lag.ms", low, text, message=text)
    check_remote_storage(values, broker_values)
    check_table(values, broker_values)


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


#: The assignor of a group. The broker's default is a list, and its first name counts.
ASSIGNOR = "streams.assignor.name"
ASSIGNORS = "group.streams.assignors"
RACK_TAGS = "streams.rack.aware.assignment.tags"


def broker_default(name: str) -> str | None:
    """Return the broker's configuration that is the default of a group's."""
    if name == ASSIGNOR:
        return ASSIGNORS
    return None if name in WITHOUT_BROKER_DEFAULT else f"group.{name}"


def _bound(name: str, which: str) -> str:
    """Return group.share.min.session.timeout.ms for group.share.session.timeout.ms, for example."""
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.{which}.{rest.removeprefix('num.')}"


def group_values(overrides: Mapping[str, str], broker_values: Values) -> Values:
    """Return every configuration's parsed value for a group."""
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
    """Return values of a group as `group_values` does.

    But each value that the group itself has set is limited to the broker's bounds, which may be newer.
    """
    values = dict(group_values(overrides, broker_values))
    for name in overrides:
        low, high = (broker_values.get(_bound(name, which)) for which in ("min", "max"))
        values[name] = values[name] if low is None else max(low, values[name])
        values[name] = values[name] if high is None else min(high, values[name])
    return values


def check_group_configs(configs: Mapping[str, str], broker_values: Values) -> None:
    """Raise ConfigError if these configurations of a group are invalid."""
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


# fmt: off
CLIENT_METRICS_CONFIGS = table(
    ConfigKey("metrics", LIST, [], MEDIUM, "Prefixes of the metrics that clients push; * means all.", names()),
    ConfigKey("interval.ms", INT, 300_000, MEDIUM, "How often clients push their metrics."),
    ConfigKey("match", LIST, [], MEDIUM, "Which clients, as selector=pattern; all when empty.", names()),
)
# fmt: on

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Raise ConfigError if these configurations of a subscription are invalid."""
    for name, text in configs.items():
        key = CLIENT_METRICS_CONFIGS.get(name)
        if key is None:
            message = f"Unknown client metrics configuration: {name}"
            raise ConfigError(name, text, "", message=message, code=ErrorCode.INVALID_REQUEST)
        value = key.parse(text)
        if name == "interval.ms" and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            message = f"Invalid value {value} for interval.ms, interval must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
            raise ConfigError(name, value, "", message=message, code=ErrorCode.INVALID_REQUEST)
        if name == "match":
            match_patterns(value)


def match_patterns(entries: Sequence[str]) -> dict[str, Pattern]:
    """Return selector -> pattern; the pattern must match the client's whole value.

    The patterns are RE2's, which take linear time: a broker matches them with texts from clients.
    """
    patterns: dict[str, Pattern] = {}
    for entry in entries:
        selector, _, pattern = entry.partition("=")
        try:
            # Kafka splits the entry at each "=", so a pattern cannot contain one. It cannot be empty either.
            if not pattern or "=" in pattern or selector.strip() not in SELECTORS:
                raise ValueError(entry)
            patterns[selector.strip()] = extras.compiled(pattern.strip())
        except ValueError:
            message = f"Illegal client matching pattern: {entry}"
            raise ConfigError("match", entry, "", message=message) from None
    return patterns
