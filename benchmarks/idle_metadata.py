"""The time that a node takes to open the metadata log of an idle quorum: `python -m benchmarks.idle_metadata [days]`.

The quorum writes a NoOpRecord every half second. The log is made by the node's own code without waiting: with a snapshot every
hour, as by default; with one for so many batches, as with metadata.log.max.snapshot.interval.ms=0; and with none at all.
The logs are not closed, so that each is opened as after kill -9.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.snapshots import BATCHES_BETWEEN_SNAPSHOTS_MAX
from ottla.controller.raft.messages import Batch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.protocol.internal_topics.metadata_records import NoOpRecord
from tests.controller.raft.test_metadata_log import opened, snapshot

DAYS = 7.0
BATCHES_A_DAY = 2 * 24 * 3600
EPOCH = 1


def fill(log: MetadataLog, first: int, end: int) -> None:
    (no_op,) = encode_metadata([NoOpRecord()], 30)
    for offset in range(first, end):
        log.append(Batch(offset, offset, EPOCH, [no_op]), 1)
        log.state.append(offset, offset, EPOCH)
    log.flush(1)


def measure(directory: Path, batches: int, between: int) -> str:
    log = opened(directory)
    for first in range(0, batches, between):
        end = min(batches, first + between)
        fill(log, first, end)
        if end < batches:
            snapshot(log, end, EPOCH)
    found = []
    for _ in range(3):
        began, began_cpu = time.perf_counter(), time.process_time()
        log = opened(directory)
        found.append((time.perf_counter() - began, time.process_time() - began_cpu))
        assert log.state.end_offset == batches
    wall, cpu = min(found)
    return f"{wall:.2f} s ({cpu:.2f} s of CPU)"


def main() -> None:
    batches = int(float(sys.argv[1] if len(sys.argv) > 1 else DAYS) * BATCHES_A_DAY)
    print(f"{batches:,} batches, load average {os.getloadavg()[0]:.1f}")
    rows = {
        "a snapshot every hour": 7_200,
        f"a snapshot for {BATCHES_BETWEEN_SNAPSHOTS_MAX:,} batches": BATCHES_BETWEEN_SNAPSHOTS_MAX,
        "no snapshot": batches,
    }
    for name, between in rows.items():
        directory = Path(tempfile.mkdtemp(prefix="ottla-idle-"))
        try:
            # One batch less than a multiple of the interval, so that the newest snapshot is as old as it can be.
            print(f"| {name} | {measure(directory, batches // between * between, between)} |", flush=True)
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
