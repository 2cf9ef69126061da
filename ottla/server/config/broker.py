"""All configurations of a node: the tables of `tables/` combined, the rules for names that are not in them, and names in a properties file.

A server.properties written for Kafka is accepted, and DescribeConfigs shows what Kafka would show. Most properties are used.
Those in the tables of effects here are not:

    rejected      ignoring it would weaken a protection that the operator relies on: the node does not start with it
    no effect     the node accepts Kafka's property and describes it to clients, but does not use it: named in one line at start

Every other name in the tables is used; tests/rules/test_config_effects.py checks that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ottla.server.config.key import CLUSTER_WIDE, LONG, LONG_MAX, MEDIUM, ConfigError, ConfigKey, Scope, table, to_text
from ottla.server.config.tables.groups import GROUPS, TRANSACTIONS
from ottla.server.config.tables.log import LOG, REPLICATION
from ottla.server.config.tables.node import NETWORK, NODE
from ottla.server.config.tables.operations import OPERATIONS, REMOTE
from ottla.server.config.tables.security import SASL, SSL
from ottla.server.config.tables.topic_tables import TABLE_BROKER_CONFIGS
from ottla.server.config.validators import at_least

BROKER_CONFIGS: dict[str, ConfigKey] = {
    **NODE, **NETWORK, **LOG, **REPLICATION, **GROUPS, **TRANSACTIONS, **SSL, **SASL, **REMOTE, **OPERATIONS,
    **TABLE_BROKER_CONFIGS,
}  # fmt: skip

# fmt: off
#: These can be set at run time only; they are not in properties files, and DescribeConfigs has them only if they are set.
DYNAMIC_ONLY = table(
    ConfigKey("leader.replication.throttled.rate", LONG, LONG_MAX, MEDIUM,
        "What leaders send to throttled replicas per second at most.", at_least(0), CLUSTER_WIDE),
    ConfigKey("follower.replication.throttled.rate", LONG, LONG_MAX, MEDIUM,
        "What throttled replicas fetch per second at most.", at_least(0), CLUSTER_WIDE),
    ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, MEDIUM,
        "What moves between log directories copy per second at most.", at_least(0), CLUSTER_WIDE),
)
# fmt: on

#: listener.name.<listener>.<configuration>, or listener.name.<listener>.<mechanism>.<configuration>.
LISTENER_PREFIX = re.compile(r"listener\.name\.([^.]*)\.(.*)")
#: These properties may have a SASL mechanism between the listener and the name.
MECHANISM_CONFIGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
#: These are per-broker in their table, but cluster-wide with a listener's prefix.
CLUSTER_LEVEL_LISTENER_CONFIGS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})

#: Names of the same configuration in other units, or older names, in the order of precedence.
SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS = {name: names for names in SYNONYMS for name in names if name != "log.flush.scheduler.interval.ms"}


def base_name(name: str) -> str:
    """Return a name without its listener's (and mechanism's) prefix."""
    match = LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return name
    rest = match.group(2)
    return next((config for config in MECHANISM_CONFIGS if rest.endswith(config)), rest)


def synonyms(name: str) -> tuple[str, ...]:
    """Return all names with which the value of `name` may be set, in the order of precedence."""
    base = base_name(name)
    return (name, base) if base != name else _SYNONYMS.get(name, (name,))


def key_of(name: str) -> ConfigKey | None:
    """Return the row of a name, without its listener's prefix if it has one."""
    return BROKER_CONFIGS.get(name) or DYNAMIC_ONLY.get(name) or BROKER_CONFIGS.get(base_name(name))


#: The authorizer's own configurations. As in Kafka they are not in the node's table.
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
AUTHORIZER_CONFIGS = frozenset({SUPER_USERS, ALLOW_EVERYONE})


def is_secret(name: str) -> bool:
    """Return True for passwords, and for unknown names, which could be passwords (Kafka hides them, too).

    Kafka also hides the authorizer's configurations. Here a user who may describe the cluster's configs sees them, because
    without them no tool can say what a user may do (`ottla acl why`).
    """
    key = key_of(name)
    return name not in AUTHORIZER_CONFIGS if key is None else key.secret


