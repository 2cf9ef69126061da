"""Images from before KRaft, or with variables of their own: their variables are translated to those of apache/kafka.

Each image is recognised by a variable that no other image has. ZooKeeper no longer exists: a broker that was alone becomes its
own controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.container.settings import ContainerError, ContainerSetting, Environment, Resolution
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER

#: The replication of internal topics in a cluster that may have one node.
SINGLE_COPIES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
ACL_AUTHORIZERS = frozenset({"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"})
AUTHORIZER = "authorizer.class.name"
ADVERTISED_HOST, ADVERTISED_PORT = "advertised.host.name", "advertised.port"
DEFAULT_PORT = 9092


class OlderImage(NamedTuple):
    """An older image: the variables that it is recognised by, and the names under which its other variables are read here."""

    name: str
    known_by: frozenset[str]
    renamed: Mapping[str, str]
    #: Variables of that image that this image does not support.
    lacks: str = ""
    #: Whether a node without a role is broker and controller, with a listener for each.
    is_combined: bool = False


OLDER_IMAGES = (
    OlderImage(
        "debezium/kafka",
        frozenset({"NODE_ROLE", "NODE_ID", "BROKER_ID", "ZOOKEEPER_CONNECT"}),
        {
            "NODE_ID": "KAFKA_NODE_ID",
            "BROKER_ID": "KAFKA_NODE_ID",
            "ZOOKEEPER_CONNECT": "KAFKA_ZOOKEEPER_CONNECT",
            "NODE_ROLE": "KAFKA_PROCESS_ROLES",
            "CREATE_TOPICS": "KAFKA_CREATE_TOPICS",
            "ADVERTISED_HOST_NAME": "KAFKA_ADVERTISED_HOST_NAME",
            "ADVERTISED_PORT": "KAFKA_ADVERTISED_PORT",
            "LOG_LEVEL": "KAFKA_LOG4J_ROOT_LOGLEVEL",
        },
        is_combined=True,
    ),
    OlderImage(
        "lensesio/fast-data-dev",
        frozenset({"ADV_HOST"}),
        {"ADV_HOST": "KAFKA_ADVERTISED_HOST_NAME", "BROKER_PORT": "KAFKA_ADVERTISED_PORT"},
        "only its broker is here, without the registry, Connect, the user interface and SAMPLEDATA",
    ),
    OlderImage(
        "spotify/kafka",
        frozenset({"ADVERTISED_HOST"}),
        {
            "ADVERTISED_HOST": "KAFKA_ADVERTISED_HOST_NAME",
            "ADVERTISED_PORT": "KAFKA_ADVERTISED_PORT",
            "NUM_PARTITIONS": "KAFKA_NUM_PARTITIONS",
            "LOG_RETENTION_HOURS": "KAFKA_LOG_RETENTION_HOURS",
            "LOG_RETENTION_BYTES": "KAFKA_LOG_RETENTION_BYTES",
            "AUTO_CREATE_TOPICS": "KAFKA_AUTO_CREATE_TOPICS_ENABLE",
        },
        "only its broker is here, and no ZooKeeper on port 2181",
    ),
    OlderImage(
        "wurstmeister/kafka", frozenset({"KAFKA_CREATE_TOPICS", "KAFKA_ADVERTISED_HOST_NAME", "HOSTNAME_COMMAND"}), {}
    ),
)


def older_image(environment: Environment) -> OlderImage | None:
    """Return the image in the table that these variables belong to, if there is one."""
    return next((image for image in OLDER_IMAGES if image.known_by & environment.keys()), None)


def renamed(environment: Environment, image: OlderImage) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment with the names of apache/kafka, and for each translated variable the original name."""
    found, origins = dict(environment), {}
    for given, name in image.renamed.items():
        if given in environment and name not in found:
            found[name] = environment[given]
            origins[name] = given
    if found.get("KAFKA_PROCESS_ROLES") == "combined":
        found["KAFKA_PROCESS_ROLES"] = "broker,controller"
    return found, origins


