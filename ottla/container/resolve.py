"""Maps a container's environment and mounted files to the properties of a node. It starts, writes and checks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.container import bitnami, kafka_dialect
from ottla.container.kafka_dialect import APACHE, CONFLUENT
from ottla.container.older_images import SINGLE_COPIES, OlderImage, adopt, older_image, renamed
from ottla.container.settings import (
    ContainerError,
    ContainerSetting,
    Environment,
    ReadFile,
    Resolution,
    User,
    read_file,
)
from ottla.container.variables import expand, notes, without_service_links

DIALECTS: Mapping[str, str] = {"apache": APACHE, "confluent": CONFLUENT, "bitnami": bitnami.BITNAMI}


class Places(NamedTuple):
    """The paths of one image. Users mount files and volumes there, so that the paths must not change."""

    #: A server.properties that the user mounted.
    properties: str
    data: str
    secrets: str


_OF_KAFKA = Places("/mnt/shared/config/server.properties", "/var/lib/kafka/data", "/etc/kafka/secrets")
PLACES: Mapping[str, Places] = {
    APACHE: _OF_KAFKA,
    CONFLUENT: _OF_KAFKA,
    bitnami.BITNAMI: Places(
        "/bitnami/kafka/config/server.properties", "/bitnami/kafka/data", "/opt/bitnami/kafka/config/certs"
    ),
}
#: `configure` writes this file and `launch` reads it: users such as testcontainers run their own step between the two.
CONFIGURED = "/etc/kafka/kafka.properties"

#: The default of apache/kafka's image: all its clusters that were started without a cluster id have this one.
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
IMAGE_DEFAULT = "image default"
#: A file with lines name:password, for a Secret of Kubernetes. These users have SCRAM credentials from the first start on.
SCRAM_USERS = "OTTLA_SCRAM_USERS"
ADMIN_LISTENER = "ottla.admin.listener"
DEFAULT_ADMIN_LISTENER = "0.0.0.0:9644"

#: The packaged server.properties, used if there are neither variables nor a file.
PACKAGED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "num.partitions": "1",
    "log.retention.hours": "168",
    **SINGLE_COPIES,
}
#: The part of it in the bitnami image, which requires roles and listeners from the user.
BITNAMI_PACKAGED = {"num.partitions": "1", "log.retention.hours": "168", **SINGLE_COPIES}


def resolve(environment: Environment, read: ReadFile, dialect: str | None = None) -> Resolution:
    """Map all variables of the environment to properties.

    Raises:
        ContainerError: the variables contradict each other, or a value is invalid.
    """
    environment, services = without_service_links(environment)
    environment, origins = expand(environment, read)
    resolution = detect(environment, read, dialect)
    if services:
        resolution.notes.append(
            f"variables that describe the Services {', '.join(services)} are not read; enableServiceLinks: false keeps them away"
        )
    image = older_image(environment) if resolution.dialect == APACHE else None
    if image is not None:
        environment, given = renamed(environment, image)
        origins |= given
    places = PLACES[resolution.dialect]
    mounted = read(places.properties)
    if mounted is not None:
        for name, value in read_file(mounted, places.properties).items():
            resolution.set(name, value, places.properties)
    if resolution.dialect == bitnami.BITNAMI:
        _from_bitnami(environment, resolution, read, mounted is not None)
    else:
        _from_kafka(environment, resolution, read, image, mounted is not None)
    adopt(resolution, image)
    if resolution.get("log.dirs") is None and resolution.get("log.dir") is None:
        resolution.set("log.dirs", places.data, IMAGE_DEFAULT)
    _set_cluster_id(environment, resolution)
    _set_own(environment, resolution)
    resolution.notes += notes(environment, resolution.get(ADMIN_LISTENER))
    _rename_origins(resolution, origins)
    return resolution


def detect(environment: Environment, read: ReadFile, dialect: str | None) -> Resolution:
    """Return the image that these variables belong to."""
    wanted = dialect or environment.get("OTTLA_DIALECT")
    if wanted:
        if wanted not in DIALECTS:
            raise ContainerError(f"there is no dialect {wanted}", "OTTLA_DIALECT", f"use one of {', '.join(DIALECTS)}")
        return Resolution(DIALECTS[wanted], "asked for")
    for variable in sorted(environment):
        if variable.startswith(bitnami.PREFIX):
            return Resolution(bitnami.BITNAMI, f"{variable} is set")
    if read(PLACES[bitnami.BITNAMI].properties) is not None:
        return Resolution(bitnami.BITNAMI, f"{PLACES[bitnami.BITNAMI].properties} is mounted")
    return Resolution(APACHE, f"no {bitnami.PREFIX} variable is set")


def _from_kafka(
    environment: Environment, resolution: Resolution, read: ReadFile, image: OlderImage | None, mounted: bool
) -> None:
    if resolution.dialect == CONFLUENT and not mounted:
        kafka_dialect.check_confluent(environment)
    kafka_dialect.map_variables(environment, resolution, resolution.dialect)
    if not resolution.settings and image is None:
        for name, value in PACKAGED.items():
            resolution.set(name, value, IMAGE_DEFAULT)
        resolution.notes.append("no variable and no file says anything: a cluster of one node, known as localhost")
    kafka_dialect.derive_listeners(resolution)
    kafka_dialect.set_credentials(environment, resolution, read, PLACES[resolution.dialect].secrets)
    kafka_dialect.set_jaas(environment, resolution, read)


def _from_bitnami(environment: Environment, resolution: Resolution, read: ReadFile, mounted: bool) -> None:
    if mounted:
        resolution.notes.append(f"{PLACES[bitnami.BITNAMI].properties} is mounted: KAFKA_CFG_ variables are not read")
        return
    bitnami.map_variables(environment, resolution)
    for name, value in BITNAMI_PACKAGED.items():
        resolution.set_default(name, value, IMAGE_DEFAULT)
    bitnami.set_stores(environment, resolution, read)


def _set_cluster_id(environment: Environment, resolution: Resolution) -> None:
    variables = ["CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID"]
    for variable in variables:
        if value := environment.get(variable, "").strip():
            resolution.cluster_id = ContainerSetting(value, variable)
            break
    # Kafka would not know these two properties. To this node, cluster.id is the id that its directories must have.
    for name in ("cluster.id", "kraft.cluster.id"):
        if resolution.origin(name) in variables:
            del resolution.settings[name]
    if resolution.dialect != bitnami.BITNAMI:
        resolution.default_cluster_id = DEFAULT_CLUSTER_ID


def _set_own(environment: Environment, resolution: Resolution) -> None:
    """Set Ottla's own properties: OTTLA_ADMIN_LISTENER (empty for none), and the log level under all its names."""
    resolution.settings.pop(ADMIN_LISTENER, None) if resolution.get(ADMIN_LISTENER) == "" else None
    if "OTTLA_ADMIN_LISTENER" in environment:
        if address := environment["OTTLA_ADMIN_LISTENER"].strip():
            resolution.set(ADMIN_LISTENER, address, "OTTLA_ADMIN_LISTENER")
    else:
        resolution.set_default(ADMIN_LISTENER, DEFAULT_ADMIN_LISTENER, IMAGE_DEFAULT)
    if users := environment.get(SCRAM_USERS):
        resolution.users += _read_users(users)
    level = environment.get("OTTLA_LOG_LEVEL") or environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL")
    if level:
        resolution.log_level = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}.get(
            level.strip().upper(), level.strip().upper()
        )
        if resolution.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
            resolution.notes.append(f"log level {level} is not known: INFO it is")
            resolution.log_level = "INFO"


def _read_users(text: str) -> list[User]:
    """Return the users in lines of name:password.

    Raises:
        ContainerError: a line has another form. The message does not quote it, because it may have a password.
    """
    pairs = [line.strip().partition(":") for line in text.splitlines() if line.strip()]
    if not all(name and password for name, _, password in pairs):
        raise ContainerError("a line is not name:password", SCRAM_USERS, "write one user on each line")
    return [User(name, password) for name, _, password in pairs]


def _rename_origins(resolution: Resolution, origins: dict[str, str]) -> None:
    for name, setting in resolution.settings.items():
        resolution.settings[name] = ContainerSetting(setting.value, origins.get(setting.origin, setting.origin))
    if resolution.topics is not None:
        resolution.topics = resolution.topics._replace(
            origin=origins.get(resolution.topics.origin, resolution.topics.origin)
        )
