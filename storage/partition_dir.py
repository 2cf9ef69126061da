"""The names of partition directories, and `partition.metadata`, which ties one to its topic's id.

<topic>-<partition>                      a partition
<topic>-<partition>.<32 hex>-delete      deleted, removed later
<topic>-<partition>.<32 hex>-future      a copy that moves here from another log directory
<topic>-<partition>.<32 hex>-stray       not in the metadata when the node started; kept for a human
"""

from __future__ import annotations

import re

from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files
from ottla.storage.log_dirs import id_from_text, id_to_text

PARTITION_METADATA = "partition.metadata"
# There while batches are being removed from the end of a log. A process that is killed meanwhile leaves the page cache and
# the disk in different states, and only this tells the next one that it must not build upon what it sees.
TRUNCATION = "truncation-in-progress"
DELETE, FUTURE, STRAY = "-delete", "-future", "-stray"
NAME_BYTES_MAX = 255
_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")


def partition_of(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition's directory name, None for any other."""
    if name.endswith((DELETE, FUTURE, STRAY)) and "." in name:
        return None
    found = _NAME.fullmatch(name)
    return (found["topic"], int(found["partition"])) if found else None


def name_with_suffix(topic: str, partition: int, uuid: bytes, suffix: str) -> str:
    """The name of a partition that is on its way out (or in), cut to what file systems take."""
    tail = f"-{partition}.{uuid.hex()}{suffix}"
    return topic[: NAME_BYTES_MAX - len(tail)] + tail


def read_topic_id(files: Files, directory: str) -> bytes | None:
    """The topic id in `partition.metadata`, None when there is no such file.

    Raises:
        CorruptFile
    """
    path = f"{directory}/{PARTITION_METADATA}"
    data = files.read(path)
    if data is None:
        return None
    try:
        values = dict(line.split(": ", 1) for line in data.decode().splitlines() if line.strip())
        if values["version"].strip() != "0":
            raise ValueError(f"version {values['version']}")
        return id_from_text(values["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise CorruptFile(path, str(error)) from error


def sync_topic_id(files: Files, directory: str) -> None:
    """Without it a partition's records are not found again."""
    path = f"{directory}/{PARTITION_METADATA}"
    if files.exists(path):
        files.sync_file(path)


def rewrite_topic_id(files: Files, directory: str) -> None:
    """With the same bytes, so that they are dirty: if a sync of them failed earlier, the kernel takes them for clean."""
    path = f"{directory}/{PARTITION_METADATA}"
    if data := files.read(path):
        files.pwrite(path, 0, data)


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Into a directory without records: what a kill leaves half written is set aside with it. `sync_topic_id` follows."""
    text = f"version: 0\ntopic_id: {id_to_text(topic_id)}\n"
    files.pwrite(f"{directory}/{PARTITION_METADATA}", 0, text.encode())
