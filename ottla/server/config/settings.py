"""The settings that Kafka does not have, and the way in which a component reads its settings, both Kafka's and these.

Settings of one component are a dataclass whose fields name their properties: each is declared once, and all are read in one way.

    @dataclass(frozen=True, slots=True)
    class TransactionConfig:
        transaction_max_timeout_ms: int = setting("transaction.max.timeout.ms")

    read(TransactionConfig, configs.__getitem__)

Type, default and rule of a property are in its table: Kafka's properties in broker.py, Ottla's here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from ottla.protocol.releases import RELEASES, UnknownRelease, release_name
from ottla.server.config.broker import key_of
from ottla.server.config.key import ConfigError, ConfigKey, Importance, Type, Values, table
from ottla.server.config.validators import at_least, one_of


def known_release(name: str, value: str) -> None:
    """Check that there is a table for a release. Raises ConfigError with the existing ones."""
    try:
        release_name(value)
    except UnknownRelease as unknown:
        raise ConfigError(name, value, str(unknown)) from None


#: The properties that only Ottla has, each with its reason. They are set in the same files, but are not described to clients.
OWN_CONFIGS = table(
    ConfigKey("cluster.id", Type.STRING, None, Importance.MEDIUM,
        "The id of the cluster. In Kafka `kafka-storage format` sets it; here a node formats an empty directory."),
    ConfigKey("ottla.admin.listener", Type.STRING, None, Importance.LOW,
        "HOST:PORT where /healthz, /readyz and /metrics are served over HTTP; nowhere by default, 0.0.0.0:9644 in a container. "
        "Everybody who reaches it may read it."),
    ConfigKey("ottla.admin.story", Type.STRING, None, Importance.LOW,
        "Who gets /story from the admin listener, which names members, clients and their hosts: off (no one), local (who connects from this "
        "machine) or all. By default local, and off where authorizer.class.name is set: there not everybody may describe a group.",
        one_of("off", "local", "all")),
    ConfigKey("ottla.advertised.release", Type.STRING, next(iter(RELEASES)), Importance.MEDIUM,
        "The release of Apache Kafka whose API versions, features and configurations clients find here, no more and no fewer; new "
        "clusters get its metadata.version. Nodes beside Apache Kafka's need the release of those.", known_release),
    ConfigKey("ottla.clock.jump.hold.ms", Type.LONG, 3_600_000, Importance.LOW,
        "How long a wall clock that has jumped by more than a minute against the monotonic clock must stay so before retention by time, "
        "compaction and the expiration of offsets and producers go by it. A restart of the broker ends it, too.", at_least(0)),
    ConfigKey("ottla.delegation.token.other.secret.key", Type.PASSWORD, None, Importance.LOW,
        "Another key by which delegation tokens are valid, so that delegation.token.secret.key can be replaced node by node."),
    ConfigKey("ottla.fetch.pacing.enable", Type.BOOLEAN, True, Importance.LOW,
        "Whether a librdkafka consumer that pauses for fetch.queue.backoff.ms because its queue is full gets a backlog as fast as its "
        "application takes it, and no faster."),
    ConfigKey("ottla.format.empty.directories", Type.BOOLEAN, False, Importance.LOW,
        "Whether a controller formats its empty directories by itself although the quorum has other voters. A disk that is not mounted is "
        "an empty directory, too: committed metadata can be lost. `ottla dev`, ottla.testing and containers set it."),
    ConfigKey("ottla.groups.per.partition.max", Type.INT, 100_000, Importance.LOW,
        "Groups that a broker keeps of one partition of __consumer_offsets; a client of one more gets POLICY_VIOLATION.", at_least(1)),
    ConfigKey("ottla.client.telemetry.always.advertised", Type.BOOLEAN, False, Importance.LOW,
        "Whether ApiVersions lists GetTelemetrySubscriptions and PushTelemetry although no client-metrics subscription exists. Otherwise "
        "it lists them to connections that come after the first one was made."),
    ConfigKey("ottla.group.waiting.heartbeat.interval.ms", Type.INT, 1_000, Importance.LOW,
        "The interval that a member of a consumer or streams group is given while it waits for its assignment, if that is shorter "
        "than the group's: it learns by its next heartbeat what others gave up.", at_least(1)),
    ConfigKey("ottla.lost.connection.grace.ms", Type.LONG, 100, Importance.LOW,
        "How long the active controller waits before it fences a broker whose connection for heartbeats broke. Ottla's brokers send "
        "a heartbeat at once on a new connection; Apache Kafka's wait for broker.heartbeat.interval.ms, so that a cluster that has "
        "some needs more than that here (3000 with Kafka's defaults).", at_least(0)),
    ConfigKey("ottla.transactional.ids.per.partition.max", Type.INT, 100_000, Importance.LOW,
        "Transactional ids that a broker keeps of one partition of __transaction_state; a client of one more gets POLICY_VIOLATION.",
        at_least(1)),
    ConfigKey("ottla.producer.ids.per.partition.max", Type.INT, 1_000_000, Importance.LOW,
        "Producer ids that a leader remembers of one partition (they expire after producer.id.expiration.ms); the first batch of one "
        "more gets POLICY_VIOLATION.", at_least(1)),
    ConfigKey("ottla.metrics.port", Type.INT, None, Importance.LOW,
        "A port of 127.0.0.1 at which to serve metrics to Prometheus; nowhere by default. Kafka leaves this to a JVM agent. For other "
        "addresses there is ottla.admin.listener, whose /metrics has the same."),
    ConfigKey("ottla.metrics.partitions.max", Type.INT, 10_000, Importance.LOW,
        "How many partitions have samples of their own at /metrics. Each has 14, of 0.9 KB together; of further ones only the sums count them.",
        at_least(0)),
    ConfigKey("ottla.peer.detours", Type.STRING, "", Importance.LOW,
        "For tests and local clusters only: HOST:PORT=HOST:PORT,... where this node goes instead when it connects to another node. "
        "`ottla.testing` puts proxies there whose connections it can cut; a cut needs neither root nor a firewall then. "
        "`ottla dev` has the addresses of earlier starts there, and `ottla fork` those of its cluster: the metadata has them until all have "
        "registered."),
    ConfigKey("ottla.produce.validate.records", Type.BOOLEAN, False, Importance.MEDIUM,
        "Whether every record of a produced batch is decoded and checked, as Kafka does. By default only the header, the CRC, "
        "the size, the sequence and compressed frames are, and the records where the topic's configuration needs them."),
    ConfigKey("ottla.tier.location", Type.STRING, None, Importance.MEDIUM,
        "The path or address (s3://, gs://, az://) below which segments lie where remote.log.storage.system.enable is true. All brokers "
        "must reach the same place. Without it rsm.config.dir of Kafka's LocalTieredStorage is taken."),
    ConfigKey("ottla.tier.call.timeout.ms", Type.LONG, 300_000, Importance.LOW,
        "After this time a call of the store of remote segments has failed. The copy of one segment is one call.", at_least(1)),
    ConfigKey("ottla.tier.orphan.age.ms", Type.LONG, 86_400_000, Importance.LOW,
        "Objects in the store of remote segments that no record names are deleted once they are so old: brokers that died in the middle of "
        "a copy have left them. The store is listed four times in that time.", at_least(1000)),
    ConfigKey("ottla.tier.cache.directory", Type.STRING, "", Importance.LOW,
        "A folder, which is no log directory, for a cache of what is read from the store of remote segments: many consumers of old records "
        "then ask the store once. Without it 64 MiB in memory are the whole cache. A start empties it."),
    ConfigKey("ottla.tier.cache.bytes", Type.LONG, 1 << 30, Importance.LOW, "The size of that cache.", at_least(0)),
    ConfigKey("ottla.ready.in.sync.timeout.ms", Type.LONG, 600_000, Importance.LOW,
        "How long after its start a broker is not ready because its replicas are not in sync yet. An orchestrator that updates node by "
        "node stops the next one when this one is ready.", at_least(0)),
)  # fmt: skip


def own_values(static: Mapping[str, str]) -> Values:
    """Return each setting's value. Raises ConfigError for an invalid one."""
    return {name: key.parse(static[name]) if name in static else key.default for name, key in OWN_CONFIGS.items()}


T = TypeVar("T")

PROPERTY = "property"
CONVERT = "convert"


def setting(name: str, convert: Callable[[Any], Any] = lambda value: value, **default: Any) -> Any:
    """Return a field that is read from a property.

    The property's default is also the field's, unless `default` is given. `convert` makes the field's value from the
    property's: another unit, or an object.
    """
    if not default:
        key = key_of(name) or OWN_CONFIGS[name]
        default = {"default_factory": lambda: convert(key.default)}
    return field(**default, metadata={PROPERTY: name, CONVERT: convert})


def read(kind: Callable[..., T], value_of: Callable[[str], Any], **others: Any) -> T:
    """Return the settings from the parsed properties. Fields without a property are in `others`, or keep their defaults."""
    named: Any = kind
    settings = {
        each.name: each.metadata[CONVERT](value_of(each.metadata[PROPERTY]))
        for each in fields(named)
        if PROPERTY in each.metadata
    }
    return kind(**settings, **others)
