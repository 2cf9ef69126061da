"""All configurations of a node: the tables of `tables/` combined, and the rules for names that are not in them.

Configurations without effect in Ottla are in the tables, too: a server.properties written for Kafka is accepted, and
DescribeConfigs shows what Kafka would show.
"""

from __future__ import annotations

import re

from ottla.server.config.columns import CLUSTER_WIDE, LONG, MEDIUM
from ottla.server.config.key import LONG_MAX, ConfigKey, Scope, table
from ottla.server.config.tables.groups import GROUPS
from ottla.server.config.tables.log import LOG
from ottla.server.config.tables.network import NETWORK
from ottla.server.config.tables.node import NODE
from ottla.server.config.tables.operations import OPERATIONS
from ottla.server.config.tables.remote import REMOTE
from ottla.server.config.tables.replication import REPLICATION
from ottla.server.config.tables.sasl import SASL
from ottla.server.config.tables.ssl import SSL
from ottla.server.config.tables.transactions import TRANSACTIONS
from ottla.server.config.validators import at_least

BROKER_CONFIGS: dict[str, ConfigKey] = {
    **NODE, **NETWORK, **LOG, **REPLICATION, **GROUPS, **TRANSACTIONS, **SSL, **SASL, **REMOTE, **OPERATIONS,
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
#: These may have a SASL mechanism between listener and name.
MECHANISM_CONFIGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
#: Per-broker in their table, but cluster-wide with a listener's prefix.
CLUSTER_LEVEL_LISTENER_CONFIGS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})

#: The same configuration in other units or under older names, in the order of precedence.
SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS = {name: names for names in SYNONYMS for name in names if name != "log.flush.scheduler.interval.ms"}


def base_name(name: str) -> str:
    """Returns a name without its listener's (and mechanism's) prefix."""
    match = LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return name
    rest = match.group(2)
    return next((config for config in MECHANISM_CONFIGS if rest.endswith(config)), rest)


def synonyms(name: str) -> tuple[str, ...]:
    """Returns all names under which the value of `name` may be set, in the order of precedence."""
    base = base_name(name)
    return (name, base) if base != name else _SYNONYMS.get(name, (name,))


def key_of(name: str) -> ConfigKey | None:
    """Returns the row of a name, without its listener's prefix if it has one."""
    return BROKER_CONFIGS.get(name) or DYNAMIC_ONLY.get(name) or BROKER_CONFIGS.get(base_name(name))


#: The authorizer's own configurations. As in Kafka they are not in the node's table.
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
AUTHORIZER_CONFIGS = frozenset({SUPER_USERS, ALLOW_EVERYONE})


def is_secret(name: str) -> bool:
    """Returns True for passwords, and for unknown names, which could be passwords (Kafka hides them, too).

    Kafka also hides the authorizer's. Here they are shown to who may describe the cluster's configs, because without them no tool
    can say what a user may do (`ottla acl why`).
    """
    key = key_of(name)
    return name not in AUTHORIZER_CONFIGS if key is None else key.secret


def is_dynamic(name: str) -> bool:
    key = BROKER_CONFIGS.get(name) or DYNAMIC_ONLY.get(name)
    return key is not None and key.dynamic is not Scope.READ_ONLY
