"""Maps a container's environment and mounted files to the properties of a node. Nothing is started, written or checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.container import bitnami, kafka_dialect
from ottla.container.jaas import DEFAULT_SECTION, read_jaas
from ottla.container.kafka_dialect import APACHE, CONFLUENT
from ottla.container.places import (
    APACHE as APACHE_PLACES,
)
from ottla.container.places import (
    BITNAMI as BITNAMI_PLACES,
)
from ottla.container.places import (
    BITNAMI_MOUNTED_CERTIFICATES,
    Places,
)
from ottla.container.places import (
    CONFLUENT as CONFLUENT_PLACES,
)
from ottla.container.properties_text import read_file
from ottla.container.secret_files import expand
from ottla.container.settings import ContainerError, Environment, ReadFile, Resolution, Setting

DIALECTS: Mapping[str, str] = {"apache": APACHE, "confluent": CONFLUENT, "bitnami": bitnami.BITNAMI}
PLACES: Mapping[str, Places] = {
    APACHE: APACHE_PLACES,
    CONFLUENT: CONFLUENT_PLACES,
    bitnami.BITNAMI: BITNAMI_PLACES,
}
#: The default of apache/kafka's image: all clusters that were started without a cluster id have this one.
DEFAULT_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
IMAGE_DEFAULT = "image default"
ADMIN_LISTENER = "ottla.admin.listener"
DEFAULT_ADMIN_LISTENER = "0.0.0.0:9644"

#: Internal topics of a cluster that may have one node.
SINGLE_COPIES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
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
#: The part of it that the bitnami image has, which requires that roles and listeners are given.
BITNAMI_PACKAGED = {"num.partitions": "1", "log.retention.hours": "168", **SINGLE_COPIES}
_LOGIN_CONFIG = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")


def resolve(environment: Environment, read: ReadFile, dialect: str | None = None) -> Resolution:
    """Map all variables of the environment to properties.

    Raises:
        ContainerError: the variables contradict each other, or a value is invalid.
    """
    environment, origins = expand(environment, read)
    resolution = detect(environment, read, dialect)
    places = PLACES[resolution.dialect]
    mounted = read(places.properties)
    if mounted is not None:
        for name, value in read_file(mounted, places.properties).items():
            resolution.set(name, value, places.properties)
    if resolution.dialect == bitnami.BITNAMI:
        _from_bitnami(environment, resolution, read, mounted is not None)
    else:
        _from_kafka(environment, resolution, read, mounted is not None)
    _adopt_zookeeper_era(resolution)
    if resolution.get("log.dirs") is None and resolution.get("log.dir") is None:
        resolution.set("log.dirs", places.data, IMAGE_DEFAULT)
    _set_cluster_id(environment, resolution)
    _set_own(environment, resolution)
    _rename_origins(resolution, origins)
    return resolution


def detect(environment: Environment, read: ReadFile, dialect: str | None) -> Resolution:
    """Return the image whose variables these are."""
    wanted = dialect or environment.get("OTTLA_DIALECT")
    if wanted:
        if wanted not in DIALECTS:
            raise ContainerError(f"there is no dialect {wanted}", "OTTLA_DIALECT", f"use one of {', '.join(DIALECTS)}")
        return Resolution(DIALECTS[wanted], "asked for")
    for variable in sorted(environment):
        if variable.startswith(bitnami.PREFIX):
            return Resolution(bitnami.BITNAMI, f"{variable} is set")
    if read(BITNAMI_PLACES.properties) is not None:
        return Resolution(bitnami.BITNAMI, f"{BITNAMI_PLACES.properties} is mounted")
    return Resolution(APACHE, f"no {bitnami.PREFIX} variable is set")


def _from_kafka(environment: Environment, resolution: Resolution, read: ReadFile, mounted: bool) -> None:
    if resolution.dialect == CONFLUENT and not mounted:
        kafka_dialect.check_confluent(environment)
    kafka_dialect.map_variables(environment, resolution, resolution.dialect)
    if not resolution.settings:
        for name, value in PACKAGED.items():
            resolution.set(name, value, IMAGE_DEFAULT)
        resolution.notes.append("no variable and no file says anything: a cluster of one node, known as localhost")
    kafka_dialect.derive_listeners(resolution)
    _set_credentials(environment, resolution, read, PLACES[resolution.dialect].secrets)
    _set_jaas(environment, resolution, read)


def _from_bitnami(environment: Environment, resolution: Resolution, read: ReadFile, mounted: bool) -> None:
    if mounted:
        resolution.notes.append(f"{BITNAMI_PLACES.properties} is mounted: KAFKA_CFG_ variables are not read")
        return
    bitnami.map_variables(environment, resolution)
    for name, value in BITNAMI_PACKAGED.items():
        resolution.set_default(name, value, IMAGE_DEFAULT)
    _set_bitnami_stores(environment, resolution, read)


def _set_bitnami_stores(environment: Environment, resolution: Resolution, read: ReadFile) -> None:
    """Keystore and truststore where that image looks for them, if a listener needs them."""
    text = f"{resolution.get('listeners')},{resolution.get('listener.security.protocol.map')}"
    if "SSL" not in text:
        return
    kind = environment.get("KAFKA_TLS_TYPE", "JKS").upper()
    ending = "pem" if kind == "PEM" else "jks"
    folder = BITNAMI_MOUNTED_CERTIFICATES
    resolution.set_default("ssl.keystore.type", kind, "KAFKA_TLS_TYPE")
    key = read(f"{folder}/kafka.keystore.key") if kind == "PEM" else None
    chain = read(f"{folder}/kafka.keystore.pem") if kind == "PEM" else None
    if key is None or chain is None:
        resolution.set_default("ssl.keystore.location", f"{folder}/kafka.keystore.{ending}", IMAGE_DEFAULT)
    else:
        # Two files there, where Kafka's own property for a file wants both in one.
        resolution.set_default("ssl.keystore.key", key.decode(), f"{folder}/kafka.keystore.key")
        resolution.set_default("ssl.keystore.certificate.chain", chain.decode(), f"{folder}/kafka.keystore.pem")
    resolution.set_default("ssl.truststore.type", kind, "KAFKA_TLS_TYPE")
    trusted = environment.get("KAFKA_TLS_TRUSTSTORE_FILE") or f"{folder}/kafka.truststore.{ending}"
    resolution.set_default("ssl.truststore.location", trusted, "KAFKA_TLS_TRUSTSTORE_FILE")
    resolution.set_default(
        "ssl.client.auth", environment.get("KAFKA_TLS_CLIENT_AUTH", "required"), "KAFKA_TLS_CLIENT_AUTH"
    )
    if password := environment.get("KAFKA_CERTIFICATE_PASSWORD"):
        stores = () if kind == "PEM" else ("ssl.keystore.password", "ssl.truststore.password")
        for name in ("ssl.key.password", *stores):
            resolution.set_default(name, password, "KAFKA_CERTIFICATE_PASSWORD")


def _set_credentials(environment: Environment, resolution: Resolution, read: ReadFile, folder: str) -> None:
    """TLS stores by file name, and their passwords by the name of the file that has them; all in the secrets folder."""
    for variable, name in kafka_dialect.CREDENTIAL_FILES.items():
        if file_name := environment.get(variable):
            resolution.set(name, f"{folder}/{file_name}", variable)
    for variable, name in kafka_dialect.CREDENTIAL_CONTENTS.items():
        if file_name := environment.get(variable):
            data = read(f"{folder}/{file_name}")
            if data is None:
                raise ContainerError(f"there is no file {folder}/{file_name}", variable, f"mount it into {folder}")
            resolution.set(name, data.decode("utf-8", "surrogateescape").strip(), f"{variable} ({folder}/{file_name})")


def _set_jaas(environment: Environment, resolution: Resolution, read: ReadFile) -> None:
    """Sets the properties of listeners with passwords from the JAAS file that the JVM's options name."""
    match = _LOGIN_CONFIG.search(environment.get("KAFKA_OPTS", ""))
    if match is None:
        return
    path = match.group(1).strip("\"'")
    data = read(path)
    if data is None:
        raise ContainerError(f"there is no JAAS file {path}", "KAFKA_OPTS", "mount it there, or take the option out")
    sections = read_jaas(data.decode("utf-8", "replace"), path)
    protocols = resolution.get("listener.security.protocol.map") or "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    for entry in protocols.split(","):
        listener, _, protocol = (part.strip() for part in entry.partition(":"))
        section = f"{listener.lower()}.{DEFAULT_SECTION}"
        if not protocol.upper().startswith("SASL"):
            continue
        for module in sections.get(section, sections.get(DEFAULT_SECTION, ())):
            for mechanism in module.mechanisms:
                name = f"listener.name.{listener.lower()}.{mechanism}.sasl.jaas.config"
                resolution.set_default(name, module.text(), f"KAFKA_OPTS ({path})")


