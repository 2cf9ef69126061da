"""The directory of a local cluster: a folder per node, and `cluster.properties`, which has the cluster's id and the number of
nodes.

The voters of the quorum are a list that all nodes have to agree on. With other nodes than last time, a majority of nodes
without data could elect a leader, and the cluster's metadata would be lost. Therefore the number is stored, and checked at each
start.
"""

from __future__ import annotations

import base64
import os
import uuid
from typing import NamedTuple

from ottla.client.failures import Failure, Kind

FILE = "cluster.properties"
#: This file exists while the nodes' data is exchanged, when some nodes have the old data and some the new. It contains the
#: remedy.
RESTORING = "restore-in-progress"
#: The file of a fork that names its snapshot, and the addresses of the snapshot's cluster (former_addresses.py).
ORIGIN = "fork.json"
META_PROPERTIES = "meta.properties"
#: The folder for the remote segments of topics (`ottla dev --tiers`).
TIERS = "tiers"
NODES_DEFAULT = 3
OTHER = "give another --dir"


class KeptCluster(NamedTuple):
    cluster_id: str
    nodes: int


def look(directory: str, nodes: int | None) -> KeptCluster:
    """Return the cluster that the directory belongs to, or will belong to.

    Nothing is written yet. `nodes` is the requested number of nodes, or None.

    Raises:
        Failure: it is no such directory, has another number of nodes, or cannot be used.
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
    """Write the settings to the directory before the first node starts. If the disk is full, the former ones stay.

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
        failure.filename = failure.filename or path  # a failed write does not name the file
        raise _unusable(failure) from None


def read(directory: str) -> KeptCluster | None:
    """Return the cluster that the directory belongs to, or None if it has never been started.

    Raises:
        Failure: the file is damaged.
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
