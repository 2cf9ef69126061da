"""Writers of tables that are killed at any time, and one that was stopped and continues late: each record is a row exactly
once.

A writer is an export in a loop in a separate process, with the formats' real libraries; a producer writes records meanwhile.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.effort import LONG
from tests.needs import needs_packages, skip_because

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "msgspec")

import pyarrow.parquet as pq
from deltalake import DeltaTable

from ottla.server.config.tables.topic_tables import DELTA, ICEBERG
from ottla.server.table_work import TableSettings
from ottla.tables.exporting import export
from ottla.tables.file_catalog import FileCatalog
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.offline import find_topic
from ottla.tables.opening import open_tables
from ottla.tables.table_location import delta_options, iceberg_options, open_store
from ottla.testing import Cluster
from tests.ottla.tables.test_export import CHECKPOINTS, READERS, TOPIC, data_of
from tools import versitygw

#: The number of kills; `make chaos` has 200.
KILLS = 200 if LONG else 20
BUCKET = "lake"
#: It has imported the libraries, and forks a writer for each line that it reads. It does not wait for writers, so that the
#: number of one that has ended by itself cannot belong to another process before it is killed.
WRITERS = """
import json, os, sys, uuid
import ottla.tables.delta, ottla.tables.iceberg
from ottla.client.failures import Failure
from ottla.tables.exporting import export
from ottla.tables.store import StoreFailure
from ottla.server.table_work import TableSettings
from ottla.tables.table import CommitConflict, CommitUnknown

settings = TableSettings(sys.argv[3], sys.argv[2], "files", "bytes", "bytes", json.loads(sys.argv[4]))
for _ in sys.stdin:
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    while True:
        try:
            export([sys.argv[1]], "orders", settings, lambda: uuid.uuid4().hex)
        except (StoreFailure, CommitConflict, CommitUnknown, Failure):
            pass
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, per_node={1: CHECKPOINTS}) as started:
        started.topic(TOPIC, partitions=2)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        producer.produce(TOPIC, "first", partition=0)
        producer.flush()
        yield started


class Writers:
    """Processes that export in a loop."""

    def __init__(self, data: str, settings: TableSettings) -> None:
        given = (settings.location, settings.format, json.dumps(settings.options))
        command = [sys.executable, "-c", WRITERS, data, *given]
        self._launcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._living: set[int] = set()

    def begin(self) -> int:
        assert self._launcher.stdin is not None and self._launcher.stdout is not None
        self._launcher.stdin.write("\n")
        self._launcher.stdin.flush()
        pid = int(self._launcher.stdout.readline())
        self._living.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._living.discard(pid)

    def end(self) -> None:
        for pid in [*self._living]:
            self.kill(pid)
        self._launcher.communicate()


@contextmanager
def writers_of(data: str, settings: TableSettings) -> Iterator[Writers]:
    made = Writers(data, settings)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(params=["folder", pytest.param("S3", marks=pytest.mark.chaos)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A location and the options of its store: a folder, or an S3 server that is not written in Python."""
    if request.param == "folder":
        yield str(tmp_path), {}
        return
    skip_because(versitygw.missing())
    with versitygw.running(tmp_path, BUCKET) as options:
        yield f"s3://{BUCKET}/kafka", options


def rows_of(settings: TableSettings) -> list[dict[str, Any]]:
    """Return the rows as the format's own library reads them."""
    if not settings.options:
        return READERS[settings.format](Path(settings.location) / "ottla" / TOPIC)
    store = open_store(settings.location, settings.options)
    if settings.format == ICEBERG:
        catalog = FileCatalog(store, **settings.options, **iceberg_options(settings.options))
        rows: list[dict[str, Any]] = catalog.load_table(("ottla", TOPIC)).scan().to_arrow().to_pylist()
    elif settings.format == DELTA:
        table = DeltaTable(f"{store.url}/ottla/{TOPIC}", storage_options=delta_options(settings.options))
        rows = table.to_pyarrow_table().to_pylist()
    else:
        files = [store.get(each.name) or b"" for each in store.list(f"ottla/{TOPIC}/rows")]
        rows = [row for file in files for row in pq.ParquetFile(io.BytesIO(file)).read().to_pylist()]
    return rows


@pytest.mark.parametrize(
    "format_", ["iceberg", *(pytest.param(name, marks=pytest.mark.chaos) for name in READERS if name != "iceberg")]
)
def test_each_record_is_a_row_once_after_kills_with_a_writer_that_goes_on_late(
    cluster: Cluster, lake: tuple[str, dict[str, str]], format_: str
) -> None:
    settings = TableSettings(format_, lake[0], "files", "bytes", "bytes", lake[1])
    rng = random.Random(format_)
    data = data_of(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1})
    kills = KILLS // len(READERS) + 1
    with writers_of(data, settings) as writers:
        zombie = writers.begin()
        time.sleep(rng.uniform(0.05, 0.3))
        os.kill(zombie, signal.SIGSTOP)
        for number in range(kills):
            for each in range(50):
                producer.produce(TOPIC, f"{format_} {number} {each}", partition=each % 2)
            producer.flush()
            writer = writers.begin()
            time.sleep(rng.uniform(0.05, 0.6))
            writers.kill(writer)
            if number % 3 == 1:  # it continues for a moment with what it had read long ago
                os.kill(zombie, signal.SIGCONT)
                time.sleep(rng.uniform(0.01, 0.1))
                os.kill(zombie, signal.SIGSTOP)
        os.kill(zombie, signal.SIGCONT)
        time.sleep(0.2)
    found = find_topic([data], TOPIC)
    deadline = time.monotonic() + 10
    while True:  # the checkpoint of the high watermark follows later
        done = export([data], TOPIC, settings, lambda: f"{rng.getrandbits(128):032x}")
        expected = {(each.partition, each.offset): each.value for each in cluster.records(TOPIC)}
        if sum(done.positions.values()) >= len(expected):
            break
        assert time.monotonic() < deadline
    rows = rows_of(settings)
    table = [((row["_kafka"]["partition"], row["_kafka"]["offset"]), row["value"]) for row in rows]
    assert len(table) == len(dict(table)) and dict(table) == expected
    opened = open_tables(settings, found.owner)
    for _ in range(2):
        opened.maintenance(MaintenancePolicy(age_ms=0, small_files_max=1 << 20)).run(1 << 50)
    last = opened.log.last()
    assert last is not None and not opened.maintenance(MaintenancePolicy(age_ms=0)).orphans(last)
    assert len(rows_of(settings)) == len(table)
