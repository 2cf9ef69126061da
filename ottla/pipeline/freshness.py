"""How long records waited until bronze had them, in each of two ways: Spark's stage, and the brokers' table.

It reads the files of both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.pipeline import broker_table, tables
from ottla.pipeline.config import Config


class FilePoint(NamedTuple):
    """A file: the time when it was complete (epoch, s), and the age of its oldest record at that time, by Kafka's timestamp
    (s).
    """

    seen_s: float
    age_s: float


def of_stage(config: Config) -> list[FilePoint]:
    """Return the files of the bronze stage. They are written shortly before Spark's log names them."""
    return _points(tables.finished_files(config.path("bronze")), "timestamp", lambda status: status.st_mtime)


def of_table(config: Config) -> list[FilePoint]:
    """Return the files of the brokers' table. A commit gives each file a second name, which is the last change of its inode."""
    return _points(broker_table.files(config), "_kafka.timestamp", lambda status: status.st_ctime)


def _points(files: Iterable[str], column: str, seen: Callable[[os.stat_result], float]) -> list[FilePoint]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = []
    for file in files:
        times = pq.ParquetFile(file).read(columns=[column]).flatten().column(column)
        if len(times):
            seen_s = seen(os.stat(file))
            found.append(FilePoint(seen_s, seen_s - pc.min(times).as_py().timestamp()))
    return sorted(found)
