"""A check of the log directories of a machine's processes before they start: their nodes, and their cluster."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from random import Random

from ottla.processes.plan import BROKER_FOLDER, PlannedProcess
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.server.config.key import ConfigError
from ottla.storage.directories.log_dirs import MetaProperties, read_meta_properties
from ottla.storage.errors import StorageFailure
from ottla.storage.files import Files


def check_directories(files: Files, nodes: Sequence[PlannedProcess], where: Mapping[str, str]) -> None:
    """Refuse to start beside data that these processes would not serve.

    Raises:
        ConfigError: a directory is that of a single process, of a machine with another node.id, or of one with more brokers.
    """
    names = {node.name for node in nodes}
    for node in nodes:
        for path in _directories(node):
            parent = os.path.dirname(path)
            if (single := _meta(files, parent)) is not None:
                why = f"{parent} has the data of node {single.node_id}, which was a single process"
                raise _refusal(parent, where, why, "a single process again, or another log.dirs")
            if (meta := _meta(files, path)) is not None and meta.node_id != node.node_id:
                why = f"{path} belongs to node {meta.node_id}, and {node.name} is node {node.node_id}"
                raise _refusal(parent, where, why, "the node.id of last time, or another log.dirs")
            others = {name for name in _names(files, parent) if name.startswith(BROKER_FOLDER)} - names
            if left := sorted(name for name in others if _meta(files, os.path.join(parent, name)) is not None):
                why = f"{parent} has the data of {', '.join(left)}, more brokers than are to be started"
                remedy = "as many processes as last time; or move their partitions to others and the folder elsewhere"
                raise _refusal(parent, where, why, remedy)


def cluster_id_of(files: Files, nodes: Sequence[PlannedProcess], rng: Random) -> str:
    """Return the cluster id of the machine's processes: the configured one, the one on disk, or a new one for all of them."""
    if configured := nodes[0].properties.get("cluster.id"):
        return configured
    for node in nodes:
        for path in _directories(node):
            if (meta := _meta(files, path)) is not None:
                return meta.cluster_id
    return uuid_to_str(new_uuid(rng))


def _directories(node: PlannedProcess) -> list[str]:
    own = [*node.properties["log.dirs"].split(","), node.properties.get("metadata.log.dir")]
    return [path for path in dict.fromkeys(own) if path]


def _meta(files: Files, path: str) -> MetaProperties | None:
    try:
        return read_meta_properties(files, path)
    except StorageFailure:
        return None  # the process itself handles a directory that cannot be read: it goes on with the others


def _names(files: Files, path: str) -> list[str]:
    try:
        return files.list_dir(path)
    except (StorageFailure, OSError):
        return []


def _refusal(path: str, where: Mapping[str, str], why: str, remedy: str) -> ConfigError:
    origin = f" ({where['log.dirs']})" if "log.dirs" in where else ""
    return ConfigError("log.dirs", path, why, remedy, message=f"log.dirs{origin}: {why}")
