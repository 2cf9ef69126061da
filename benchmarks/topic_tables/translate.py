"""The rate at which a leader's records become files of a table: `python -m benchmarks.topic_tables.translate NAME` for one kind
of records.

All steps of a broker's process of tables are measured, in a process of its own: segment files, columns, Parquet, and the file
in the store, which is a folder here. CPU is that of the process with all its threads.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from uuid import uuid4

from benchmarks.topic_tables.kinds import KINDS, Kind, OneSchema
from benchmarks.topic_tables.page import Figure
from ottla.protocol.records.builder import build_batch
from ottla.server.config.tables.topic_tables import BY_REGISTRY, BYTES
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from ottla.tables.directory_store import DirectoryStore
from ottla.tables.layout import BytesShape, RowLayout
from ottla.tables.segment_source import SegmentSource
from ottla.tables.shapes import RegistryShape
from ottla.tables.table import Owner
from ottla.tables.translating import CommittedSpan, EpochStart, Translator

OWNER = Owner("a-cluster", "an-id", "orders")
NOW_MS = 1_790_000_000_000
#: The default of a producer's batch.size.
BATCH_BYTES = 16_384
TURNS = 3


def figures() -> Iterator[Figure]:
    """Yield the rates of each kind. CPU seconds of a GB are by the bytes of the values."""
    for kind in KINDS:
        command = [sys.executable, "-m", "benchmarks.topic_tables.translate", kind.name]
        done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        cpu = statistics.median(turn["cpu"] for turn in done["turns"])
        wall = statistics.median(turn["wall"] for turn in done["turns"])
        note = (
            f"{done['bytes'] / done['rows']:.0f} B a value, {done['bytes'] / done['written']:.1f} times what the files have; "
            f"{done['bytes'] / wall / 1e6:.0f} MB/s by the clock; of {len(done['turns'])} turns"
        )
        if kind.rows_per_s_min is not None:
            yield Figure(f"translate {kind.name}", done["rows"] / cpu, "rows/s a core", kind.rows_per_s_min, note=note)
        else:
            yield Figure(
                f"translate {kind.name}", done["bytes"] / cpu / 1e6, "MB/s a core", kind.mb_per_s_min, note=note
            )
        if kind.cpu_per_gb_max is not None:
            yield Figure("the same", cpu / done["bytes"] * 1e9, "CPU s/GB", at_most=kind.cpu_per_gb_max)


def measure(kind: Kind) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        partition = f"{folder}/{OWNER.topic}-0"
        end, size = filled(partition, kind)
        found = []
        for turn in range(TURNS):
            store = DirectoryStore(f"{folder}/{turn}")
            source = SegmentSource(partition, OWNER, 0, RowLayout(BytesShape("key"), shape_of(kind)))
            translator = Translator(store, source, 0, 0, lambda: uuid4().hex)
            span = CommittedSpan(0, 0, 0, end, (EpochStart(0, 0),))
            began, used = time.perf_counter(), time.process_time()
            rows = 0
            while (offer := translator.offer(span, None)) is not None:
                rows += offer.rows
            found.append({"cpu": time.process_time() - used, "wall": time.perf_counter() - began})
            assert rows == kind.rows, f"{kind.rows - rows} records were rejected"
        written = sum(file.stat().st_size for file in Path(folder, "0").rglob("*.parquet"))
    return {"rows": kind.rows, "bytes": size, "written": written, "turns": found}


def filled(directory: str, kind: Kind) -> tuple[int, int]:
    """Write the segment files of a partition; return the offset after them, and the bytes of the values."""
    Path(directory).mkdir()
    config = LogConfig(segment_bytes=256 << 20)
    spec = LogSpec(OsFiles(), Mappings(), directory, OWNER.topic, 0, bytes(16), config, now_ms=NOW_MS)
    log = open_log(spec, clean=False)
    values, size = kind.values(), 0
    per_batch = max(1, BATCH_BYTES // len(next(kind.values())))
    number = 0
    while batch := [*islice(values, per_batch)]:
        size += sum(map(len, batch))
        rows = [(b"key-%d" % (number + index), value, NOW_MS + number + index) for index, value in enumerate(batch)]
        log.append(build_batch(rows), leader_epoch=0, now_ms=NOW_MS)
        number += len(batch)
    log.flush(NOW_MS)
    return log.log_end_offset, size


def shape_of(kind: Kind) -> BytesShape | RegistryShape:
    if kind.form == BYTES:
        return BytesShape("value")
    assert kind.schema is not None
    return RegistryShape("value", OneSchema(kind.schema), "orders-value", has_ids=kind.form == BY_REGISTRY)


if __name__ == "__main__":
    print(json.dumps(measure(next(kind for kind in KINDS if kind.name == sys.argv[1]))))
