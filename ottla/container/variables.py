"""Variables that are no properties themselves: references to files, variables from Kubernetes, and variables for a JVM."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ottla.container import bitnami
from ottla.container.kafka_dialect import CREDENTIAL_NAMES, NOT_PROPERTIES, property_name
from ottla.container.settings import ContainerError, Environment, ReadFile
from ottla.server.config.broker import key_of

SUFFIX = "_FILE"
#: Names that end in _FILE but do not refer to another variable.
PATHS = frozenset({"KAFKA_TLS_TRUSTSTORE_FILE"})

#: The kubelet describes each Service of the namespace to each container: a Service named kafka adds
#: KAFKA_PORT=tcp://10.0.0.1:9092, KAFKA_SERVICE_HOST, KAFKA_PORT_9092_TCP_ADDR and so on, which look like properties of a
#: broker.
_SERVICE_PORT = re.compile(r"(tcp|udp|sctp)://\S+")
_OF_SERVICE = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$")

_JMX = re.compile(r"^KAFKA_JMX_")
_AGENT = re.compile(r"-javaagent:(\S+)")
_LOGGERS = frozenset({"KAFKA_LOG4J_LOGGERS", "KAFKA_LOG4J_OPTS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "BITNAMI_DEBUG"})
_MEMORY = frozenset(
    {"KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "JAVA_TOOL_OPTIONS", "HEAP_OPTS"}
)


def expand(environment: Environment, read: ReadFile) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment with the files' contents, and for each such variable the file."""
    found = dict(environment)
    origins: dict[str, str] = {}
    for variable in sorted(environment):
        name, path = variable.removesuffix(SUFFIX), environment[variable]
        if not is_reference(variable) or not path:
            continue
        if name in environment:
            raise ContainerError(f"{name} and {variable} are both set", variable, "remove one of them")
        data = read(path)
        if data is None:
            raise ContainerError(
                f"there is no file {path} that can be read", variable, "mount the secret there, or set the path"
            )
        del found[variable]
        # The newline that editors add at the end is no part of a password.
        text = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
        # Values are single lines of a properties file: only the first line of a PEM file would remain.
        found[name] = text.replace("\n", "\\n")
        origins[name] = f"{variable} ({path})"
    return found, origins


def is_reference(variable: str) -> bool:
    """Return whether the variable names a file with the value of another variable. sasl.oauthbearer.assertion.file is itself a
    property.
    """
    name = variable.removesuffix(SUFFIX)
    if name == variable or variable in PATHS:
        return False
    if name == "CLUSTER_ID" or name in bitnami.FILE_VARIABLES:
        return True
    if not name.startswith("KAFKA_") or name in NOT_PROPERTIES or name in CREDENTIAL_NAMES:
        return False
    if name.startswith(bitnami.PREFIX):
        return key_of(bitnami.property_name(variable)) is None
    return key_of(property_name(variable)) is None


def without_service_links(environment: Environment) -> tuple[dict[str, str], list[str]]:
    """Return the environment without the kubelet's variables, and the names of the Services in them."""
    services = [
        name.removesuffix("_PORT")
        for name, value in environment.items()
        if name.endswith("_PORT")
        and f"{name.removesuffix('_PORT')}_SERVICE_HOST" in environment
        and _SERVICE_PORT.fullmatch(value)
    ]
    links = {
        name
        for name in environment
        if any(name.startswith(f"{s}_") and _OF_SERVICE.fullmatch(name[len(s) :]) for s in services)
    }
    return {name: value for name, value in environment.items() if name not in links}, services


def notes(environment: Environment, admin_listener: str | None) -> Iterator[str]:
    """Yield one line for each kind of variable that only a JVM reads, with what to use instead."""
    metrics = (
        f"metrics are served at http://{admin_listener}/metrics"
        if admin_listener
        else "set OTTLA_ADMIN_LISTENER to serve metrics"
    )
    if jmx := _set(environment, lambda name: bool(_JMX.match(name))):
        yield f"{jmx}: there is no JVM and no JMX here; {metrics}"
    for variable in ("KAFKA_OPTS", "JAVA_TOOL_OPTIONS"):
        for agent in _AGENT.findall(environment.get(variable, "")):
            yield f"{variable}: the agent {agent} does not run here, because there is no JVM; {metrics}"
    if memory := _set(environment, _MEMORY.__contains__):
        yield f"{memory}: there is no JVM, so these options do nothing; limit the container's memory instead"
    if loggers := _set(environment, _LOGGERS.__contains__):
        yield f"{loggers}: there is one level for all loggers; set OTTLA_LOG_LEVEL or KAFKA_LOG4J_ROOT_LOGLEVEL"


def _set(environment: Environment, wanted: Callable[[str], bool]) -> str:
    return ", ".join(sorted(name for name in environment if wanted(name)))
