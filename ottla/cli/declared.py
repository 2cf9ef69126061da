"""The file of `ottla apply`: it declares in YAML what a cluster is to have.

EXAMPLE is a complete file, and docs/GITOPS.md describes it.

Only what is declared is compared: nothing else is changed, and nothing is removed. A setting with null gets its default back.
The password of a user is used when the user is created, because a cluster keeps no password to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.hints import hint_of
from ottla.client.access import new_entry
from ottla.client.configs import RESOURCE_TYPES
from ottla.client.failures import Failure, did_you_mean
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.extras import missing
from ottla.server.quotas.clients import CLIENT_ID, CLIENT_QUOTAS, CONNECTION_CREATION_RATE, IP, USER
from ottla.server.sasl.scram import HASHES

T = TypeVar("T")

EXAMPLE = """\
# What the cluster shall have: ottla apply -f cluster.yml
topics:
  orders:
    partitions: 6
    # replication_factor: 3        # without it: the brokers' default.replication.factor
    config:
      retention.ms: 604800000      # null gives a setting back to its default
      cleanup.policy: [compact, delete]
users:                             # for logins by SCRAM
  alice:
    password_env: ALICE_PASSWORD   # or password_file: a path. Used when the user is created
    # mechanism: SCRAM-SHA-256     # SCRAM-SHA-512 without it
acls:
  - alice write topic:orders       # the words of `ottla acl add`: USER OPERATION RESOURCE
  - {user: alice, operation: read, resource: "group:alice-", prefixed: true}
  # - {user: alice, operation: read, resource: "topic:orders", host: 10.0.0.7, deny: true}
quotas:                            # of user, client_id, both, or ip; <default> for all others
  - {user: alice, producer_byte_rate: 1048576, consumer_byte_rate: 2097152}
  - {client_id: <default>, request_percentage: 200}
config:                            # also group and client-metrics, by name
  broker:
    all: {log.retention.ms: 604800000}
"""

SECTIONS = ("topics", "users", "acls", "quotas", "config")
TOPIC_FIELDS = ("partitions", "replication_factor", "config")
USER_FIELDS = ("mechanism", "password_env", "password_file")
ACL_FIELDS = ("user", "operation", "resource", "prefixed", "host", "deny")
ENTITIES = {"user": USER, "client_id": CLIENT_ID, "ip": IP}
QUOTAS = (*CLIENT_QUOTAS, CONNECTION_CREATION_RATE)
#: The name of a type's default, as in `ottla quota`.
DEFAULT = "<default>"

#: Setting -> value; None means its default.
Settings = dict[str, str | None]
#: The parts of a quota's entity, each with its type and its name; None means the type's default.
Entity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic. Where the number of partitions or replicas is None, the cluster chooses."""

    partitions: int | None
    replication_factor: int | None
    config: Settings


@dataclass(frozen=True, slots=True)
class DeclaredUser:
    """A user, and where its password is found."""

    mechanism: str
    password_env: str | None
    password_file: str | None


@dataclass(frozen=True, slots=True)
class DeclaredCluster:
    """Everything that a file declares of a cluster."""

    topics: dict[str, DeclaredTopic] = field(default_factory=dict)
    users: dict[str, DeclaredUser] = field(default_factory=dict)
    acls: list[AccessControlEntry] = field(default_factory=list)
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    config: dict[tuple[str, str], Settings] = field(default_factory=dict)


def read_declared(text: str, path: str) -> DeclaredCluster:
    """Read a file.

    Raises:
        CommandFailed: the file is no YAML, or declares something that does not exist (the message names the place in the file),
            or this platform has no PyYAML.
    """
    if reason := missing("yaml", "reading a declaration"):
        raise CommandFailed(reason, "install the distribution's python3-yaml")
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise CommandFailed(f"{path} is no YAML: {' '.join(str(fault).split())}", None, USAGE) from None
    sections = _mapping(path, {} if data is None else data, SECTIONS)
    return DeclaredCluster(
        topics=_named(f"{path}: topics", sections.get("topics"), _topic),
        users=_named(f"{path}: users", sections.get("users"), _user),
        acls=[_acl(f"{path}: acls[{n}]", row) for n, row in enumerate(_list(f"{path}: acls", sections.get("acls")))],
        quotas=_quotas(f"{path}: quotas", sections.get("quotas")),
        config=_config(f"{path}: config", sections.get("config")),
    )