def is_dynamic(name: str) -> bool:
    key = BROKER_CONFIGS.get(name) or DYNAMIC_ONLY.get(name)
    return key is not None and key.dynamic is not Scope.READ_ONLY


class Effect(Enum):
    READ = "read"
    NONE = "none"
    REJECTED = "rejected"


class RejectedProperty(NamedTuple):
    """The protection that would be missing, and the remedy."""

    protection: str
    remedy: str


_NO_POLICY = "it would be created or changed without asking the policy"
_LEAVE_OUT = "leave it out"

#: Properties that are rejected with any value except the default.
REJECTED: dict[str, RejectedProperty] = {
    "create.topic.policy.class.name": RejectedProperty(
        f"Java policies are not run: {_NO_POLICY}",
        "leave it out, and let the authorizer (CREATE on topics) say who may create which",
    ),
    "alter.config.policy.class.name": RejectedProperty(
        f"Java policies are not run: {_NO_POLICY}",
        "leave it out, and let the authorizer (ALTER_CONFIGS) say who may change what",
    ),
    "principal.builder.class": RejectedProperty(
        "only Kafka's default principals are made, so ACLs would be checked for other names",
        "leave it out, and write ACLs for Kafka's default principals",
    ),
    **{
        name: RejectedProperty(
            "Java classes are not run: credentials would be checked or supplied without this one",
            "leave it out: PLAIN has its users in sasl.jaas.config, SCRAM in the metadata",
        )
        for name in ("sasl.client.callback.handler.class", "sasl.login.class", "sasl.oauthbearer.jwt.validator.class")
    },
    "client.quota.callback.class": RejectedProperty(
        "Java callbacks are not run: Kafka's own rules say which quota counts", _LEAVE_OUT
    ),
    "config.providers": RejectedProperty(
        "values such as ${file:...} would be taken as they are written, passwords among them",
        "leave it out, and write the values themselves, or pass them with --override",
    ),
    "ssl.engine.factory.class": RejectedProperty("Java classes that make TLS engines are not loaded", _LEAVE_OUT),
    "security.providers": RejectedProperty("Java security providers are not loaded", _LEAVE_OUT),
}

#: Families of properties without effect, because their feature is missing. Rows of `REJECTED`, and names that are used, are
#: exceptions.
FAMILIES: dict[str, str] = {
    "remote.": "parts of tiered storage that are Java classes, or their threads",
    "log.remote.": "tiered storage: full segments are copied without a lag",
    "group.consumer.": "assignments of consumer groups are computed off the event loop if they are large",
    "group.share.": "share groups",
    "group.streams.": "warm-up tasks, racks and descriptions of topologies in streams groups (KIP-1071)",
    "share.coordinator.": "share groups",
    "metrics.": "metrics are exposed for Prometheus",
    "kafka.metrics.": "metrics are exposed for Prometheus",
    "internal.metadata.": "for Kafka's own tests",
}
#: Names of the families above that are used.
READ_OF_FAMILIES = frozenset(
    f"share.coordinator.state.topic.{name}"
    for name in ("num.partitions", "replication.factor", "segment.bytes", "min.isr")
) | {
    "remote.fetch.max.wait.ms",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.copy.quota.window.num",
    "remote.log.manager.copy.quota.window.size.seconds",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.fetch.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.manager.task.interval.ms",
    "remote.log.reader.threads",
    "remote.log.storage.manager.class.name",
    "remote.log.storage.system.enable",
    "share.coordinator.cold.partition.snapshot.interval.ms",
    "share.coordinator.snapshot.update.records.per.snapshot",
    "share.coordinator.state.topic.prune.interval.ms",
    "share.coordinator.write.timeout.ms",
    "internal.metadata.log.segment.bytes",
    "group.consumer.assignment.interval.ms",
    "group.consumer.assignors",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.max.size",
    "group.consumer.migration.policy",
    "group.consumer.regex.refresh.interval.ms",
    "group.consumer.session.timeout.ms",
    "group.share.delivery.count.limit",
    "group.share.max.share.sessions",
    "group.share.partition.max.record.locks",
    "group.share.record.lock.duration.ms",
    "group.share.assignment.interval.ms",
    "group.share.assignors",
    "group.share.heartbeat.interval.ms",
    "group.share.initialize.retry.interval.ms",
    "group.share.max.size",
    "group.share.persister.class.name",
    "group.share.session.timeout.ms",
    "group.streams.assignment.interval.ms",
    "group.streams.assignors",
    "group.streams.heartbeat.interval.ms",
    "group.streams.initial.rebalance.delay.ms",
    "group.streams.max.size",
    "group.streams.num.standby.replicas",
    "group.streams.session.timeout.ms",
}

