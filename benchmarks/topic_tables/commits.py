"""The cost of one commit after many others: `python -m benchmarks.topic_tables.commits FORMAT COMMITS...`, in a process of its
own.

Each commit takes one file of one partition. Tables are maintained after every 60 commits, an hour of the default interval, and
1,440 commits are those of a day. The whole work of the committer is measured: listings, the decision, and the format's own
commit.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from benchmarks.topic_tables.page import Figure
from ottla.server.config.tables.topic_tables import BYTES, DELTA, FILES, ICEBERG
from ottla.server.table_work import TableSettings
from ottla.tables.decisions import TableDecision
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.offers import NOT_BEGUN, PARQUET, Offer, TablePosition
from ottla.tables.opening import OpenTables, open_tables
from ottla.tables.segment_source import ParquetBuffer
from ottla.tables.table import Owner

OWNER = Owner("a-cluster", "an-id", "orders")
ROWS = 1_000
HOUR, DAY = 60, 1_440
#: The number of the last commits before a milestone whose median is the figure.
SAMPLES = 20
CPU_MS_MAX = {ICEBERG: 200, DELTA: 50}
METADATA_BYTES_MAX = 1_000_000
#: The most files of a partition below 32 MiB after maintenance.
SMALL_FILES_MAX = 4
#: What is older than a day leaves nothing in an Iceberg table but merged rows and the number of the last commit. So a milestone further away
#: than this begins that much below it, if there is none before it: 10,000 commits take a quarter of an hour.
REAL_MAX = 3_000
REAL_BEFORE = DAY + HOUR


def figures(milestones: Sequence[int], *, long: bool) -> Iterator[Figure]:
    """Yield the CPU and the time of a commit of each format after each of these numbers of commits, in a long run after all of them."""
    near, far = ([each for each in milestones if (each > REAL_MAX) == is_far] for is_far in (False, True))
    iceberg = [milestones] if long else [near, *([each] for each in far)]
    for format_, wanted in [*((ICEBERG, each) for each in iceberg), (DELTA, milestones)]:
        goal = CPU_MS_MAX[format_]
        command = [sys.executable, "-m", "benchmarks.topic_tables.commits", format_, *map(str, wanted)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                note = (
                    f"{found['wall_ms']:.0f} ms by the clock, {found['most_ms']:.0f} ms CPU the most of {SAMPLES}; "
                    f"maintenance {found['maintenance_ms']:.0f} ms CPU; {found['files']} files lie there"
                )
                what = f"{format_.capitalize()}, commit {found['commits']:,}"
                yield Figure(what, found["cpu_ms"], "ms CPU", at_most=goal, note=note)
                yield Figure("files of its partition after maintenance", found["kept"], "", at_most=SMALL_FILES_MAX)
                if found["metadata_bytes"]:
                    yield Figure(
                        "its metadata.json", found["metadata_bytes"] / 1e3, "KB", at_most=METADATA_BYTES_MAX / 1e3
                    )
        assert process.returncode == 0, f"commits of {format_} ended with {process.returncode}"


def measure(format_: str, milestones: list[int], folder: str) -> Iterator[dict[str, float]]:
    opened = open_tables(TableSettings(format_, folder, FILES, BYTES, BYTES, {}), OWNER)
    data = one_file(opened)
    after, first = TablePosition(0, NOT_BEGUN), 1
    if format_ == ICEBERG and min(milestones) > REAL_MAX:
        first = min(milestones) - REAL_BEFORE
        after = begun(opened, first - 1, data)
    cpu_ms, wall_ms, times_ms = list[float](), list[float](), list[int]()
    maintenance_ms, kept = 0.0, 0
    for number in range(first, max(milestones) + 1):
        offer = Offer(0, after, after.next, after.next + ROWS, 0, ROWS, 0, uuid4().hex, PARQUET)
        opened.store.put(offer.name, data)
        after = offer.position
        used, began = time.process_time(), time.perf_counter()
        done = opened.committer.run(1)
        cpu_ms.append((time.process_time() - used) * 1e3)
        wall_ms.append((time.perf_counter() - began) * 1e3)
        times_ms.append(int(time.time() * 1e3))
        assert done.rows == ROWS
        if number % HOUR == 0:
            used = time.process_time()
            maintain(opened, times_ms)
            maintenance_ms = (time.process_time() - used) * 1e3
            kept = files_of(opened)
        if number in milestones:
            yield {
                "commits": number,
                "cpu_ms": statistics.median(cpu_ms[-SAMPLES:]),
                "most_ms": max(cpu_ms[-SAMPLES:]),
                "wall_ms": statistics.median(wall_ms[-SAMPLES:]),
                "maintenance_ms": maintenance_ms,
                "kept": kept,
                "files": sum(1 for each in Path(folder).rglob("*") if each.is_file()),
                "metadata_bytes": newest_metadata(folder),
            }


def begun(opened: OpenTables, commits: int, data: bytes) -> TablePosition:
    """Leave a table as maintenance leaves it of commits that are older than a day: one merged file, and the number of the last one."""
    opened.tables[0].create(commits - 1)
    offer = Offer(0, TablePosition(0, NOT_BEGUN), 0, commits * ROWS, 0, ROWS, 0, uuid4().hex, PARQUET)
    opened.store.put(offer.name, data)
    assert opened.log.append(TableDecision(commits, {0: offer.position}, (offer,)))
    opened.committer.run(1)
    return offer.position


def one_file(opened: OpenTables) -> bytes:
    """Return a file of rows. All commits use the same bytes, under names of their own."""
    import pyarrow as pa

    schema = opened.layout.schema
    place = {
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "timestamp_type": 0,
        "leader_epoch": 0,
        "key": b"k",
        "headers": None,
    }
    rows = pa.RecordBatch.from_pylist([{"_kafka": place, "value": b"%d" % row} for row in range(ROWS)], schema)
    buffer = ParquetBuffer(schema)
    buffer.add(rows)
    return buffer.finish({})


def maintain(opened: OpenTables, times_ms: list[int]) -> None:
    now_ms = times_ms[-1]
    begun_ms = times_ms[-DAY] if len(times_ms) >= DAY else 0
    opened.maintenance(MaintenancePolicy(age_ms=now_ms - begun_ms)).run(now_ms)


def files_of(opened: OpenTables) -> int:
    """Return the number of files that the table of rows has."""
    state = opened.tables[0].load()
    assert state is not None
    return opened.tables[0].size(state)[1]


def newest_metadata(folder: str) -> int:
    """Return the size of Iceberg's newest metadata; 0 if there is none."""
    found = [(int(file.name[1:].partition(".")[0]), file) for file in Path(folder).rglob("v*.metadata.json")]
    return max(found)[1].stat().st_size if found else 0


def main(format_: str, milestones: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for found in measure(format_, milestones, folder):
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [*map(int, sys.argv[2:])])
