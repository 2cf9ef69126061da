"""Replicas: who is in sync, who leads, how followers fetch."""

from __future__ import annotations

from ottla.server.config.columns import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LONG, LOW, MEDIUM, STRING
from ottla.server.config.key import ConfigKey, table
from ottla.server.config.validators import at_least

# fmt: off
REPLICATION = table(
    ConfigKey("min.insync.replicas", INT, 1, HIGH,
        "Replicas that must have a record before acks=all is answered; fewer in sync refuse it.", at_least(1), CLUSTER_WIDE),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, HIGH,
        "Let a replica that is not in sync lead when no other is left; loses records.", dynamic=CLUSTER_WIDE),
    ConfigKey("unclean.leader.election.interval.ms", LONG, 300_000, MEDIUM,
        "How often to look for partitions that need an unclean leader.", at_least(1), internal=True),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, True, HIGH,
        "Whether leadership goes back to preferred replicas by itself."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, 300, HIGH,
        "How often leadership is compared with the preferred replicas.", at_least(1)),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, True, MEDIUM, "Hand leadership over before stopping."),
    ConfigKey("num.replica.fetchers", INT, 1, HIGH, "Fetchers per source broker.", at_least(1), CLUSTER_WIDE),
    ConfigKey("replica.lag.time.max.ms", LONG, 30_000, HIGH,
        "A follower that has not caught up for this long leaves the in-sync replicas."),
    ConfigKey("replica.fetch.min.bytes", INT, 1, HIGH, "The least a follower's fetch waits for."),
    ConfigKey("replica.fetch.max.bytes", INT, 1_048_576, MEDIUM,
        "The most a follower fetches per partition, a first batch that is larger excepted.", at_least(0)),
    ConfigKey("replica.fetch.response.max.bytes", INT, 10_485_760, MEDIUM,
        "The most one answer to a follower's fetch returns, a first batch that is larger excepted.", at_least(0)),
    ConfigKey("replica.fetch.wait.max.ms", INT, 500, HIGH,
        "How long a follower's fetch may wait; keep it below replica.lag.time.max.ms."),
    ConfigKey("replica.fetch.backoff.ms", INT, 1000, MEDIUM,
        "The pause of a fetcher after an error of a partition.", at_least(0)),
    ConfigKey("replica.socket.timeout.ms", INT, 30_000, HIGH, "How long a follower waits for an answer."),
    ConfigKey("replica.socket.receive.buffer.bytes", INT, 65_536, HIGH,
        "The kernel's receive buffer of a follower's connection."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, HIGH,
        "How often high watermarks are written to disk."),
    ConfigKey("replica.selector.class", STRING, None, MEDIUM,
        "How a consumer's fetch finds its replica; the rack-aware selector of Kafka is known by its class name."),
    ConfigKey("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, MEDIUM,
        "Let an empty follower begin after what is in remote storage.", dynamic=CLUSTER_WIDE),
    ConfigKey("delete.records.purgatory.purge.interval.requests", INT, 1, MEDIUM,
        "Accepted for compatibility: finished waits leave at once."),
    ConfigKey("fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        "Accepted for compatibility: finished waits leave at once."),
    ConfigKey("producer.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        "Accepted for compatibility: finished waits leave at once."),
    ConfigKey("share.fetch.purgatory.purge.interval.requests", INT, 1000, MEDIUM,
        "Accepted for compatibility: finished waits leave at once."),
    ConfigKey("producer.id.expiration.ms", INT, 86_400_000, LOW,
        "How long an idle producer's sequence numbers are remembered.", at_least(1), CLUSTER_WIDE),
    ConfigKey("producer.id.expiration.check.interval.ms", INT, 600_000, LOW,
        "How often idle producers are looked for.", at_least(1), internal=True),
)
# fmt: on