def _topic(where: str, row: Any) -> DeclaredTopic:
    fields = _mapping(where, {} if row is None else row, TOPIC_FIELDS)
    counts = []
    for name in ("partitions", "replication_factor"):
        count = fields.get(name)
        if count is not None and (type(count) is not int or count < 1):
            raise _wrong(f"{where}.{name}", f"{count!r} is no number above 0")
        counts.append(count)
    return DeclaredTopic(counts[0], counts[1], _settings(f"{where}.config", fields.get("config")))


def _user(where: str, row: Any) -> DeclaredUser:
    fields = _mapping(where, {} if row is None else row, USER_FIELDS)
    mechanism = fields.get("mechanism", "SCRAM-SHA-512")
    if mechanism not in HASHES:
        raise _wrong(f"{where}.mechanism", f"{mechanism!r} is not one of {', '.join(HASHES)}")
    if ("password_env" in fields) == ("password_file" in fields):
        raise _wrong(where, "a user has one of password_env and password_file: passwords do not belong into this file")
    return DeclaredUser(mechanism, fields.get("password_env"), fields.get("password_file"))


def _acl(where: str, row: Any) -> AccessControlEntry:
    if isinstance(row, str):
        words = row.split()
        if len(words) != 3:
            raise _wrong(where, f"{row!r} is not USER OPERATION RESOURCE")
        row = dict(zip(ACL_FIELDS, words, strict=False))
    fields = _mapping(where, row, ACL_FIELDS)
    for name in ("user", "operation", "resource"):
        if not isinstance(fields.get(name), str):
            raise _wrong(where, f"an entry has a {name}")
    try:
        return new_entry(
            fields["user"],
            fields["operation"],
            fields["resource"],
            prefixed=bool(fields.get("prefixed")),
            host=str(fields.get("host", "*")),
            deny=bool(fields.get("deny")),
        )
    except Failure as fault:
        raise CommandFailed(f"{where}: {fault.cause}", hint_of(fault), USAGE) from None


def _quotas(where: str, rows: Any) -> dict[Entity, dict[str, float]]:
    found: dict[Entity, dict[str, float]] = {}
    for number, row in enumerate(_list(where, rows)):
        place = f"{where}[{number}]"
        fields = _mapping(place, row, (*ENTITIES, *QUOTAS))
        entity = tuple(
            (kind, None if fields[name] == DEFAULT else str(fields[name]))
            for name, kind in ENTITIES.items()
            if name in fields
        )
        values = {name: value for name, value in fields.items() if name in QUOTAS}
        if not entity or not values:
            raise _wrong(place, f"a quota has one of {', '.join(ENTITIES)}, and one of {', '.join(QUOTAS)}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _wrong(f"{place}.{name}", f"{value!r} is no number")
            found.setdefault(entity, {})[name] = float(value)
    return found


def _config(where: str, kinds: Any) -> dict[tuple[str, str], Settings]:
    allowed = tuple(kind for kind in RESOURCE_TYPES if kind != "topic")
    return {
        (kind, str(name)): _settings(f"{where}.{kind}.{name}", settings)
        for kind, resources in _mapping(where, {} if kinds is None else kinds, allowed).items()
        for name, settings in _mapping(f"{where}.{kind}", resources, None).items()
    }


# -- The forms of YAML -----------------------------------------------------------------------------------------------


def _settings(where: str, data: Any) -> Settings:
    fields = _mapping(where, {} if data is None else data, None)
    return {str(name): _value(f"{where}.{name}", value) for name, value in fields.items()}


def _value(where: str, value: Any) -> str | None:
    """Return a value as the text that Kafka's configurations have for it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(str(_value(where, each)) for each in value)
    raise _wrong(where, f"{value!r} is no value")


def _named(where: str, data: Any, read: Callable[[str, Any], T]) -> dict[str, T]:
    fields = _mapping(where, {} if data is None else data, None)
    return {str(name): read(f"{where}.{name}", row) for name, row in fields.items()}


def _mapping(where: str, data: Any, known: tuple[str, ...] | None) -> Mapping[str, Any]:
    """Return a mapping. If `known` is given, its keys must be among these."""
    if not isinstance(data, dict):
        raise _wrong(where, f"a mapping is wanted, not {data!r}")
    for name in data:
        if known is not None and name not in known:
            hint = did_you_mean(str(name), known) or f"one of {', '.join(known)}"
            raise CommandFailed(f"{where}: there is no {name!r}", hint, USAGE)
    return data


def _list(where: str, data: Any) -> list[Any]:
    if data is None:
        return []
    if not isinstance(data, list):
        raise _wrong(where, f"a list is wanted, not {data!r}")
    return data


def _wrong(where: str, what: str) -> CommandFailed:
    return CommandFailed(f"{where}: {what}", "`ottla apply --example` prints a whole file", USAGE)
