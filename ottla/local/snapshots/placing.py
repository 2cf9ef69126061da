"""A directory of a cluster, made from a snapshot: that of a fork, or that of the cluster itself as it was.

A fork has another cluster id. So its nodes cannot join the original cluster by a wrong address or a copied file, nor the other
way round: the nodes of a quorum reject those of another cluster (INCONSISTENT_CLUSTER_ID). It shares the files of the snapshot
that are never written again (copying.py), so that it is made in a moment and grows only by what is written to it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ottla.client.failures import Failure
from ottla.local import directory as local_directory
from ottla.local import former_addresses
from ottla.local.directory import KeptCluster
from ottla.local.snapshots import layout
from ottla.local.snapshots.copying import copy_directory
from ottla.local.snapshots.fence import lock_holder
from ottla.local.snapshots.layout import About
from ottla.local.snapshots.set_backs import note_set_back, was_lost
from ottla.local.snapshots.stored_objects import bring_objects, own
from ottla.local.snapshots.taking import SECURE, cluster_at, data_directories
from ottla.storage.directories.log_dirs import LOCK
from ottla.storage.errors import LogDirectoryLocked
from ottla.storage.files import OsFiles

FORMER = ".former"


def checked(path: str) -> About:
    """Return the description of a snapshot, if the snapshot is complete.

    Raises:
        Failure: the snapshot does not exist, or is damaged.
    """
    about = layout.read(path)
    layout.check_contents(path)
    for data in data_directories(path, about.nodes):
        if not os.path.isfile(os.path.join(data, local_directory.META_PROPERTIES)):
            raise Failure(f"the snapshot {path} is damaged: it has no data of {os.path.dirname(data)}")
    return about


def place_fork(path: str, directory: str) -> KeptCluster:
    """Make the directory of a fork. It must be empty or not exist.

    Raises:
        Failure: the snapshot or the directory cannot be used. Then nothing of the fork is left.
    """
    about = checked(path)
    if os.path.isdir(directory) and os.listdir(directory):
        raise Failure(f"{directory} is not empty: a fork has a directory of its own", "give another --dir")
    fork = KeptCluster(local_directory.new_cluster_id(), about.nodes)
    was_there = os.path.isdir(directory)
    try:
        _copy_nodes(path, directory, about.nodes)
        for data in data_directories(directory, about.nodes):
            _change_cluster(data, fork.cluster_id)
        _copy_secure(path, about.directory, directory)
        bring_objects(path, directory)
        own(directory, fork.cluster_id)
        origin = {"snapshot": about.name, "cluster_id": about.cluster_id, "taken_ms": about.taken_ms}
        with open(os.path.join(directory, local_directory.ORIGIN), "w", encoding="utf-8") as file:
            json.dump(origin | {"addresses": about.addresses}, file)
        local_directory.keep(directory, fork)
    except (OSError, Failure) as failure:
        for name in os.listdir(directory) if was_there else ():
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
        if not was_there:
            shutil.rmtree(directory, ignore_errors=True)
        if isinstance(failure, OSError):
            raise Failure(f"the fork was not made: {failure}", "nothing was kept of it") from None
        raise
    return fork


def restore(directory: str, name: str) -> About:
    """Restore a stopped cluster to the state of a snapshot.

    Its present data is removed once the snapshot's data is in its place.

    Raises:
        Failure: nothing was changed. If the disk failed halfway, the same call continues.
    """
    kept = local_directory.read(directory) or cluster_at(directory)
    about = checked(layout.path_of(directory, name))
    if (kept.cluster_id, kept.nodes) != (about.cluster_id, about.nodes):
        raise Failure(
            f"the snapshot {name} is of cluster {about.cluster_id} with {about.nodes} nodes, and {directory} has "
            f"{kept.cluster_id} with {kept.nodes}",
            f"`ottla fork {name}` makes a cluster of it",
        )
    fresh = os.path.join(directory, layout.FOLDER, f".{name}.restoring")
    again = f"ottla snapshot restore {name} --dir {directory}"
    try:
        with at_rest(data_directories(directory, kept.nodes)):
            shutil.rmtree(fresh, ignore_errors=True)
            _copy_nodes(layout.path_of(directory, name), fresh, about.nodes)
            # Most of the server, and forks need none of it.
            from ottla.local.snapshots.raised_epochs import raise_epochs

            raise_epochs(data_directories(directory, kept.nodes), data_directories(fresh, about.nodes))
            former_addresses.note(directory, about.addresses)
            bring_objects(layout.path_of(directory, name), directory)
            note_set_back(directory, about.taken_ms)
            exchange(directory, fresh, about.nodes, f"`{again}` completes it")
    except OSError as failure:
        if os.path.exists(os.path.join(directory, local_directory.RESTORING)):
            raise Failure(f"restoring stopped halfway: {failure}", f"`{again}` goes on") from None
        shutil.rmtree(fresh, ignore_errors=True)
        raise Failure(f"nothing was restored: {failure}", "the cluster is as before") from None
    return about


def tables_of_lost(directory: str, about: About) -> list[str]:
    """Return the topics of a snapshot whose tables cannot go on, if what it has was lost when the cluster was set back.

    Raises:
        Failure: it cannot be read when that was.
    """
    if not was_lost(directory, about.taken_ms):
        return []
    from ottla.local.snapshots.raised_epochs import topics_with_table

    return topics_with_table(data_directories(layout.path_of(directory, about.name), about.nodes))


@contextmanager
def at_rest(directories: Sequence[str]) -> Iterator[None]:
    """Hold the locks of these log directories, so that no process can use them inside the block.

    Raises:
        Failure: one of them is in use.
    """
    with ExitStack() as stack:
        for data in directories:
            if os.path.isdir(data):
                try:
                    stack.callback(OsFiles().lock(os.path.join(data, LOCK)).release)
                except LogDirectoryLocked:
                    raise Failure(
                        f"{data} is in use by process {lock_holder(data)}",
                        "stop the cluster first; nothing was changed",
                    ) from None
        yield


def _copy_nodes(source: str, target: str, nodes: int) -> None:
    for old, new in zip(data_directories(source, nodes), data_directories(target, nodes), strict=True):
        copy_directory(old, new)


def exchange(directory: str, fresh: str, nodes: int, remedy: str) -> None:
    """Put the new data in place of the old, by two renames for each node.

    If this is interrupted, no node starts, and `remedy` is printed.
    """
    with open(os.path.join(directory, local_directory.RESTORING), "w", encoding="utf-8") as file:
        file.write(remedy)
    places, copies = data_directories(directory, nodes), data_directories(fresh, nodes)
    for place, copy in zip(places, copies, strict=True):
        if os.path.isdir(place):
            shutil.rmtree(place + FORMER, ignore_errors=True)
            os.rename(place, place + FORMER)
        os.rename(copy, place)
    os.unlink(os.path.join(directory, local_directory.RESTORING))
    for place in places:
        shutil.rmtree(place + FORMER, ignore_errors=True)
    shutil.rmtree(fresh, ignore_errors=True)


def _change_cluster(data: str, cluster_id: str) -> None:
    """Write the identity of the fork's node. It is not synced: if a power loss damages a fork, it is made again."""
    path = os.path.join(data, local_directory.META_PROPERTIES)
    with open(path, encoding="ascii") as file:
        lines = [f"cluster.id={cluster_id}\n" if line.startswith("cluster.id=") else line for line in file]
    with open(path, "w", encoding="ascii") as file:
        file.writelines(lines)


def _copy_secure(source: str, cluster: str, target: str) -> None:
    """Copy keys and logins. Files that name other files of the cluster's directory get the paths in the copy."""
    old, new = os.path.join(source, SECURE), os.path.join(target, SECURE)
    if not os.path.isdir(old):
        return
    shutil.copytree(old, new)
    former = os.path.join(cluster, SECURE)
    for folder, _, names in os.walk(new):
        for name in names:
            with open(os.path.join(folder, name), "r+b") as file:
                data = file.read()
                changed = data.replace(former.encode(), new.encode())
                if changed != data:
                    file.seek(0)
                    file.write(changed)
                    file.truncate()
