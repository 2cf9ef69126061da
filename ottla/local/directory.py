"""The directory of a local cluster: a folder per node, and `cluster.properties`, which says whose they are and how many.

The voters of the quorum are a list that all nodes have to agree on. With other nodes than last time a majority could be
formed by those who know nothing, and what the cluster had would be lost: so the number is kept, and checked at each start.
"""

from __future__ import annotations

import base64
import os
import uuid
from typing import NamedTuple

from ottla.client.failures import Failure, Kind

FILE = "cluster.properties"
#: The file that names the remedy while the nodes' data is exchanged, when some nodes are of one time and some of another.
RESTORING = "restore-in-progress"
#: The file of a fork that names the snapshot that it was made of, and the addresses of its cluster (former_addresses.py).
ORIGIN = "fork.json"
META_PROPERTIES = "meta.properties"
NODES_DEFAULT = 3
OTHER = "give another --dir"


class KeptCluster(NamedTuple):
    cluster_id: str
    nodes: int


def look(directory: str, nodes: int | None) -> KeptCluster:
    """Return the cluster that the directory belongs to, or will belong to; nothing is written yet. `nodes` is the requested number, if any.

    Raises:
        Failure: it is something else, of another number of nodes, or cannot be used.
    """
    try:
        kept = read(directory)
        _check_whole(directory)
        if kept is None:
            _check_new(directory)
            kept = KeptCluster(new_cluster_id(), nodes or NODES_DEFAULT)
    except OSError as failure:
        raise _unusable(failure) from None
    if nodes not in (None, kept.nodes):
        raise Failure(
            f"{directory} has a cluster of {kept.nodes} nodes, not {nodes}: with others its data could be outvoted",
            f"leave --nodes out to start those {kept.nodes}, or {OTHER}",
            Kind.WRONG,
        )
    return kept


def new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def keep(directory: str, kept: KeptCluster) -> None:
    """Keep the settings in the directory, before the first node is started. A full disk leaves those that are there.

    Raises:
        Failure: the directory cannot be written.
    """
    path = os.path.join(directory, FILE)
    try:
        os.makedirs(directory, exist_ok=True)
        if read(directory) == kept:
            return
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"cluster.id={kept.cluster_id}\nnodes={kept.nodes}\n")
        os.replace(f"{path}.new", path)
    except OSError as failure:
        failure.filename = failure.filename or path  # of a write that failed it is not known
        raise _unusable(failure) from None


def read(directory: str) -> KeptCluster | None:
    """Return the cluster that the directory belongs to, None if it has never been started.

    Raises:
        Failure: what is written there is damaged.
        OSError: it cannot be read.
    """
    path = os.path.join(directory, FILE)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            values = dict(line.strip().split("=", 1) for line in file if "=" in line)
        return KeptCluster(values["cluster.id"], int(values["nodes"]))
    except FileNotFoundError:
        return None
    except (KeyError, ValueError):
        raise Failure(f"{path} is damaged: it must have lines cluster.id=... and nodes=...", OTHER) from None


def _check_whole(directory: str) -> None:
    try:
        with open(os.path.join(directory, RESTORING), encoding="utf-8") as file:
            remedy = file.read()
    except FileNotFoundError:
        return
    raise Failure(
        f"{directory} was being restored or rewound, and that was interrupted: its nodes are of different times", remedy
    )


def _check_new(directory: str) -> None:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if META_PROPERTIES in names:
        raise Failure(
            f"{directory} is the log directory of a single node, not of a cluster of `ottla dev`",
            f"{OTHER}, or start that node with `ottla start`",
        )
    if nodes := sorted(name for name in names if name.startswith("node-")):
        raise Failure(f"{directory} has {', '.join(nodes)}, but no {FILE} that says whose they are", OTHER)


def _unusable(failure: OSError) -> Failure:
    return Failure(f"{failure.filename} cannot be used: {failure.strerror}", OTHER)
