"""The log directories of a node before it starts: formatted if they are empty, rejected if they belong to another node.

Kafka wants `kafka-storage format` first. Here an empty directory is formatted by the node itself; one with files but without
meta.properties is an error, as in Kafka: it may be the wrong mount point.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import Sequence
from random import Random

from ottla.protocol.primitives import ZERO_UUID, new_uuid
from ottla.storage.errors import InconsistentLogDirectory, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log_dirs import (
    LOCK,
    RESERVED_IDS,
    MetaProperties,
    id_to_text,
    read_meta_properties,
    write_meta_properties,
)

log = logging.getLogger(__name__)

#: Entries that a file system itself puts into its root.
NOT_OURS = frozenset({"lost+found", LOCK})


def new_directory_id(rng: Random) -> bytes:
    """Ids whose first bytes are zero mean something else (KIP-858)."""
    while True:
        directory_id = new_uuid(rng)
        if int.from_bytes(directory_id, "big") >= RESERVED_IDS and directory_id != ZERO_UUID:
            return directory_id


def prepare(files: Files, directories: Sequence[str], node_id: int, cluster_id: str | None, rng: Random) -> str:
    """Format the empty directories and return the cluster id: the configured one, the one on disk, or a new one.

    A directory that cannot be read is left to `open_log_dirs`, which goes on without it.

    Raises:
        InconsistentLogDirectory: a directory is another cluster's or node's, or has files that are not a log directory's.
    """
    found: dict[str, MetaProperties | None] = {}
    for path in directories:
        try:
            files.make_dirs(path)
            found[path] = read_meta_properties(files, path)
            if found[path] is None:
                _check_empty(files, path)
        except StorageFailure as failure:
            log.error("Log directory %s cannot be used: %s", path, failure)
    for path, meta in found.items():
        if meta is None:
            continue
        if meta.node_id != node_id:
            raise InconsistentLogDirectory(
                f"{path} belongs to node {meta.node_id}, and this is node {node_id}: "
                f"start it with node.id={meta.node_id}, or give this node another log.dirs"
            )
        if cluster_id is not None and meta.cluster_id != cluster_id:
            raise InconsistentLogDirectory(
                f"{path} belongs to cluster {meta.cluster_id}, and this node is configured for {cluster_id}: "
                "give it another log.dirs, or leave cluster.id out"
            )
        cluster_id = meta.cluster_id
    if cluster_id is None:
        cluster_id = id_to_text(new_uuid(rng))
    for path, meta in found.items():
        if meta is None or meta.directory_id is None:
            _keep(files, path)
            write_meta_properties(files, path, MetaProperties(cluster_id, node_id, new_directory_id(rng)))
            log.info("Formatted %s for node %d of cluster %s", path, node_id, cluster_id)
    return cluster_id


def _keep(files: Files, path: str) -> None:
    """Puts the directory's own name on the disk: a power loss would take it away with all that is synced inside.

    It also syncs the entries of the directories above it, which may be new: an interrupted start may have created some of them.
    """
    above = os.path.dirname(os.path.abspath(path))
    while True:
        try:
            files.sync_dir(above)
        except StorageFailure as failure:
            log.info("%s cannot be synced: %s", above, failure)  # another user's directory: it existed before
        if above == os.path.dirname(above):
            return
        above = os.path.dirname(above)


def _check_empty(files: Files, path: str) -> None:
    names = sorted(set(files.list_dir(path)) - NOT_OURS)
    if names:
        raise InconsistentLogDirectory(
            f"{path} has no meta.properties but is not empty ({', '.join(names[:3])}): "
            "it is no log directory; check log.dirs, or empty it"
        )