def _adopt_zookeeper_era(resolution: Resolution) -> None:
    """Supports compose files from before KRaft: a broker with a replication factor of 1 for its offsets becomes its own controller."""
    if resolution.get("process.roles") is not None or resolution.get("zookeeper.connect") is None:
        return
    origin = resolution.origin("zookeeper.connect")
    if resolution.get("offsets.topic.replication.factor") != "1":
        raise ContainerError(
            "there is no ZooKeeper any more, and process.roles is not set",
            origin,
            "remove it and set KAFKA_PROCESS_ROLES=broker,controller with KAFKA_NODE_ID and KAFKA_CONTROLLER_QUORUM_VOTERS",
        )
    why = f"instead of {origin}"
    listeners = resolution.get("listeners") or "PLAINTEXT://:9092"
    ports = {int(port) for port in re.findall(r":(\d+)", listeners)}
    port = next(p for p in range(9093, 65_536) if p not in ports)
    resolution.set("process.roles", "broker,controller", why)
    if resolution.get("node.id") is None and resolution.get("broker.id") is None:
        resolution.set("node.id", "1", why)
    resolution.set("listeners", f"{listeners},CONTROLLER://127.0.0.1:{port}", why)
    resolution.set("controller.listener.names", "CONTROLLER", why)
    if protocols := resolution.get("listener.security.protocol.map"):
        resolution.set("listener.security.protocol.map", f"{protocols},CONTROLLER:PLAINTEXT", why)
    resolution.notes.append(f"{origin} is not needed: this node is its own controller")


def _set_cluster_id(environment: Environment, resolution: Resolution) -> None:
    variables = ["CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID"]
    for variable in variables:
        if value := environment.get(variable, "").strip():
            resolution.cluster_id = Setting(value, variable)
            break
    # To Kafka these two would be unknown properties; to the node, cluster.id is what it must find in its directories.
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
    level = environment.get("OTTLA_LOG_LEVEL") or environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL")
    if level:
        resolution.log_level = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}.get(
            level.strip().upper(), level.strip().upper()
        )
        if resolution.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
            resolution.notes.append(f"log level {level} is not known: INFO it is")
            resolution.log_level = "INFO"


def _rename_origins(resolution: Resolution, origins: dict[str, str]) -> None:
    for name, setting in resolution.settings.items():
        if setting.origin in origins:
            resolution.settings[name] = Setting(setting.value, origins[setting.origin])
