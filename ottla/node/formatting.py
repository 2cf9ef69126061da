"""The log directories of a node before it starts: formatted if they are new, rejected if they belong to another node.

Kafka wants `kafka-storage format` first. Here a node formats its empty directories by itself where nothing can be lost by it:

    a broker                     the quorum has the metadata; it needs cluster.id, or another formatted directory
    a quorum of this node alone  its address is the only voter, or the only bootstrap server: then it becomes the first voter
    one directory of several     if the metadata log is in another, formatted one: the disk is new

A voter of several that came back with an empty disk would vote as if it had never acknowledged anything: two of three such votes
elect a leader without the committed metadata. Nothing on an empty disk says whether it is the first start or a disk that was not
mounted, so a person says it: `ottla format`, or ottla.format.empty.directories=true where disks cannot be missing.
"""

from __future__ import annotations

import logging
import os.path
import socket
from collections.abc import Mapping, Sequence
from random import Random

from ottla.controller.raft.metadata_log import DIRECTORY
from ottla.controller.raft.snapshots import write_initial_voters
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.node.settings import registered_host
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.protocol.schema import ZERO_UUID
from ottla.server.config.node_config import NodeConfig
from ottla.storage.directories.log_dirs import (
    LOCK,
    META_PROPERTIES,
    RESERVED_IDS,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.errors import InconsistentLogDirectory, StorageFailure
from ottla.storage.files import Files

log = logging.getLogger(__name__)

#: Entries that a file system itself puts into its root.
NOT_OURS = frozenset({"lost+found", LOCK})
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NotFormatted(InconsistentLogDirectory):
    """The node may not format its directories by itself."""


def new_directory_id(rng: Random) -> bytes:
    """Ids whose first bytes are zero mean something else (KIP-858)."""
    while True:
        directory_id = new_uuid(rng)
        if int.from_bytes(directory_id, "big") >= RESERVED_IDS and directory_id != ZERO_UUID:
            return directory_id


def prepare(files: Files, config: NodeConfig, rng: Random, now_ms: int) -> str:
    """Format what the node may format by itself, and return the cluster id: the configured one, the one on disk, or a new one.

    A directory that cannot be read is left to `open_log_dirs`, which goes on without it.

    Raises:
        InconsistentLogDirectory: a directory is another cluster's or node's, or has files that are not a log directory's.
        NotFormatted: a person has to format the directories, or to mount a disk. Nothing was formatted.
    """
    metadata = config.metadata_log_directory
    directories = list(dict.fromkeys([metadata, *config.log_directories]))
    found = _look(files, directories)
    cluster_id = _cluster_of(found, config.node_id, config["cluster.id"])
    is_new = metadata in found and found[metadata] is None
    if is_new:
        _check_is_first_start(files, metadata, found)
        if not (config["ottla.format.empty.directories"] or may_format(config, cluster_id)):
            raise _not_formatted(config, cluster_id, rng)
    directory_id = new_directory_id(rng)
    if is_new and config.is_controller and config.bootstrap_servers and not config.voters and is_alone(config):
        voters = VoterSet.of([own_voter(config, directory_id)])
        write_initial_voters(files, f"{metadata}/{DIRECTORY}", voters, now_ms)
    return _format(files, found, config.node_id, cluster_id, rng, {metadata: directory_id})


def may_format(config: NodeConfig, cluster_id: str | None) -> bool:
    """Return whether no committed metadata can be lost if the node formats its empty metadata directory."""
    return is_alone(config) if config.is_controller else cluster_id is not None


def is_alone(config: NodeConfig) -> bool:
    """Return whether this node is the only voter, or its own address the only one from which the quorum is to be learnt."""
    if config.voters:
        return [node_id for node_id, _, _ in config.voters] == [config.node_id]
    if not config.bootstrap_servers:
        return True  # it names no other voter
    own = {
        (host, port)
        for endpoint in config.controller_endpoints
        for port in (endpoint.port, endpoint.advertised_port)
        for host in (endpoint.host, endpoint.advertised_host, *LOOPBACK, socket.gethostname())
    }
    return len(config.bootstrap_servers) == 1 and config.bootstrap_servers[0] in own


def own_voter(config: NodeConfig, directory_id: bytes) -> Voter:
    """Return this node as the first voter of a quorum in the log (KIP-853)."""
    endpoints = [
        QuorumEndpoint(each.name, registered_host(each), each.advertised_port or each.port)
        for each in config.controller_endpoints
    ]
    return Voter(ReplicaKey(config.node_id, directory_id), tuple(endpoints))


def _look(files: Files, directories: Sequence[str]) -> dict[str, MetaProperties | None]:
    """Return the identities of the directories that can be read; the first one is that of the metadata log."""
    found: dict[str, MetaProperties | None] = {}
    failures: list[tuple[str, StorageFailure]] = []
    for path in directories:
        try:
            files.make_dirs(path)
            found[path] = read_meta_properties(files, path)
            if found[path] is None:
                _check_empty(files, path)
        except StorageFailure as failure:
            failures.append((path, failure))
    for path, reason in failures:
        # Without the metadata's directory the start ends, with this reason.
        if path != directories[0] and found:
            log.error("Log directory %s cannot be used: %s", path, reason)
    return found


def _cluster_of(found: Mapping[str, MetaProperties | None], node_id: int, cluster_id: str | None) -> str | None:
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
    return cluster_id


def _check_is_first_start(files: Files, metadata: str, found: Mapping[str, MetaProperties | None]) -> None:
    """Raise NotFormatted if the node has run before with its metadata log elsewhere, or on a disk that is missing now."""
    for path, meta in found.items():
        if meta is None:
            continue
        if files.exists(f"{path}/{DIRECTORY}"):
            raise NotFormatted(
                f"the metadata log of this node is in {path}, and {metadata} is configured for it, which is empty: "
                f"set metadata.log.dir={path}, or name it first in log.dirs"
            )
        raise NotFormatted(
            f"{metadata}, where the metadata log of this node is to be, is empty, and {path} is formatted already: is a disk not "
            f"mounted? If it is lost: ottla format FILE --cluster-id {meta.cluster_id} --no-initial-controllers"
        )


def _not_formatted(config: NodeConfig, cluster_id: str | None, rng: Random) -> NotFormatted:
    metadata = config.metadata_log_directory
    if not config.is_controller:
        return NotFormatted(
            f"{metadata} is not formatted, and this broker does not know the id of its cluster: set cluster.id in its file, or format "
            "it: ottla format FILE --cluster-id ID. The id is cluster.id in meta.properties of a controller's directory"
        )
    named = "" if config["cluster.id"] is not None else f" --cluster-id {cluster_id or uuid_to_str(new_uuid(rng))}"
    command = f"ottla format FILE{named}"
    if config.voters:
        return NotFormatted(
            f"{metadata} is not formatted, and this node is not a quorum by itself. If the disk is mounted, and this is the first start "
            f"of a new cluster, format each of its controllers: {command}"
        )
    return NotFormatted(
        f"{metadata} is not formatted, and this node is not a quorum by itself. If the disk is mounted: each controller of a new cluster "
        f"is formatted before its first start, {command} --initial-controllers ID@HOST:PORT:DIRECTORY-ID,... (`ottla init` prints the "
        f"list). A node that has lost its disk, and comes back to its cluster, is formatted as one that joins, {command} "
        "--no-initial-controllers: with the list it would vote without what it had acknowledged"
    )


def _format(
    files: Files,
    found: Mapping[str, MetaProperties | None],
    node_id: int,
    cluster_id: str | None,
    rng: Random,
    ids: Mapping[str, bytes],
) -> str:
    if cluster_id is None:
        cluster_id = uuid_to_str(new_uuid(rng))
    for path, meta in found.items():
        if meta is None or meta.directory_id is None:
            _keep(files, path)
            directory_id = ids.get(path) or new_directory_id(rng)
            write_meta_properties(files, path, MetaProperties(cluster_id, node_id, directory_id))
            log.info("Formatted %s for node %d of cluster %s", path, node_id, cluster_id)
    return cluster_id


def _keep(files: Files, path: str) -> None:
    """Put the directory's own name on the disk: a power loss would take it away with all that is synced inside.

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
    if nodes := [name for name in names if files.exists(f"{path}/{name}/{META_PROPERTIES}")]:
        raise InconsistentLogDirectory(
            f"{path} has the directories of several nodes ({', '.join(nodes)}): start them with --processes, as last time"
        )
    if names:
        raise InconsistentLogDirectory(
            f"{path} has no meta.properties but is not empty ({', '.join(names[:3])}): "
            "it is no log directory; check log.dirs"
        )
