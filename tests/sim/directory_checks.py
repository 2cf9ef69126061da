"""Invariant 59: where the replicas of a cluster at rest are. AlterReplicaLogDirs moves them (`clients/log_dir_mover.py`)."""

from __future__ import annotations

from ottla.broker.replication.to_controller import knows_directories
from ottla.controller.metadata.image import MetadataImage
from ottla.storage.log.partition_dir import future_partition_of, partition_of
from tests.sim.cluster import SimNode


def misplaced(node: SimNode, image: MetadataImage) -> str | None:
    """Return which replica of this broker still moves, is in two directories, or is not in the directory that the controller
    has for it; None if there is none.
    """
    server = node.server
    if server is None or server.logs is None:
        return f"{node} has no logs"
    names: set[tuple[str, int]] = set()
    for directory in server.logs.directories:
        for name in node.host.disk.list_dir(directory.path):
            if future_partition_of(name) is not None:
                return f"{node} has {name} in {directory.path}"
            if (partition := partition_of(name)) in names:
                return f"{node} has two directories for {partition}"
            names |= set() if partition is None else {partition}
    for topic in image.topics if knows_directories(image) else ():
        for index, registration in topic.partitions.items():
            log = server.logs.open.by_name(topic.name, index)
            if node.number in registration.replicas and log is not None:
                directory = server.logs.open.directory_of(log)
                if registration.directory(node.number) != directory.directory_id:
                    return f"{node} has {topic.name}-{index} in {directory.path}, the controller has it elsewhere"
    return None
