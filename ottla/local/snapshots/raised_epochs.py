"""Leader epochs of a cluster that is set back: above all that it had reached, as after an election.

Records are known by offset and leader epoch outside of the log, too: by consumers (KIP-320), tables and remote segments. A cluster
that went on from an earlier state with the epochs of that state would write other records under the same names, and none of them could notice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.raft.metadata_log import DIRECTORY, MetadataLog
from ottla.local.directory import META_PROPERTIES
from ottla.local.snapshots.copying import copy_log
from ottla.local.snapshots.sealing import image_of, open_metadata
from ottla.local.snapshots.stored_logs import checkpoint
from ottla.server.config.tables.topic_tables import FORMAT, NONE
from ottla.storage.checkpoint import EPOCH_FLOOR, Offsets, write_offsets
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.files import OsFiles

#: The distance by which epochs are raised above the restored ones if it cannot be read what was reached since: no partition
#: has as many elections in the time of one snapshot, and an epoch has 31 bits.
UNKNOWN_ELECTIONS = 1 << 20


def opened_metadata(source: str, place: str) -> MetadataLog:
    """Open the metadata log in `place`, of the node whose log directory is `source`."""
    meta = read_meta_properties(OsFiles(), source)
    assert meta is not None, "the caller has found it"
    return open_metadata(OsFiles(), place, meta, 0)


def raise_epochs(former: Sequence[str], targets: Sequence[str]) -> None:
    """Have the nodes of `targets` raise their epochs above those in the log directories `former`, whose place they take."""
    images = [_image_in(data) for data in former]
    own = [image for image in map(_image_in, targets) if image is not None]
    known = [image for image in images if image is not None]
    write_floors(own, known, former, targets, unknown=0 if len(known) == len(images) else UNKNOWN_ELECTIONS)


def topics_with_table(targets: Sequence[str]) -> list[str]:
    """Return the topics that have a table, by the metadata in the log directories of a snapshot."""
    images = [image for image in map(_image_in, targets) if image is not None]
    found = {topic.name for image in images for topic in image.topics if _has_table(image, topic.name)}
    return sorted(found)


def _has_table(image: MetadataImage, topic: str) -> bool:
    return image.configs.for_topic(topic).get(FORMAT, NONE) != NONE


def write_floors(
    own: Iterable[MetadataImage],
    before: Iterable[MetadataImage],
    former: Sequence[str],
    targets: Sequence[str],
    *,
    unknown: int = 0,
) -> None:
    """Write the epochs below which no partition of `own` may go on, when `before` is what the nodes in `former` had reached.

    `unknown` is how many epochs above those of `own` may have been reached besides: some of `former` cannot be read.
    """
    reached: dict[tuple[bytes, int], int] = {}
    for image in before:
        for topic in image.topics:
            for index, partition in topic.partitions.items():
                place = topic.id, index
                reached[place] = max(reached.get(place, 0), partition.leader_epoch)
    most = max(reached.values(), default=-1)  # a topic that was deleted since has had other epochs, which nothing has
    floors: Offsets = {}
    for image in own:
        for topic in image.topics:
            for index, partition in topic.partitions.items():
                known = reached.get((topic.id, index), most) + 1
                floors[topic.name, index] = max(known, partition.leader_epoch + unknown)
    for data in former:  # set back twice, and not started in between
        for name, floor in checkpoint(data, EPOCH_FLOOR).items():
            if name in floors:
                floors[name] = max(floors[name], floor)
    for data in targets:
        write_offsets(OsFiles(), os.path.join(data, EPOCH_FLOOR), floors)


def _image_in(data: str) -> MetadataImage | None:
    """Return what the metadata in a log directory says, None if it cannot be read: it may be why the cluster is set back."""
    if not os.path.isdir(os.path.join(data, DIRECTORY)) or not os.path.isfile(os.path.join(data, META_PROPERTIES)):
        return None
    scratch = tempfile.mkdtemp(prefix=".metadata-", dir=os.path.dirname(data))
    try:
        with suppress(CorruptFile, StorageFailure):
            copy_log(os.path.join(data, DIRECTORY), os.path.join(scratch, DIRECTORY))
            metadata = opened_metadata(data, scratch)
            try:
                return image_of(metadata)
            finally:
                metadata.close()
        return None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