def adopt(resolution: Resolution, image: OlderImage | None) -> None:
    """Translate properties of those images and of ZooKeeper's time into today's properties."""
    _set_topics(resolution)
    _replace_authorizer(resolution)
    if image is not None:
        resolution.notes.append(f"these are variables of {image.name}" + (f": {image.lacks}" if image.lacks else ""))
        _advertise(resolution)
        if image.is_combined and not resolution.origin("zookeeper.connect"):
            resolution.set_default("process.roles", "broker,controller", f"{image.name} default")
            resolution.set_default("node.id", "1", f"{image.name} default")
            listeners = {"broker": f"PLAINTEXT://:{DEFAULT_PORT}", "controller": f"CONTROLLER://:{DEFAULT_PORT + 1}"}
            roles = (resolution.get("process.roles") or "").split(",")
            named = ",".join(listener for role, listener in listeners.items() if role in map(str.strip, roles))
            resolution.set_default("listeners", named, f"{image.name} default")
    is_alone = resolution.get("process.roles") is None and _is_alone(resolution, image)
    if is_alone:
        _become_own_controller(resolution, image)
    if image is not None and "controller" in (resolution.get("process.roles") or ""):
        resolution.set_default("controller.listener.names", "CONTROLLER", f"{image.name} default")
        for name, value in SINGLE_COPIES.items():
            resolution.set_default(name, value, f"{image.name} default")


def _set_topics(resolution: Resolution) -> None:
    if "create.topics" in resolution.settings:
        separator = resolution.settings.pop("create.topics.separator", ContainerSetting(",", ""))
        given = resolution.settings.pop("create.topics")
        topics = [text.strip() for text in given.value.split(separator.value) if text.strip()]
        resolution.topics = ContainerSetting(",".join(topics), given.origin)


def _replace_authorizer(resolution: Resolution) -> None:
    given = resolution.settings.get(AUTHORIZER)
    if given is not None and given.value in ACL_AUTHORIZERS:
        resolution.set(AUTHORIZER, STANDARD_AUTHORIZER, given.origin)
        resolution.notes.append(
            f"{given.origin}: {given.value} kept its entries in ZooKeeper; StandardAuthorizer is used instead"
        )


def _advertise(resolution: Resolution) -> None:
    """Make one listener of advertised.host.name and its port, which Kafka 3.0 removed."""
    host, port = (resolution.settings.pop(name, None) for name in (ADVERTISED_HOST, ADVERTISED_PORT))
    own = resolution.settings.pop("port", None)
    if resolution.get("advertised.listeners") is not None:
        return
    bound = own.value if own is not None else str(DEFAULT_PORT)
    if own is not None:
        resolution.set_default("listeners", f"PLAINTEXT://:{bound}", own.origin)
    if host is not None:
        number = port.value if port is not None else bound
        resolution.set_default("listeners", f"PLAINTEXT://:{bound}", host.origin)
        resolution.set("advertised.listeners", f"PLAINTEXT://{host.value}:{number}", host.origin)


def _is_alone(resolution: Resolution, image: OlderImage | None) -> bool:
    """Return whether the cluster has no other broker.

    Raises:
        ContainerError: there may be others, which would not find each other without ZooKeeper.
    """
    zookeeper = resolution.origin("zookeeper.connect")
    # A cluster of wurstmeister's brokers has numbered brokers, or one service that is scaled; its examples of a single broker
    # have neither.
    if image is not None and resolution.get("broker.id") is None:
        return True
    if not zookeeper:
        return False
    if resolution.get("offsets.topic.replication.factor") != "1":
        raise ContainerError(
            "there is no ZooKeeper any more, and process.roles is not set",
            zookeeper,
            "remove it and set KAFKA_PROCESS_ROLES=broker,controller with KAFKA_NODE_ID and KAFKA_CONTROLLER_QUORUM_VOTERS",
        )
    return True


def _become_own_controller(resolution: Resolution, image: OlderImage | None) -> None:
    zookeeper = resolution.origin("zookeeper.connect")
    why = f"instead of {zookeeper}" if zookeeper else f"{image.name} default" if image else ""
    listeners = resolution.get("listeners") or f"PLAINTEXT://:{DEFAULT_PORT}"
    ports = {int(port) for port in re.findall(r":(\d+)", listeners)}
    port = next(p for p in range(DEFAULT_PORT + 1, 65_536) if p not in ports)
    resolution.set("process.roles", "broker,controller", why)
    if resolution.get("node.id") is None and resolution.get("broker.id") is None:
        resolution.set("node.id", "1", why)
    if not re.search(r"(?:^|,)\s*CONTROLLER://", listeners):
        resolution.set("listeners", f"{listeners},CONTROLLER://127.0.0.1:{port}", why)
    resolution.set("controller.listener.names", "CONTROLLER", why)
    protocols = resolution.get("listener.security.protocol.map")
    if protocols and not re.search(r"(?:^|,)\s*CONTROLLER:", protocols):
        resolution.set("listener.security.protocol.map", f"{protocols},CONTROLLER:PLAINTEXT", why)
    if zookeeper:
        del resolution.settings["zookeeper.connect"]
        resolution.notes.append(f"{zookeeper} is not needed: this node is its own controller")