#: Kafka does not start with a smaller group.consumer.heartbeat.interval.ms unless this is set; where it has no effect, nothing
#: is missing.
NOT_NEEDED = frozenset({"group.consumer.min.heartbeat.interval.ms"})

# fmt: off
#: Single names without effect, by reason.
NO_EFFECT: dict[str, tuple[str, ...]] = {
    "one event loop does the work of Kafka's threads": (
        "num.network.threads", "num.io.threads", "background.threads", "queued.max.requests", "group.coordinator.threads",
        "group.coordinator.background.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers", "log.cleaner.threads",
        "num.replica.alter.log.dirs.threads",
    ),
    "buffers and pauses of Kafka's implementation": (
        "log.cleaner.io.buffer.size", "log.initial.task.delay.ms",
        "offsets.load.buffer.size", "transaction.state.log.load.buffer.size", "group.coordinator.append.linger.ms",
        "group.coordinator.cached.buffer.max.bytes", "replica.socket.receive.buffer.bytes", "server.max.startup.time.ms",
        "log.flush.start.offset.checkpoint.interval.ms", "log.dir.failure.timeout.ms", "controller.socket.timeout.ms",
        "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
        "fetch.purgatory.purge.interval.requests", "producer.purgatory.purge.interval.requests",
        "delete.records.purgatory.purge.interval.requests", "share.fetch.purgatory.purge.interval.requests",
        "controller.performance.always.log.threshold.ms", "controller.performance.sample.period.ms",
    ),
    "tokens of OAUTHBEARER are fetched when a connection needs one": (
        "sasl.login.refresh.window.jitter", "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.buffer.seconds",
        "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms", "sasl.login.connect.timeout.ms",
        "sasl.oauthbearer.scope.claim.name",
    ),
    "the system's Kerberos library gets tickets, and renews them after half of their lifetime": (
        "sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.window.factor", "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.min.time.before.relogin",
    ),
    "metrics are exposed for Prometheus": ("metric.reporters",),
    "TLS comes from the system's OpenSSL": (
        "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
    ),
    "no such feature": ("offsets.topic.compression.codec",),
}
# fmt: on
_SINGLE = frozenset(name for names in NO_EFFECT.values() for name in names)


def effect_of(name: str) -> Effect:
    """Return the effect of a name in the brokers' tables, with or without a listener's prefix."""
    base = base_name(name)
    if base in REJECTED:
        return Effect.REJECTED
    if base in _SINGLE or (base.startswith(tuple(FAMILIES)) and base not in READ_OF_FAMILIES):
        return Effect.NONE
    return Effect.READ


def check_effect(name: str, value: Any, where: str = "") -> None:
    """Check that a property may be set. `value` is parsed; `where` is the file or option that set it.

    Raises:
        ConfigError: the property would have no effect, but must not be ignored.
    """
    base = base_name(name)
    rejection = REJECTED.get(base)
    if rejection is None or value == BROKER_CONFIGS[base].default or not value:
        return
    text = to_text(value, BROKER_CONFIGS[base].type)
    place = f" (set by {where})" if where else ""
    message = f"{name}={text}{place} cannot be served: {rejection.protection}"
    raise ConfigError(name, text, rejection.protection, rejection.remedy, message=message)


def check_effects(static: Mapping[str, str], where: Mapping[str, str]) -> None:
    """Check all properties of a node's file and options."""
    for name, text in static.items():
        key = key_of(name)
        if key is not None:
            check_effect(name, key.parse(text), where.get(name, ""))


def without_effect(names: Collection[str]) -> list[str]:
    """Return the names of those set properties that have no effect."""
    return sorted(name for name in names if key_of(name) is not None and effect_of(name) is Effect.NONE)
