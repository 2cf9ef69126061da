"""Which directory a replica is in, where that differs from the metadata: reported to the controller (KIP-858)."""

from __future__ import annotations

from typing import Protocol

from ottla.broker.replication.to_controller.directory_assignments import MV_DIRECTORIES
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.partitions import LOST_DIR, PartitionRegistration
from ottla.storage.directories.log_dirs import LogDir


class Assignments(Protocol):
    """The interface that reports the logs' directories to the controller (to_controller/directory_assignments.py)."""

    def assign(self, topic_id: bytes, index: int, directory_id: bytes) -> None: ...

    def close(self) -> None: ...


def knows_directories(image: MetadataImage) -> bool:
    return image.features.metadata_version >= MV_DIRECTORIES


def report_directory(
    assignments: Assignments | None, topic_id: bytes, index: int, directory: LogDir, registered: bytes
) -> None:
    """Reports a replica whose directory differs from the controller's: it could not lead, and a failure of its directory would not be noticed (KIP-858)."""
    if assignments is not None and directory.online and directory.directory_id != registered:
        assignments.assign(topic_id, index, directory.directory_id)


def report_damage(
    assignments: Assignments | None,
    topic_id: bytes,
    index: int,
    node_id: int,
    registration: PartitionRegistration,
    image: MetadataImage,
) -> None:
    """Reports a replica that cannot be opened as one in a lost directory: it is removed from the ISR, and another one leads.

    KIP-858 knows failures of whole directories only. Once the replica has a log again, `report_directory` takes this back.
    """
    if assignments is not None and knows_directories(image) and registration.directory(node_id) != LOST_DIR:
        assignments.assign(topic_id, index, LOST_DIR)
