"""Topic configurations: the table, their synonyms among the broker's configurations, and the rules between them.

If a topic does not set a configuration, it has its broker's value of the synonym, converted if the units differ; the three
without a synonym have a default of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.server.config.columns import BOOLEAN, DOUBLE, INT, LIST, LONG, MEDIUM, STRING
from ottla.server.config.errors import ConfigError
from ottla.server.config.key import LONG_MAX, ConfigKey, Values, table
from ottla.server.config.validators import at_least, between, gzip_level, names, one_of, throttled_replicas

# fmt: off
TOPIC_CONFIGS = table(
    ConfigKey("cleanup.policy", LIST, ["delete"], MEDIUM,
        "What happens to old records: delete, compact, or both; neither when empty.", names("compact", "delete")),
    ConfigKey("compression.type", STRING, "producer", MEDIUM,
        "How batches are compressed on disk; producer keeps what the producer sent.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    ConfigKey("compression.gzip.level", INT, -1, MEDIUM, "The gzip level, when compression.type is gzip.", gzip_level),
    ConfigKey("compression.lz4.level", INT, 9, MEDIUM, "The lz4 level, when compression.type is lz4.", between(1, 17)),
    ConfigKey("compression.zstd.level", INT, 3, MEDIUM,
        "The zstd level, when compression.type is zstd.", between(-131_072, 22)),
    ConfigKey("delete.retention.ms", LONG, 86_400_000, MEDIUM,
        "How long tombstones of a compacted topic are kept.", at_least(0)),
    ConfigKey("errors.deadletterqueue.group.enable", BOOLEAN, False, MEDIUM,
        "Whether share groups may use the topic as their dead-letter queue."),
    ConfigKey("file.delete.delay.ms", LONG, 60_000, MEDIUM,
        "The pause before files of a deleted segment are removed.", at_least(0)),
    ConfigKey("flush.messages", LONG, LONG_MAX, MEDIUM,
        "Records written to a partition before it is flushed to disk.", at_least(1)),
    ConfigKey("flush.ms", LONG, LONG_MAX, MEDIUM, "The longest time a record stays unflushed.", at_least(0)),
    ConfigKey("follower.replication.throttled.replicas", LIST, [], MEDIUM,
        "Replicas whose replication is throttled on the follower, as partition:broker pairs; * means all.", throttled_replicas),
    ConfigKey("index.interval.bytes", INT, 4096, MEDIUM, "Bytes of records between two index entries.", at_least(0)),
    ConfigKey("internal.segment.bytes", INT, None, MEDIUM, "The size of a segment, for tests.", internal=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, [], MEDIUM,
        "Replicas whose replication is throttled on the leader, as partition:broker pairs; * means all.", throttled_replicas),
    ConfigKey("local.retention.bytes", LONG, -2, MEDIUM,
        "How much is kept on the broker's own disk when there is remote storage; -2 means as retention.bytes.", at_least(-2)),
    ConfigKey("local.retention.ms", LONG, -2, MEDIUM,
        "How long records are kept on the broker's own disk when there is remote storage; -2 means as retention.ms.", at_least(-2)),
    ConfigKey("max.compaction.lag.ms", LONG, LONG_MAX, MEDIUM,
        "How long a record stays uncompacted at most.", at_least(1)),
    ConfigKey("max.decompressed.message.bytes", INT, 2_147_483_639, MEDIUM,
        "The largest batch of records after it has been decompressed.", between(1, 2_147_483_639)),
    ConfigKey("max.message.bytes", INT, 1_048_588, MEDIUM,
        "The largest batch of records, after compression.", at_least(0)),
    ConfigKey("message.timestamp.after.max.ms", LONG, 3_600_000, MEDIUM,
        "How far a producer's timestamp may be ahead of the broker's clock.", at_least(0)),
    ConfigKey("message.timestamp.before.max.ms", LONG, LONG_MAX, MEDIUM,
        "How far a producer's timestamp may be behind the broker's clock.", at_least(0)),
    ConfigKey("message.timestamp.type", STRING, "CreateTime", MEDIUM,
        "Whether records keep the producer's time (CreateTime) or get the broker's (LogAppendTime).", one_of("CreateTime", "LogAppendTime")),
    ConfigKey("min.cleanable.dirty.ratio", DOUBLE, 0.5, MEDIUM,
        "The part of a log that has to be uncleaned before it is cleaned.", between(0, 1)),
    ConfigKey("min.compaction.lag.ms", LONG, 0, MEDIUM, "How long a record stays uncompacted at least.", at_least(0)),
    ConfigKey("min.insync.replicas", INT, 1, MEDIUM,
        "Replicas that must have a record before acks=all is answered; fewer in sync refuse it.", at_least(1)),
    ConfigKey("preallocate", BOOLEAN, False, MEDIUM, "Reserve a segment's whole size when it is created."),
    ConfigKey("remote.copy.lag.bytes", LONG, -1, MEDIUM,
        "How much has to follow a segment before it is copied to remote storage; -1 means as local retention.", at_least(-1)),
    ConfigKey("remote.copy.lag.ms", LONG, 0, MEDIUM,
        "How old a full segment is before it is copied to remote storage; -1 means as local retention.", at_least(-1)),
    ConfigKey("remote.log.copy.disable", BOOLEAN, False, MEDIUM,
        "Whether copying to remote storage is off while what is there can still be read."),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, False, MEDIUM,
        "Whether switching remote storage off deletes what is there."),
    ConfigKey("remote.storage.enable", BOOLEAN, False, MEDIUM,
        "Whether segments are copied to remote storage; not to be switched off by itself."),
    ConfigKey("retention.bytes", LONG, -1, MEDIUM,
        "How large a partition may grow before its oldest segments go; -1 means no limit."),
    ConfigKey("retention.ms", LONG, 604_800_000, MEDIUM, "How long records are kept; -1 means for ever.", at_least(-1)),
    ConfigKey("segment.bytes", INT, 1_073_741_824, MEDIUM, "The size at which a segment is full.", at_least(1_048_576)),
    ConfigKey("segment.index.bytes", INT, 10_485_760, MEDIUM, "The largest index of a segment.", at_least(4)),
    ConfigKey("segment.jitter.ms", LONG, 0, MEDIUM,
        "The most by which the age of a segment is shortened at random.", at_least(0)),
    ConfigKey("segment.ms", LONG, 604_800_000, MEDIUM, "The age at which a segment is full.", at_least(1)),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, MEDIUM,
        "Let a replica that is not in sync lead when no other is left; loses records."),
)
# fmt: on

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

#: Topic configuration -> the broker's synonyms in the order of precedence, each with the factor that converts its unit to
#: the topic's.
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}


def topic_defaults(broker_values: Values) -> Values:
    """Returns the default of every topic configuration, from the broker's parsed values."""
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
    """Returns every topic configuration's parsed value. The overrides were checked before they were stored."""
    values = dict(topic_defaults(broker_values))
    for name, text in overrides.items():
        key = TOPIC_CONFIGS.get(name)
        if key is not None:
            values[name] = key.parse(text)
    return values


def check_topic_configs(
    configs: Mapping[str, str], broker_values: Values, *, before: Mapping[str, str] | None = None
) -> None:
    """Raises ConfigError if these configurations of a topic are invalid. `before`: its previous configurations."""
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise ConfigError(name, configs[name], "", message=f"Unknown topic config name: {name}")
    values = topic_values(configs, broker_values)
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        text = f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        raise ConfigError("min.compaction.lag.ms", low, text, message=text)
    had_remote = (before or {}).get("remote.storage.enable", "false").lower() == "true"
    if values["remote.storage.enable"]:
        # remote.log.storage.system.enable is rejected at start (`effects.py`): there is no tiered storage.
        text = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        raise ConfigError("remote.storage.enable", "true", text, message=text)
    if had_remote and not values["remote.log.delete.on.disable"]:
        text = (
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
            "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
            "remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )
        raise ConfigError("remote.storage.enable", "false", text, message=text)
