"""Whose the directories are: those of one node of one KRaft cluster, in use by no process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ottla.controller.raft.metadata_log import DIRECTORY
from ottla.storage.directories.log_dirs import CLEAN_MARK, LOCK, META_PROPERTIES, MetaProperties, read_meta_properties
from ottla.storage.errors import InconsistentLogDirectory, LogDirectoryLocked, StorageFailure
from ottla.storage.files import FileLock, Files

RUN_AS = "run this command as the user that Kafka ran as"


class CannotAdopt(Exception):
    """Why directories are not adopted, before anything is changed. `reasons` are all that one stage of the check has found."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The cluster and the node that all the directories name."""

    cluster_id: str
    node_id: int
    #: By path, in the order in which they were named.
    identities: dict[str, MetaProperties]
    #: The directory that has the metadata log.
    metadata_directory: str
    #: Directories whose last stop was not clean: every log is recovered at the start.
    unclean: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        return list(self.identities)


def identify(files: Files, paths: Sequence[str]) -> Ownership:
    """Returns whose the directories are.

    Raises:
        CannotAdopt: they are none, or not those of one node.
    """
    found: dict[str, MetaProperties] = {}
    reasons: list[str] = []
    for path in dict.fromkeys(os.path.normpath(path) for path in paths):
        try:
            found[path] = _identity(files, path)
        except (InconsistentLogDirectory, StorageFailure) as failure:
            reasons.append(str(failure))
    reasons += _disagreements(found)
    if not reasons:
        with_log = [path for path in found if files.exists(f"{path}/{DIRECTORY}")]
        if len(with_log) != 1:
            reasons.append(_metadata_reason(list(found), with_log))
    if reasons:
        raise CannotAdopt(reasons)
    first = next(iter(found.values()))
    unclean = tuple(path for path in found if not files.exists(f"{path}/{CLEAN_MARK}"))
    return Ownership(first.cluster_id, first.node_id, found, with_log[0], unclean)


def _identity(files: Files, path: str) -> MetaProperties:
    if not files.exists(path):
        raise InconsistentLogDirectory(f"there is no directory {path}: is its disk mounted?")
    try:
        names = files.list_dir(path)
        meta = read_meta_properties(files, path)
    except NotADirectoryError:
        raise InconsistentLogDirectory(f"{path} is a file: name the directory that log.dirs names") from None
    except StorageFailure as failure:
        if isinstance(failure.cause, NotADirectoryError):
            raise InconsistentLogDirectory(f"{path} is a file: name the directory that log.dirs names") from None
        if isinstance(failure.cause, PermissionError):
            raise InconsistentLogDirectory(f"{failure}: {RUN_AS}") from None
        raise
    if meta is not None:
        return meta
    if nodes := [name for name in names if files.exists(f"{path}/{name}/{META_PROPERTIES}")]:
        raise InconsistentLogDirectory(
            f"{path} is no log directory, but has some ({', '.join(nodes)}): name those of one node"
        )
    raise InconsistentLogDirectory(
        f"{path} has no {META_PROPERTIES}: it is no log directory, or was never formatted; name what log.dirs names"
    )


def _disagreements(found: dict[str, MetaProperties]) -> Iterator[str]:
    clusters = {path: meta.cluster_id for path, meta in found.items()}
    nodes = {path: str(meta.node_id) for path, meta in found.items()}
    for what, named in (("clusters", clusters), ("nodes", nodes)):
        if len(set(named.values())) > 1:
            texts = ", ".join(f"{path} of {name}" for path, name in named.items())
            yield f"the directories are of different {what} ({texts}): name those of one node"
    ids = [meta.directory_id for meta in found.values() if meta.directory_id is not None]
    if len(set(ids)) < len(ids):
        yield "two of the directories have the same directory.id: one is a copy of the other; leave the copy out"


def _metadata_reason(paths: list[str], with_log: list[str]) -> str:
    if with_log:
        return f"{' and '.join(with_log)} each have a metadata log ({DIRECTORY}): leave the one out that metadata.log.dir does not name"
    return f"{', '.join(paths)} {'has' if len(paths) == 1 else 'have'} no metadata log ({DIRECTORY}): name all of log.dirs and metadata.log.dir"


@contextmanager
def unused(files: Files, paths: Sequence[str]) -> Iterator[None]:
    """Holds the locks of the directories, so that no node starts on them meanwhile.

    Raises:
        CannotAdopt: a running node has one of them, or they cannot be written.
    """
    held: list[FileLock] = []
    reasons: list[str] = []
    try:
        for path in paths:
            try:
                held.append(files.lock(f"{path}/{LOCK}"))
            except LogDirectoryLocked:
                reasons.append(f"{path} is in use by a running node, of Kafka or of Ottla: stop it in order first")
            except StorageFailure as failure:
                reasons.append(f"{failure}: {RUN_AS}")
        if reasons:
            raise CannotAdopt(reasons)
        yield
    finally:
        for lock in held:
            lock.release()
