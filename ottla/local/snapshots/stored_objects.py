"""The objects of remote segments in the directory of a local cluster (`ottla dev --tiers`), which snapshots and forks share by hard links.

An object is written under another name and then renamed, and it is never written to again. COPY_STARTED and DELETE_STARTED have their
records before objects appear and vanish. So the records of one moment name no object that was not there at that moment: it is enough to link all
objects before the fence, and those that are new inside it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ottla.broker.tiers.objects import OWNER
from ottla.local.directory import TIERS
from ottla.local.snapshots.copying import link_file
from ottla.tables.directory_store import UNFINISHED


def bring_objects(source: str, target: str) -> None:
    """Link the objects of a cluster's directory, or of a snapshot, into another one. What is there already stays.

    Raises:
        OSError: of a full disk, or one that fails.
    """
    for folder, _, names in os.walk(os.path.join(source, TIERS)):
        place = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(place, exist_ok=True)
        there = set(os.listdir(place))
        for name in names:
            if name not in there and name != OWNER and UNFINISHED not in name:
                with suppress(FileNotFoundError):  # it is being deleted
                    link_file(os.path.join(folder, name), os.path.join(place, name))


def has_objects(directory: str) -> bool:
    return os.path.isdir(os.path.join(directory, TIERS))


def own(directory: str, cluster_id: str) -> None:
    """Make the folder of a fork the fork's, so that its brokers write and delete there."""
    if has_objects(directory):
        with open(os.path.join(directory, TIERS, OWNER), "w", encoding="ascii") as file:
            file.write(cluster_id)
