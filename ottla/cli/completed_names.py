"""Names of the cluster that complete a command line: of topics, groups, users, brokers, settings and the like.

They come from the cluster that the words name, or from the context in use. Nothing is offered if the cluster does not respond
within a second: completion must not make a terminal wait, and never prints an error. A token's HMAC is a secret, and is not
offered.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.cli import contexts
from ottla.cli.application import ConnectionOptions, connect
from ottla.client.access import describe_scram_users, kind_text
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import describe_features
from ottla.client.configs import describe_configs
from ottla.client.failures import Failure
from ottla.client.groups import list_groups
from ottla.client.transactions import list_transactions
from ottla.server.authorization.operations import ANY, CLUSTER, OPERATIONS, RESOURCE_TYPES
from ottla.server.quotas.clients import CLIENT_QUOTAS, CONNECTION_CREATION_RATE

TIMEOUT_S = 1.0

#: The kind of name that a word is. PARTITION is TOPIC or TOPIC:NUMBER, BROKERS are ids with commas, NAMED depends on the word
#: before it.
TOPIC, PARTITION, GROUP, USER, BROKER, BROKERS, TRANSACTION, CONTEXT, FEATURE = (
    "topic", "partition", "group", "user", "broker", "brokers", "transactional-id", "context", "feature",
)  # fmt: skip
NAMED, SETTING, QUOTA, OPERATION, RESOURCE = "named", "setting", "quota", "operation", "resource"

#: The kinds of the words that follow a command and its verb (None: it has no verbs). The last kind stands for all further
#: words.
PLACES: Mapping[tuple[str, str | None], Sequence[str]] = {
    ("produce", None): (TOPIC,),
    ("consume", None): (TOPIC,),
    **{
        ("topic", verb): (TOPIC,)
        for verb in ("list", "describe", "copy", "delete", "diff", "add-partitions", "delete-records")
    },
    **{("perf", verb): (TOPIC,) for verb in ("produce", "consume", "latency")},
    **{("move", verb): (PARTITION,) for verb in ("plan", "run", "cancel")},
    **{("partition", verb): (PARTITION,) for verb in ("list", "elect")},
    **{("group", verb): (GROUP,) for verb in ("describe", "lag", "reset", "delete")},
    **{("user", verb): (USER,) for verb in ("list", "passwd", "delete")},
    **{("broker", verb): (BROKER,) for verb in ("log-dirs", "remove")},
    ("cluster", "may-stop"): (BROKER,),
    **{("txn", verb): (TRANSACTION,) for verb in ("describe", "abort", "forget")},
    **{("context", verb): (CONTEXT,) for verb in ("use", "delete", "set")},
    **{("feature", verb): (FEATURE,) for verb in ("upgrade", "downgrade")},
    **{("config", verb): ("", NAMED, SETTING) for verb in ("get", "set", "unset")},
    ("config", "diff"): ("", NAMED, NAMED),
    **{("quota", verb): ("", NAMED, QUOTA) for verb in ("set", "unset")},
    ("quota", "list"): ("", NAMED),
    **{("acl", verb): (USER, OPERATION, RESOURCE) for verb in ("add", "remove", "why")},
    ("acl", "list"): (RESOURCE,),
}
#: The kinds of the values of options.
OPTION_VALUES = {
    "--group": GROUP,
    "--topic": PARTITION,
    "--context": CONTEXT,
    "--to-context": CONTEXT,
    "--user": USER,
    "--owner": USER,
    "--renewer": USER,
    "--drain": BROKER,
    "--among": BROKERS,
    "--led-by": BROKER,
    "--on": BROKER,
}
#: These options have another meaning in these commands.
VALUES_OF_ONE = {("move", "plan", "--to"): BROKERS, ("move", "run", "--to"): BROKERS}
#: In these commands a word is KEY=VALUE, and the name is its key.
WITH_VALUE = {("config", "set"), ("quota", "set"), ("feature", "upgrade"), ("feature", "downgrade")}
CONNECTION_OPTIONS = {"-b": "bootstrap", "--bootstrap": "bootstrap", "--config": "config", "--context": "context"}


class AskedCompletion(NamedTuple):
    """A word to complete: the command it belongs to, and the words before it."""

    command: str
    verb: str | None
    #: The names of the option that the word is a value of; there are none if it belongs to no option.
    option: Sequence[str]
    #: The words before it that belong to no option.
    places: Sequence[str]
    beginning: str
    words: Sequence[str]

    @property
    def kind(self) -> str:
        if self.option:
            found = (VALUES_OF_ONE.get((self.command, self.verb or "", name)) for name in self.option)
            return next((kind for kind in found if kind), "") or next(
                (OPTION_VALUES[name] for name in self.option if name in OPTION_VALUES), ""
            )
        kinds = PLACES.get((self.command, self.verb), ("",))
        return kinds[min(len(self.places), len(kinds) - 1)]

    def connection(self) -> ConnectionOptions:
        """Return the options of the connection, first from the words and then from the environment."""
        options = {name: os.environ.get(f"OTTLA_{name.upper()}") for name in CONNECTION_OPTIONS.values()}
        options |= {
            CONNECTION_OPTIONS[word]: value for word, value in pairwise(self.words) if word in CONNECTION_OPTIONS
        }
        return ConnectionOptions(**options, timeout=TIMEOUT_S)


def names_for(asked: AskedCompletion) -> list[str]:
    """Return the names that can stand in place of a word; none if the cluster does not respond."""
    kind, prefix = asked.kind, ""
    try:
        if kind == RESOURCE and ":" in asked.beginning:
            kind, colon, _ = asked.beginning.partition(":")
            prefix = kind + colon
        if kind in WITHOUT_CLUSTER:
            names = WITHOUT_CLUSTER[kind]()
        elif kind in LISTED:
            names = asyncio.run(_listed(kind, asked))
        else:
            return []
    except Failure:
        return []
    ending = (
        "="
        if not asked.option and (asked.command, asked.verb) in WITH_VALUE and kind in (SETTING, QUOTA, FEATURE)
        else ""
    )
    return [f"{prefix}{name}{ending}" for name in names]


async def _listed(kind: str, asked: AskedCompletion) -> Iterable[str]:
    async with connect(asked.connection()) as cluster:
        return await LISTED[kind](cluster, asked)


async def _topics(cluster: ClusterClient, _: AskedCompletion) -> Iterable[str]:
    return await cluster.topic_names()


async def _partitions(cluster: ClusterClient, asked: AskedCompletion) -> Iterable[str]:
    topic, colon, _ = asked.beginning.rpartition(":")
    if not colon:
        return await cluster.topic_names()
    found = (await cluster.metadata([topic])).topics
    return [f"{topic}:{part.partition_index}" for each in found for part in each.partitions]


async def _groups(cluster: ClusterClient, _: AskedCompletion) -> Iterable[str]:
    return [group.group_id for group in await list_groups(cluster)]


async def _users(cluster: ClusterClient, _: AskedCompletion) -> Iterable[str]:
    return list(await describe_scram_users(cluster))


async def _brokers(cluster: ClusterClient, asked: AskedCompletion) -> Iterable[str]:
    given, comma, _ = asked.beginning.rpartition(",")
    ids = [str(broker.node_id) for broker in (await cluster.metadata([])).brokers]
    return [f"{given}{comma}{node}" for node in ids if node not in given.split(",")]


async def _transactions(cluster: ClusterClient, _: AskedCompletion) -> Iterable[str]:
    return [row.transactional_id for row in await list_transactions(cluster)]


async def _features(cluster: ClusterClient, _: AskedCompletion) -> Iterable[str]:
    return (await describe_features(cluster)).levels


async def _named(cluster: ClusterClient, asked: AskedCompletion) -> Iterable[str]:
    listed = {"topic": _topics, "group": _groups, "broker": _brokers, "user": _users}.get(asked.places[0])
    return [] if listed is None else await listed(cluster, asked)


async def _settings(cluster: ClusterClient, asked: AskedCompletion) -> Iterable[str]:
    kind, name = asked.places[:2]
    resource = "" if (kind, name) == ("broker", "all") else name
    return [entry.name for entry in await describe_configs(cluster, kind, resource, None)]


LISTED: Mapping[str, Callable[[ClusterClient, AskedCompletion], Awaitable[Iterable[str]]]] = {
    TOPIC: _topics,
    PARTITION: _partitions,
    GROUP: _groups,
    USER: _users,
    BROKER: _brokers,
    BROKERS: _brokers,
    TRANSACTION: _transactions,
    FEATURE: _features,
    NAMED: _named,
    SETTING: _settings,
}


def _resources() -> Iterable[str]:
    return [kind_text(code) + ("" if code == CLUSTER else ":") for code in RESOURCE_TYPES if code > ANY]


def _operations() -> Iterable[str]:
    return [name.lower().replace("_", "-") for code, name in OPERATIONS.items() if code > ANY]


WITHOUT_CLUSTER: Mapping[str, Callable[[], Iterable[str]]] = {
    CONTEXT: lambda: contexts.load().named,
    QUOTA: lambda: (*CLIENT_QUOTAS, CONNECTION_CREATION_RATE),
    OPERATION: _operations,
    RESOURCE: _resources,
}
