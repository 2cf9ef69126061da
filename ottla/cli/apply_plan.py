"""The plan of `ottla apply`: the changes by which a cluster gets what a file declares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ottla.cli.declared import DEFAULT, DeclaredCluster, DeclaredTopic, DeclaredUser, Entity, Settings
from ottla.cli.errors import CommandFailed
from ottla.client.access import NewPassword, alter_quotas, alter_scram_user, create_acl
from ottla.client.cluster import ClusterClient
from ottla.client.configs import alter_configs
from ottla.client.topics import BROKER_DEFAULT, add_partitions, create_topic
from ottla.server.authorization.acl import AccessControlEntry


class Shape(NamedTuple):
    """The number of partitions and replicas of a topic."""

    partitions: int
    replication_factor: int


class Setting(NamedTuple):
    """The value of a setting, and whether it is set on the resource itself. A secret has no value."""

    value: str | None
    is_set: bool


@dataclass(slots=True)
class Present:
    """The present state of the resources that the file declares."""

    topics: dict[str, Shape] = field(default_factory=dict)
    #: The settings by the type and name of their resource, then by the setting's name.
    settings: dict[tuple[str, str], dict[str, Setting]] = field(default_factory=dict)
    #: The SCRAM mechanisms of each user.
    users: dict[str, set[str]] = field(default_factory=dict)
    acls: set[AccessControlEntry] = field(default_factory=set)
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)


class Change(NamedTuple):
    """One change: a sentence about it, and the function that makes it."""

    kind: str
    name: str
    change: str
    make: Callable[[ClusterClient], Awaitable[object]]


def plan(
    declared: DeclaredCluster,
    present: Present,
    password: Callable[[str, DeclaredUser], str],
    acl_text: Callable[[AccessControlEntry], str],
) -> list[Change]:
    """Return the changes, in the order in which they are made. If the cluster has all that is declared, there are none.

    Raises:
        CommandFailed: a topic would need fewer partitions, or other replicas, or a user has no password.
    """
    changes: list[Change] = []
    for name, topic in declared.topics.items():
        changes += _topic(name, topic, present)
    for (kind, name), settings in declared.config.items():
        changes += _settings(kind, name, settings, present.settings.get((kind, name), {}))
    for name, user in declared.users.items():
        if user.mechanism not in present.users.get(name, ()):
            new = {user.mechanism: NewPassword(password(name, user))}
            make = partial(_alter_user, name, new)
            changes.append(Change("user", name, f"create with {user.mechanism}", make))
    for entry in declared.acls:
        if entry not in present.acls:
            changes.append(Change("acl", acl_text(entry), "add", partial(_create_acl, entry)))
    for entity, quotas in declared.quotas.items():
        changes += _quotas(entity, quotas, present.quotas.get(entity, {}))
    return changes


def _topic(name: str, topic: DeclaredTopic, present: Present) -> Iterator[Change]:
    shape = present.topics.get(name)
    partitions, replicas = topic.partitions, topic.replication_factor
    if shape is None:
        settings = {key: value for key, value in topic.config.items() if value is not None}
        text = ", ".join(
            [
                f"create with {partitions or 'the default number of'} partitions",
                *([f"replication factor {replicas}"] if replicas else []),
                *(f"{key}={value}" for key, value in settings.items()),
            ]
        )
        make = partial(_create_topic, name, partitions or BROKER_DEFAULT, replicas or BROKER_DEFAULT, settings)
        yield Change("topic", name, text, make)
        return
    if partitions is not None and partitions < shape.partitions:
        raise CommandFailed(
            f"topic {name} has {shape.partitions} partitions, not {partitions}", "partitions are never taken away"
        )
    if replicas is not None and replicas != shape.replication_factor:
        raise CommandFailed(
            f"topic {name} has the replication factor {shape.replication_factor}, not {replicas}",
            f"`ottla move run {name} --to BROKERS` changes it",
        )
    if partitions is not None and partitions > shape.partitions:
        make_more = partial(_add_partitions, name, partitions)
        yield Change("topic", name, f"partitions {shape.partitions} -> {partitions}", make_more)
    yield from _settings("topic", name, topic.config, present.settings.get(("topic", name), {}))


def _settings(kind: str, name: str, wanted: Settings, present: Mapping[str, Setting]) -> Iterator[Change]:
    changes: Settings = {}
    texts = []
    for key, value in wanted.items():
        now = present.get(key, Setting(None, False))
        if now.is_set if value is None else not (now.is_set and now.value == value):
            changes[key] = value
            texts.append(f"{key} {'-' if now.value is None else now.value} -> {'default' if value is None else value}")
    if changes:
        yield Change(f"{kind} settings", name, ", ".join(texts), partial(_alter_configs, kind, name, changes))


def _quotas(entity: Entity, wanted: Mapping[str, float], present: Mapping[str, float]) -> Iterator[Change]:
    changes = {name: value for name, value in wanted.items() if present.get(name) != value}
    if changes:
        who = ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)
        text = ", ".join(f"{name} {present.get(name, '-')} -> {value:g}" for name, value in changes.items())
        yield Change("quota", who, text, partial(_alter_quotas, dict(entity), changes))


# -- How changes are made: the cluster is the last argument ------------------------------------------------------------


async def _create_topic(
    name: str, partitions: int, replicas: int, settings: Mapping[str, str], cluster: ClusterClient
) -> None:
    await create_topic(cluster, name, partitions, replicas, settings)


async def _add_partitions(name: str, total: int, cluster: ClusterClient) -> None:
    await add_partitions(cluster, name, total)


async def _alter_configs(kind: str, name: str, changes: Settings, cluster: ClusterClient) -> None:
    await alter_configs(cluster, kind, "" if (kind, name) == ("broker", "all") else name, changes)


async def _alter_user(name: str, new: Mapping[str, NewPassword], cluster: ClusterClient) -> None:
    await alter_scram_user(cluster, name, new)


async def _create_acl(entry: AccessControlEntry, cluster: ClusterClient) -> None:
    await create_acl(cluster, entry)


async def _alter_quotas(entity: Mapping[str, str | None], changes: Mapping[str, float], cluster: ClusterClient) -> None:
    await alter_quotas(cluster, entity, changes)
