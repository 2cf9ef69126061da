"""kafka-configs: settings of topics, brokers, groups and client metrics, quotas, and the SCRAM credentials of users.

Each kind of entity is read and changed by one API; KINDS lists the types that have settings.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
from typing import NamedTuple

from ottla.cli.shims.exceptions import execution_exception, rejected
from ottla.cli.shims.tool import ToolParser, Unusable, given, with_cluster
from ottla.client.access import alter_quotas, describe_quotas
from ottla.client.cluster import ClusterClient
from ottla.client.configs import alter_configs, describe_configs, list_resources
from ottla.client.failures import Failure
from ottla.client.groups import list_groups
from ottla.protocol.errors import ErrorCode


class EntityKind(NamedTuple):
    """An entity type with settings: its name in the client, and the source of its dynamic settings (DescribeConfigs)."""

    client_kind: str
    source: int


KINDS = {
    "topics": EntityKind("topic", 1),
    "brokers": EntityKind("broker", 2),
    "broker-loggers": EntityKind("broker-logger", 6),
    "client-metrics": EntityKind("client-metrics", 7),
    "groups": EntityKind("group", 8),
}
#: Entity types with quotas, and their names in AlterClientQuotas and in the tool's output.
QUOTA_ENTITIES = {"users": "user", "clients": "client-id", "ips": "ip"}
QUOTA_TEXTS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
TYPES = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers")
#: The short options, and the entity types that they stand for.
WITHOUT_EFFECT = {"force": "The tool asks nothing, so that there is no question to suppress."}
FLAGS = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
DEFAULT_FLAGS = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
DEFAULT_BROKERS_SOURCE = 3
USER_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN = 4096
DEFAULT = ""


class Entity(NamedTuple):
    """An entity type with the name of an entity: DEFAULT for the default, None if no name is given."""

    type: str
    name: str | None


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "kafka-configs", "Describe and change the settings of topics, brokers, users, clients, ips, groups."
    )
    parser.missing_bootstrap = "Either --bootstrap-server or --bootstrap-controller must be specified."
    parser.add_bootstrap(controller=True)
    parser.flags("alter", "describe", "all", "force", *DEFAULT_FLAGS)
    parser.lists("entity-type")
    parser.add_argument("--entity-name", action="append", dest="entity_names", default=[])
    parser.add_argument("--entity-default", action="append_const", const=DEFAULT, dest="entity_names")
    parser.texts("add-config", "add-config-file", "delete-config", *FLAGS)
    options = parser.parse(arguments, bootstrap=False)
    if options.alter == options.describe:
        parser.usage_error("Command must include exactly one action: --describe, --alter")
    parser.forbid(options, "describe", "add-config", "delete-config")
    try:
        entities = entities_of(options)
        if not (options.bootstrap_server or options.bootstrap_controller):
            raise Unusable(parser.missing_bootstrap)
        parser.connect(options)
        if options.describe:
            return with_cluster(options, lambda cluster: describe(cluster, entities, options.all))
        added, removed = changes_of(options)
        return with_cluster(options, lambda cluster: alter(cluster, entities, added, removed))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
        return 1
    except Failure as failure:
        print(f"Error while executing config command with args '{' '.join(arguments)}'", file=sys.stderr)
        print(execution_exception(failure), file=sys.stderr)
        return 1


# -- Options ----------------------------------------------------------------------------------------------------------


def entities_of(options: argparse.Namespace) -> list[Entity]:
    short = {kind: getattr(options, flag.replace("-", "_")) for flag, kind in FLAGS.items() if given(options, flag)}
    short |= {kind: DEFAULT for flag, kind in DEFAULT_FLAGS.items() if given(options, flag)}
    kinds = [*options.entity_type, *short]
    for kind in kinds:
        if kind not in TYPES:
            raise Unusable(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if twice := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
        raise Unusable(f"Duplicate entity type(s) specified: {','.join(twice)}")
    if not kinds:
        raise Unusable("At least one entity type must be specified")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise Unusable("Only 'users' and 'clients' entity types may be specified together")
    if short and (options.entity_type or options.entity_names):
        raise Unusable("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    names = [*options.entity_names, *short.values()]
    if options.alter:
        if len(names) < len(kinds):
            raise Unusable(f"An entity name must be specified with --alter of {','.join(kinds)}")
        if not any(given(options, name) for name in ("add-config", "add-config-file", "delete-config")):
            raise Unusable(
                "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
            )
    for kind, name in zip(kinds, names, strict=False):
        if kind in ("brokers", "broker-loggers") and name and not name.isdecimal():
            raise Unusable(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        if kind == "ips" and options.alter and name and not _is_host(name):
            raise Unusable(f"The entity name for ips must be a valid IP or resolvable host, but it is: {name}")
    return [Entity(kind, names[place] if place < len(names) else None) for place, kind in enumerate(kinds)]


def _is_host(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def changes_of(options: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the settings to set and those to remove."""
    added: dict[str, str] = {}
    if options.add_config_file:
        from ottla.client.connection import read_client_properties

        added |= read_client_properties(options.add_config_file)
    for pair in re.split(r",(?=[^\]]*(?:\[|$))", options.add_config) if options.add_config else ():
        key, equals, value = pair.partition("=")
        # As in Kafka's tool, a second equals sign is an error, unless the value stands in brackets.
        if not equals or ("=" in value and not re.fullmatch(r"\s*\[.*\]\s*", value)):
            raise Unusable(
                'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val"'
                ' or  "key=[val1,val2]" to group values which contain commas.'
            )
        added[key.strip()] = re.sub(r"[\[\]]", "", value).strip()
    for key in added:
        if not re.fullmatch(r"[a-zA-Z0-9._-]*", key):
            raise Unusable(f"Invalid character found for config key: {key}")
    removed = [key.strip() for key in options.delete_config.split(",")] if options.delete_config else []
    return added, removed


