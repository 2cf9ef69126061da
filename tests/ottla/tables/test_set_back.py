"""Tables of a cluster that is set back: `ottla snapshot restore`, and `ottla rewind` of a fork with tables of its own.

The usual way is the worst one: the cluster was stopped and started once before each of two futures, so that both have the same leader epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

from deltalake.exceptions import TableNotFoundError

from ottla.local.snapshots.rewinding import rewind_fork
from ottla.testing import Cluster
from tests.ottla.conftest import run_here
from tests.ottla.tables.test_broker_tables import FAST, TIMEOUT_S, log_of, place
from tests.ottla.tables.test_export import READERS

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
#: As docs/TABLES.md has it.
NEWEST = (
    "select * from orders qualify "
    "row_number() over (partition by _kafka.partition, _kafka.offset order by _kafka.leader_epoch desc) = 1"
)
Rows = dict[tuple[int, int], bytes]


def write(cluster: Cluster, kind: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1})
    for number in range(count):
        producer.produce(TOPIC, f"{kind} {number}", partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0


def newest(cluster: Cluster) -> Rows:
    """Return the values of the table, of each offset that of the newest leader epoch, as the page of tables has it."""
    found: dict[tuple[int, int], tuple[int, bytes]] = {}
    try:
        rows = READERS["delta"](place(cluster, TOPIC))
    except TableNotFoundError:
        return {}
    for row in rows:
        at = row["_kafka"]
        before = found.get((at["partition"], at["offset"]))
        assert before is None or before[0] != at["leader_epoch"], "one record is a row twice"
        if before is None or before[0] < at["leader_epoch"]:
            found[at["partition"], at["offset"]] = at["leader_epoch"], row["value"]
    return {name: value for name, (_, value) in found.items()}


def wait_until_table_is_log(cluster: Cluster, count: int) -> None:
    log: Rows = {(each.partition, each.offset): each.value or b"" for each in cluster.records(TOPIC, count)}
    deadline = time.monotonic() + TIMEOUT_S
    while (rows := newest(cluster)) != log:
        different = sorted(each for each in log.keys() | rows.keys() if log.get(each) != rows.get(each))
        assert time.monotonic() < deadline, f"{different[:5]} of {len(different)} differ\n{log_of(cluster)}"
        time.sleep(0.2)


def restored(cluster: Cluster, between: Callable[[], None]) -> None:
    """Stop the cluster, keep it as it is, let it go on, and restore it."""
    run = ("snapshot", "create", "monday", "--dir", cluster.directory)
    cluster.stop(1)
    assert run_here(*run).code == 0
    cluster.start(1)
    between()
    cluster.stop(1)
    done = run_here("snapshot", "restore", "monday", "--yes", "--dir", cluster.directory)
    assert done.code == 0, done.err
    cluster.start(1)


def test_the_table_of_a_restored_cluster_has_what_is_written_again(tmp_path: Path) -> None:
    with Cluster(1, directory=str(tmp_path / "c")) as cluster:
        cluster.topic(TOPIC, partitions=2, configs={"ottla.table.format": "delta", **FAST})
        write(cluster, "kept", 20)
        wait_until_table_is_log(cluster, 20)

        def lost() -> None:
            write(cluster, "lost", 20)
            wait_until_table_is_log(cluster, 40)

        restored(cluster, lost)
        write(cluster, "new", 40)
        wait_until_table_is_log(cluster, 60)
        assert "have parted" in log_of(cluster)
        counted = run_here("sql", f"select count(*) from ({NEWEST})", "--at", str(place(cluster, TOPIC).parents[1]))
        assert "60" in counted.out, counted.err


def test_the_table_of_a_fork_that_was_rewound_has_what_is_written_again(tmp_path: Path) -> None:
    with Cluster(1) as cluster:
        cluster.topic(TOPIC, partitions=2)
        write(cluster, "kept", 20)
        with cluster.snapshot() as taken:
            fork = taken.fork(str(tmp_path / "fork"))
            with fork:
                alter = (
                    "config",
                    "set",
                    "topic",
                    TOPIC,
                    "ottla.table.format=delta",
                    "ottla.table.commit.interval.ms=200",
                )
                assert run_here(*alter, "-b", fork.bootstrap).code == 0
                wait_until_table_is_log(fork, 20)
                time.sleep(0.05)  # times of records and of the metadata are those of other processes
                time_ms = time.time_ns() // 1_000_000
                time.sleep(0.05)
                fork.restart(1)
                write(fork, "lost", 20)
                wait_until_table_is_log(fork, 40)
                fork.stop(1)
                rewind_fork(fork.directory, time_ms)
                fork.start(1)
                write(fork, "new", 40)
                wait_until_table_is_log(fork, 60)
