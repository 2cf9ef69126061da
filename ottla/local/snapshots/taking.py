"""The steps of a snapshot: it is copied ahead, copied inside the fence, recovered, and at last gets its name."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack

from ottla.client.failures import Failure
from ottla.local import directory as local_directory
from ottla.local.directory import KeptCluster
from ottla.local.former_addresses import together
from ottla.local.snapshots import layout
from ottla.local.snapshots.copying import SEGMENT_FILE, Copies
from ottla.local.snapshots.fence import fence, lock_holder
from ottla.local.snapshots.layout import About
from ottla.local.snapshots.stored_objects import bring_objects
from ottla.storage.directories.log_dirs import LOCK
from ottla.storage.errors import (
    FULL,
    CorruptFile,
    DiskFull,
    InconsistentLogDirectory,
    LogDirectoryLocked,
    StorageFailure,
)
from ottla.storage.files import OsFiles

DATA = "data"
#: The folder with keys, certificates and passwords, in a local cluster with logins.
SECURE = "secure"
#: This much of the disk must stay free, because the cluster goes on: a full disk ends the writes of all its nodes.
SPARE_BYTES = 256 << 20
NOTHING_KEPT = "nothing was kept of the snapshot, and the cluster runs as before"
#: The number of copies before the fence. It ends as soon as little is left to be copied inside the fence.
PASSES_MAX, PASS_BYTES_MIN = 4, 8 << 20


def data_directories(directory: str, nodes: int) -> list[str]:
    return [os.path.join(directory, f"node-{number}", DATA) for number in range(1, nodes + 1)]


def cluster_at(directory: str) -> KeptCluster:
    """Return the cluster of a directory.

    Raises:
        Failure: no local cluster has been started in this directory.
    """
    if not os.path.isfile(os.path.join(directory, local_directory.FILE)):
        raise Failure(
            f"{directory} is not the directory of a local cluster: it has no {local_directory.FILE}",
            "--dir DIR is that of `ottla dev --dir DIR`, which prints it",
        )
    kept = local_directory.look(directory, None)
    for data in data_directories(directory, kept.nodes):
        if not os.path.isfile(os.path.join(data, local_directory.META_PROPERTIES)):
            raise Failure(f"{data} is missing, or was never used: the cluster has {kept.nodes} nodes")
    return kept


def check(directory: str, name: str) -> KeptCluster:
    """Check that a snapshot of this name can be taken. Return the cluster.

    Raises:
        Failure: it cannot be taken.
    """
    layout.check_name(name)
    kept = cluster_at(directory)
    if os.path.lexists(layout.path_of(directory, name)):
        raise Failure(f"there is a snapshot {name} already", f"another name, or `ottla snapshot delete {name}`")
    _check_room(directory, data_directories(directory, kept.nodes))
    return kept


def start_command(directory: str) -> str:
    """Return the command that starts the cluster."""
    return f"ottla dev {'--secure ' if os.path.isdir(os.path.join(directory, SECURE)) else ''}--dir {directory}"


def take(directory: str, name: str) -> tuple[About, list[str]]:
    """Take a snapshot. Return its description, and the partitions' directories in it that cannot be opened.

    Raises:
        Failure: it says why. Nothing of the snapshot is left, and the cluster runs as before.
    """
    kept = check(directory, name)
    folder = os.path.join(directory, layout.FOLDER)
    os.makedirs(folder, exist_ok=True)
    try:
        lock = OsFiles().lock(os.path.join(folder, LOCK))
    except LogDirectoryLocked:
        raise Failure(f"another snapshot of {directory} is being taken", "try again when it is complete") from None
    try:
        # of killed processes: only the holder of the lock takes a snapshot
        for left in layout.parts(directory):
            shutil.rmtree(left, ignore_errors=True)
        return make(directory, kept, name, layout.part_of(directory, name), layout.path_of(directory, name))
    finally:
        lock.release()


def make(
    directory: str, kept: KeptCluster, name: str, part: str, target: str, *, durable: bool = True
) -> tuple[About, list[str]]:
    """Take a snapshot to any place: `part` is where it is made, and `target` its name when it is complete. Raises as `take`.

    A snapshot that is not `durable` may be lost in a power loss.
    """
    sources = data_directories(directory, kept.nodes)
    os.makedirs(os.path.dirname(part), exist_ok=True)
    try:
        about, damaged = _copied(directory, kept, name, sources, part, durable)
        os.rename(part, target)
        return about, [os.path.relpath(path, part) for path in damaged]
    except BaseException as failure:
        shutil.rmtree(part, ignore_errors=True)
        if (reason := reason_of(failure, "the snapshot", NOTHING_KEPT)) is None:
            raise
        raise reason from None


def _copied(
    directory: str, kept: KeptCluster, name: str, sources: Sequence[str], part: str, durable: bool
) -> tuple[About, list[str]]:
    targets = data_directories(part, kept.nodes)
    copies = [(Copies(), source, target) for source, target in zip(sources, targets, strict=True)]
    bring_objects(directory, part)
    for _ in range(PASSES_MAX):  # each pass copies what was written during the pass before
        for each, source, target in copies:
            each.bring(source, target, fenced=False)
        if sum(each.bytes for each, _, _ in copies) < PASS_BYTES_MIN:
            break
    running = [source for source in sources if lock_holder(source) is not None]
    with ExitStack() as stack:
        for source in set(sources).difference(running):  # a stopped node must not start meanwhile
            stack.callback(OsFiles().lock(os.path.join(source, LOCK)).release)
        with fence(running) as standing:
            taken_ms = time.time_ns() // 1_000_000
            for each, source, target in copies:
                each.bring(source, target, fenced=True)
            bring_objects(directory, part)
    if os.path.isdir(secure := os.path.join(directory, SECURE)):
        shutil.copytree(secure, os.path.join(part, SECURE))
    # imported late: it is most of the server, and the cluster has to run again first
    from ottla.local.snapshots.sealing import seal

    sealed = [seal(target, kept.cluster_id, number, taken_ms) for number, target in enumerate(targets, 1)]
    if durable:
        os.sync()
    about = layout.finish(
        part,
        name,
        os.path.abspath(directory),
        kept,
        taken_ms,
        standing.seconds,
        together(each.addresses for each in sealed),
    )
    return about, [path for each in sealed for path in each.damaged]


def _check_room(folder: str, sources: Sequence[str]) -> None:
    needed = sum(_bytes_to_copy(source) for source in sources)
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise Failure(
            f"the snapshot would copy up to {needed >> 20} MB of active segments, and {folder} has {free >> 20} MB free",
            f"{SPARE_BYTES >> 20} MB must stay free for the cluster; nothing was changed",
        )


def _bytes_to_copy(source: str) -> int:
    """Return the total bytes of the last segments of all logs, which cannot be linked."""
    total = 0
    for entry in os.scandir(source):
        if entry.is_dir():
            logs = [
                each
                for each in os.scandir(entry.path)
                if (found := SEGMENT_FILE.fullmatch(each.name)) and found[2] == "log"
            ]
            if logs:
                total += max(logs, key=lambda each: each.name).stat().st_size
    return total


def reason_of(failure: BaseException, doing: str, after: str) -> Failure | None:
    """Return the reason for the user, or None for an unexpected failure. `after` describes the present state."""
    if isinstance(failure, Failure):
        return failure
    cause = failure.cause if isinstance(failure, StorageFailure) else failure
    if isinstance(failure, DiskFull) or (isinstance(cause, OSError) and cause.errno in FULL):
        return Failure(f"the disk is full: {failure}", after)
    if isinstance(failure, LogDirectoryLocked):
        return Failure(f"a node was started meanwhile: {failure}", "try again")
    if isinstance(failure, CorruptFile | InconsistentLogDirectory | StorageFailure | OSError):
        return Failure(f"{doing} failed: {failure}", after)
    return None