# -- Describe ---------------------------------------------------------------------------------------------------------


async def describe(cluster: ClusterClient, entities: list[Entity], everything: bool) -> int:
    head = entities[0]
    if head.type in QUOTA_ENTITIES:
        await _describe_quotas(cluster, entities)
        if [entity.type for entity in entities] == ["users"] and head.name != DEFAULT:
            await _describe_scram(cluster, head.name)
        return 0
    names = [head.name] if head.name is not None else await _names(cluster, head.type)
    for name in names:
        if name and head.name is not None and not everything and not await _exists(cluster, head.type, name):
            print(f"The {head.type[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
            continue
        if name == DEFAULT:
            print(f"Default configs for {head.type} in the cluster are:")
        else:
            print(f"{'All' if everything else 'Dynamic'} configs for {head.type[:-1]} {name} are:")
        kind = KINDS[head.type]
        if head.type == "topics" and everything and not await _exists(cluster, head.type, name):
            raise rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")  # brokers send no message with this error
        source = DEFAULT_BROKERS_SOURCE if head.type == "brokers" and name == DEFAULT else kind.source
        for entry in await describe_configs(cluster, kind.client_kind, name or "", None):
            if everything or entry.config_source == source:
                synonyms = ", ".join(
                    f"{SOURCES[row.source]}:{row.name}={_shown(row.value)}" for row in entry.synonyms or ()
                )
                sensitive = str(entry.is_sensitive).lower()
                print(f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")
    return 0


def _shown(value: str | None) -> str:
    return "null" if value is None else value


async def _names(cluster: ClusterClient, kind: str) -> list[str]:
    """Return all entities of a type."""
    if kind == "topics":
        return await cluster.topic_names()
    if kind in ("brokers", "broker-loggers"):
        brokers = sorted(row.node_id for row in (await cluster.metadata([])).brokers)
        return [*map(str, brokers), DEFAULT]
    names = set(await list_resources(cluster, KINDS[kind].client_kind))
    if kind == "groups":
        names |= {group.group_id for group in await list_groups(cluster)}
    return sorted(names)


async def _exists(cluster: ClusterClient, kind: str, name: str) -> bool:
    return name in await _names(cluster, kind)


async def _describe_quotas(cluster: ClusterClient, entities: list[Entity]) -> None:
    wanted = {QUOTA_ENTITIES[entity.type]: entity.name or None for entity in entities if entity.name is not None}
    kinds = {QUOTA_ENTITIES[entity.type] for entity in entities}
    for row in await describe_quotas(cluster, wanted):
        parts = {part.entity_type: part.entity_name for part in row.entity}
        if parts.keys() != kinds:
            continue
        shown = [
            f"the default {text}" if parts[kind] is None else f"{text} '{parts[kind]}'"
            for kind, text in QUOTA_TEXTS.items()
            if kind in parts
        ]
        values = ", ".join(f"{value.key}={value.value}" for value in sorted(row.values, key=lambda value: value.key))
        print(f"Quota configs for {', '.join(shown)} are {values}")


async def _describe_scram(cluster: ClusterClient, user: str | None) -> None:
    from ottla.client.access import describe_scram_users

    for name, mechanisms in (await describe_scram_users(cluster, None if user is None else [user])).items():
        shown = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in mechanisms.items())
        print(f"SCRAM credential configs for user-principal '{name}' are {shown}")


# -- Alter ------------------------------------------------------------------------------------------------------------


async def alter(cluster: ClusterClient, entities: list[Entity], added: dict[str, str], removed: list[str]) -> int:
    head = entities[0]
    name = head.name or DEFAULT
    if head.type in KINDS:
        if not added.keys().isdisjoint(removed):
            raise rejected(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        changes: dict[str, str | None] = {**added, **dict.fromkeys(removed)}
        if head.type == "broker-loggers":
            known = {entry.name for entry in await describe_configs(cluster, KINDS[head.type].client_kind, name, None)}
            if unknown := [logger for logger in (*removed, *added) if logger not in known]:
                raise Unusable(f"Invalid broker logger(s): {','.join(unknown)}")
        await alter_configs(cluster, KINDS[head.type].client_kind, name, changes)
    elif len(entities) == 1 and head.type == "users" and not {*added, *removed} <= set(USER_QUOTAS):
        await _alter_scram(cluster, name, added, removed)
    else:
        await _alter_quotas(cluster, entities, added, removed)
    if name:
        print(f"Completed updating config for {head.type.removesuffix('s')} {name}.")
    else:
        print(f"Completed updating default config for {head.type} in the cluster.")
    return 0


async def _alter_quotas(
    cluster: ClusterClient, entities: list[Entity], added: dict[str, str], removed: list[str]
) -> None:
    for verb, names in (("added", list(added)), ("deleted", removed)):
        _only_quotas(entities, verb, names)
    entity = {QUOTA_ENTITIES[part.type]: part.name or None for part in entities}
    old = [row for row in await describe_quotas(cluster, entity) if len(row.entity) == len(entity)]
    present = {value.key for row in old for value in row.values}
    if gone := [key for key in removed if key not in present]:
        raise Unusable(f"Invalid config(s): {','.join(gone)}")
    changes: dict[str, float | None] = dict.fromkeys(removed)
    for key, text in added.items():
        try:
            changes[key] = float(text)
        except ValueError:
            raise Unusable(f"Cannot parse quota configuration value for {key}: {text}") from None
    await alter_quotas(cluster, entity, changes)


def _only_quotas(entities: list[Entity], verb: str, names: list[str]) -> None:
    is_ip = entities[0].type == "ips"
    unknown = [name for name in names if name not in (IP_QUOTAS if is_ip else USER_QUOTAS)]
    if not unknown:
        return
    if is_ip:
        what, whose, shown = "connection quota", "ips", ",".join(unknown)
    else:
        what, whose, shown = "quota", "clients", f"Set({', '.join(unknown)})"
    raise Unusable(
        f"Only {what} configs can be {verb} for '{whose}' using --bootstrap-server. Unexpected config names: {shown}"
    )


async def _alter_scram(cluster: ClusterClient, user: str, added: dict[str, str], removed: list[str]) -> None:
    from ottla.client.access import NewPassword, alter_scram_user

    for verb, names in (("added", list(added)), ("deleted", removed)):
        if unknown := [name for name in names if name not in (*USER_QUOTAS, *SCRAM)]:
            raise Unusable(
                f"Only quota and SCRAM credential configs can be {verb} for 'users' using --bootstrap-server. "
                f"Unexpected config names: Set({', '.join(unknown)})"
            )
    if not user:
        raise Unusable(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using --bootstrap-server."
        )
    if {*added, *removed} & set(USER_QUOTAS):
        raise Unusable(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server."
        )
    new = {}
    for mechanism, text in added.items():
        found = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", text)
        if found is None:
            raise Unusable(f"Invalid credential property {mechanism.replace('-', '_')}={text}")
        iterations = ITERATIONS_MIN if found[1] in (None, "", "-1") else int(found[1])
        if iterations < ITERATIONS_MIN:
            wrong = f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for {mechanism}"
            raise Unusable(wrong)
        if not found[2]:
            raise rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
        new[mechanism] = NewPassword(found[2], iterations)
    await alter_scram_user(cluster, user, new, removed)
