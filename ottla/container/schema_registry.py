"""The variables of cp-schema-registry's image become the command line of `ottla registry`. It has no I/O.

SCHEMA_REGISTRY_A_B is the property a.b, `__` is `_`, `___` is `-`: the names are those of Confluent's schema-registry.properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ottla.container.settings import ContainerError, Environment, read_value
from ottla.container.variables import without_service_links
from ottla.server.address import Address, NoAddress, parse_address

PREFIX = "SCHEMA_REGISTRY_"
LISTENERS = "http://0.0.0.0:8081"
#: cp-schema-registry waits this long for a broker, unless SCHEMA_REGISTRY_CUB_KAFKA_TIMEOUT says otherwise.
WAIT_S = 40.0
STORE = "kafkastore."
SERVERS = STORE + "bootstrap.servers"
PROTOCOL = STORE + "security.protocol"
#: Options that take the value of a property. If an option has several properties, the first one that is set counts.
OPTIONS = {
    "--topic": ("kafkastore.topic",),
    "--group": ("schema.registry.group.id", "group.id"),
    "--session-timeout-ms": ("kafkagroup.session.timeout.ms",),
    "--compatibility": ("schema.compatibility.level", "compatibility.level", "avro.compatibility.level"),
}
ELIGIBLE = ("leader.eligibility", "master.eligibility")
SCHEMES = ("inter.instance.protocol", "schema.registry.inter.instance.protocol")
LISTENER_NAME = "inter.instance.listener.name"
#: Files without a property: the values of options of `ottla registry`.
FILES = {
    "OTTLA_REGISTRY_USERS": "--users",
    "OTTLA_REGISTRY_ACL": "--acl",
    "OTTLA_REGISTRY_SECRET_FILE": "--secret-file",
}
#: Properties that must not be ignored: their harmless values, and the remedy.
REFUSED = {
    "authentication.method": (
        ("NONE",),
        "logins are lines NAME: PASSWORD of a file: name it in OTTLA_REGISTRY_USERS, and permissions in OTTLA_REGISTRY_ACL",
    ),
    "ssl.client.authentication": (
        ("NONE",),
        "clients are not known by certificates: name a file in OTTLA_REGISTRY_USERS",
    ),
    "ssl.client.auth": (("FALSE",), "clients are not known by certificates: name a file in OTTLA_REGISTRY_USERS"),
}


class RegistryStart(NamedTuple):
    """The command line of a registry, and what it needs before its start."""

    arguments: list[str]
    #: Properties of its connections to the brokers. They go to a file, because passwords are among them.
    properties: dict[str, str]
    notes: list[str]
    #: The brokers that it waits for, and how long.
    servers: Sequence[tuple[str, int]]
    wait_s: float


def registry_start(environment: Environment) -> RegistryStart:
    """Return the command line for the variables of a container.

    Raises:
        ContainerError: a registry with these variables would not do what they say.
    """
    found, services = without_service_links(environment)
    given = {
        name.removeprefix(PREFIX)
        .lower()
        .replace("___", "-")
        .replace("__", "\0")
        .replace("_", ".")
        .replace("\0", "_"): (
            name,
            read_value(name, value),
        )
        for name, value in sorted(found.items())
        if name.startswith(PREFIX) and value
    }
    reading = _Variables(given)
    arguments = _servers(reading, found)
    arguments += _addresses(reading, found)
    for option, names in OPTIONS.items():
        if value := reading.first(*names):
            arguments += [option, value.lower() if option == "--compatibility" else value]
    wait = reading.first("cub.kafka.timeout") or ""
    if (reading.first(*ELIGIBLE) or "true").lower() == "false":
        arguments.append("--no-leader")
    for variable, option in FILES.items():
        if path := found.get(variable):
            arguments += [option, path]
    for name, (harmless, remedy) in REFUSED.items():
        value = reading.first(name) or harmless[0]
        if value.upper() not in harmless and "--users" not in arguments:
            raise ContainerError(f"{name}={value} is not known here", reading.variable(name), remedy)
    properties = dict(reading.below(STORE, "ssl.", "sasl.", "security.protocol"))
    notes = [f"the variables with which Kubernetes describes the Service {name} are not read" for name in services]
    if unknown := reading.unread():
        notes.append(f"not known here, and not read: {', '.join(unknown)}")
    servers = []
    for server in arguments[1].split(",") if arguments[0] == "-b" else ():
        with suppress(NoAddress):  # the registry itself rejects it
            servers.append(parse_address(server))
    return RegistryStart(arguments, properties, notes, servers, float(wait) if wait.isdecimal() else WAIT_S)


class _Variables:
    """The properties from variables. It knows which of them have not been read."""

    def __init__(self, given: dict[str, tuple[str, str]]) -> None:
        self._given = given
        self._read: set[str] = set()

    def first(self, *names: str) -> str | None:
        """Return the value of the first of these properties that is set. All of them count as read."""
        self._read.update(names)
        return next((self._given[name][1] for name in names if name in self._given), None)

    def variable(self, name: str) -> str:
        return self._given[name][0] if name in self._given else PREFIX + name.upper().replace(".", "_")

    def below(self, prefix: str, *kinds: str) -> Iterator[tuple[str, str]]:
        """Yield the properties of these kinds below the prefix, with the prefix removed."""
        for name, (_, value) in self._given.items():
            bare = name.removeprefix(prefix)
            if bare != name and bare.startswith(kinds):
                self._read.add(name)
                yield bare, value

    def unread(self) -> list[str]:
        return [variable for name, (variable, _) in self._given.items() if name not in self._read]


def _servers(given: _Variables, environment: Environment) -> list[str]:
    """Return -b with the brokers' addresses. If they name protocols, take those with kafkastore.security.protocol."""
    text = given.first(SERVERS)
    if text is None:
        if environment.get("OTTLA_BOOTSTRAP"):
            return []
        raise ContainerError("no broker is named", given.variable(SERVERS), "set it to HOST:PORT[,HOST:PORT...]")
    protocol = (given.first(PROTOCOL) or "PLAINTEXT").upper()
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        named, separator, address = part.rpartition("://")
        if not separator or named.upper() == protocol:
            servers.append(address)
    if not servers:
        raise ContainerError(
            f"no address is of the protocol {protocol}", given.variable(SERVERS), f"set {given.variable(PROTOCOL)}"
        )
    return ["-b", ",".join(servers)]


