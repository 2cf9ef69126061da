"""The log directories of a node (JBOD): their identity (`meta.properties`), their lock, and whether they still work.

version=1, cluster.id, node.id, directory.id (KIP-858): written once when a directory is formatted, checked at start. Beside it lies
the mark of a clean stop (`.kafka_cleanshutdown`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field

from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.slotted import frozen, mutable
from ottla.storage.errors import InconsistentLogDirectory, StorageFailure, ZooKeeperDirectory
from ottla.storage.files import FileLock, Files

META_PROPERTIES = "meta.properties"
#: The mark of a clean stop (KIP-966): with it, opening reads the ends of the logs only.
CLEAN_MARK = ".kafka_cleanshutdown"
LOCK = ".lock"
VERSION = "1"
#: Kafka with ZooKeeper: broker.id in place of node.id.
ZOOKEEPER_VERSION = "0"
# Directory ids with a special meaning (KIP-858): unassigned, lost, migrating; and those that Kafka reserves.
RESERVED_IDS = 100


@frozen
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: bytes | None  # directories from before KIP-858 have none


@mutable
class LogDir:
    """One directory: in use, or offline since `failure`."""

    path: str
    meta: MetaProperties | None = None
    failure: StorageFailure | None = None
    lock: FileLock | None = field(default=None, repr=False)
    cordoned: bool = False  # gets no new logs while another directory can take them (KIP-1066)

    @property
    def directory_id(self) -> bytes:
        assert self.meta is not None and self.meta.directory_id is not None, f"{self.path} is not formatted"
        return self.meta.directory_id

    def fail(self, failure: StorageFailure) -> None:
        """Take the directory offline."""
        self.failure = failure

    @property
    def online(self) -> bool:
        return self.failure is None


def read_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """Return the identity of a directory, or None if it is not formatted.

    Raises:
        InconsistentLogDirectory: the file is damaged or of an unknown version.
        ZooKeeperDirectory: the directory is of a Kafka with ZooKeeper.
    """
    path = f"{directory}/{META_PROPERTIES}"
    data = files.read(path)
    if data is None:
        return None
    try:
        values = dict(_properties(data.decode()))
        if values.get("version") == ZOOKEEPER_VERSION:
            raise ZooKeeperDirectory(path, values.get("broker.id"))
        if (version := values.get("version", "")) != VERSION:
            if version.isdecimal() and int(version) > int(VERSION):
                raise InconsistentLogDirectory(
                    f"{path} has version {version}, and this release knows {VERSION}: start the newer one that wrote it. "
                    "Do not format the directory: it has the records"
                )
            raise ValueError(f"version is {version or 'missing'}, not {VERSION}")
        directory_id = uuid_from_str(values["directory.id"]) if "directory.id" in values else None
        return MetaProperties(values["cluster.id"], int(values["node.id"]), directory_id)
    except (ValueError, KeyError) as error:
        raise InconsistentLogDirectory(
            f"{path} is damaged ({error}): restore it, or format the directory again"
        ) from error


def write_meta_properties(files: Files, directory: str, meta: MetaProperties) -> None:
    lines = ["#", f"cluster.id={meta.cluster_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_to_str(meta.directory_id)}")
    lines += [f"node.id={meta.node_id}", f"version={VERSION}", ""]
    files.make_dirs(directory)
    files.write_atomic(f"{directory}/{META_PROPERTIES}", "\n".join(lines).encode())


def open_log_dirs(files: Files, paths: Iterable[str], cluster_id: str | None, node_id: int) -> list[LogDir]:
    """Lock the directories and check that they belong to this node. A directory that fails is offline; the others are used.

    Raises:
        LogDirectoryLocked: another process holds the lock of one of them.
        InconsistentLogDirectory: one is not formatted, or belongs to another cluster or node, or all are offline.
    """
    dirs = [_open(files, path, node_id) for path in paths]
    online = [directory for directory in dirs if directory.online]
    if not online:
        raise InconsistentLogDirectory(f"no log directory can be used: {'; '.join(str(d.failure) for d in dirs)}")
    clusters = {d.meta.cluster_id for d in online if d.meta} | ({cluster_id} if cluster_id else set())
    if len(clusters) > 1:
        raise InconsistentLogDirectory(f"directories and configuration name different clusters: {sorted(clusters)}")
    ids = [d.directory_id for d in online]
    if len(set(ids)) < len(ids):
        raise InconsistentLogDirectory("two log directories have the same directory.id: one is a copy of the other")
    return dirs


def _open(files: Files, path: str, node_id: int) -> LogDir:
    directory = LogDir(path)
    try:
        files.make_dirs(path)
        directory.lock = files.lock(f"{path}/{LOCK}")
        meta = read_meta_properties(files, path)
    except StorageFailure as failure:
        directory.failure = failure
        return directory
    if meta is None:
        raise InconsistentLogDirectory(f"{path} has no {META_PROPERTIES}: format it first")
    if meta.node_id != node_id:
        raise InconsistentLogDirectory(f"{path} belongs to node {meta.node_id}, this is node {node_id}")
    if meta.directory_id is None:
        raise InconsistentLogDirectory(f"{path}/{META_PROPERTIES} has no directory.id: format it first")
    directory.meta = meta
    return directory


def _properties(text: str) -> Iterable[tuple[str, str]]:
    """Parse Java's properties format without escapes, which these files do not need."""
    for line in text.splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            key, found, value = line.partition("=")
            if not found:
                raise ValueError(f"line {line!r} has no '='")
            yield key.strip(), value.strip()


def take_clean_mark(files: Files, directory: str) -> tuple[bool, int]:
    """Return whether the last stop was clean, and the broker epoch then. Remove the mark, so that a crash while opening is noticed."""
    path = f"{directory}/{CLEAN_MARK}"
    data = files.read(path)
    if data is None:
        return False, -1
    files.remove(path)
    files.sync_dir(directory)
    try:
        return True, int(json.loads(data or b"{}").get("brokerEpoch", -1))
    except (ValueError, AttributeError, TypeError):
        return True, -1


def write_clean_mark(files: Files, directory: str, broker_epoch: int) -> None:
    """Write the mark, after everything in the directory is synced."""
    mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.write_atomic(f"{directory}/{CLEAN_MARK}", mark.encode())
