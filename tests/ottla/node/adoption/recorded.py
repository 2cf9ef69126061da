"""Log directories that Apache Kafka 3.7.2 wrote: one combined node, stopped in order, and the same killed by kill -9.

Each has the topic `t` of two partitions (records of all five codecs, a committed and an aborted transaction, and an open one on
t-1), a compacted topic, a classic group `g` with its offsets, and two transactional ids, at metadata.version 3.7-IV4.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from tests.unpacking import unpack

DATA = Path(__file__).parent / "data"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
STOPPED, KILLED = "stop", "kill"


def unpacked(target: Path, how: str = STOPPED) -> Path:
    """The directory of the node."""
    with tarfile.open(DATA / f"kafka-3.7.2-{how}.tar.gz") as archive:
        unpack(archive, target)
    return target


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below the directory, by its relative path."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder) / name
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found