def _addresses(given: _Variables, environment: Environment) -> list[str]:
    """Return --listen and --advertise, and for https the files of the certificate. One listener is served, over IPv4 and IPv6."""
    variable = given.variable("listeners")
    listeners = []
    for part in filter(None, (part.strip() for part in (given.first("listeners") or LISTENERS).split(","))):
        name, separator, _ = part.partition("://")
        try:
            host, port = parse_address(part.rstrip("/"), any_host=True, port_min=0)
        except NoAddress:
            separator = ""
        if not separator:
            raise ContainerError(f"{part} is not http://HOST:PORT", variable, f"for example {LISTENERS}")
        listeners.append((name.lower(), host or "0.0.0.0", str(port)))
    wanted = (given.first(LISTENER_NAME) or given.first(*SCHEMES) or "").lower()
    given.first(*SCHEMES)
    chosen = [row for row in listeners if not wanted or row[0] == wanted]
    if not chosen or chosen[0][0] not in ("http", "https"):
        what = f"none is of {wanted}" if wanted else f"{listeners[0][0]} is neither http nor https"
        raise ContainerError(what, variable, f"for example {LISTENERS}")
    if len(listeners) > 1:
        others = ", ".join("://".join((row[0], row[2])) for row in listeners if row != chosen[0])
        raise ContainerError(
            f"there is one listener here, and not also {others}", variable, "keep one, or start one more container"
        )
    scheme, host, number = chosen[0]
    reached = given.first("host.name") or environment.get("HOSTNAME")
    own = ["--listen", str(Address(host, int(number)))]
    if reached:
        own += ["--advertise", f"{reached}:{number}"]
    return own + (_certificate(given) if scheme == "https" else [])


def _certificate(given: _Variables) -> list[str]:
    own = []
    for store, options in (("keystore", ("--cert", "--key")), ("truststore", ("--ca",))):
        path, kind = given.first(f"ssl.{store}.location"), given.first(f"ssl.{store}.type")
        if path is None:
            if store == "keystore":
                raise ContainerError("it is not set", given.variable("ssl.keystore.location"), "https needs it, in PEM")
            continue
        if (kind or "JKS").upper() != "PEM":
            where = given.variable(f"ssl.{store}.type")
            raise ContainerError(f"{path} is of the type {kind or 'JKS'}", where, "convert it to PEM, and set PEM")
        for option in options:
            own += [option, path]
    return own
