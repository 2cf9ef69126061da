"""Topics that brokers keep as tables: records that stock clients have written and committed are there once, read by the
formats' own libraries.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.needs import needs_packages, skip_because

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from ottla.testing import Cluster
from tests.ottla.columns.avro.values import record, written
from tests.ottla.conftest import run_here
from tests.ottla.registry.stand_in import registry_of
from tests.ottla.tables.test_export import READERS

FAST = {"ottla.table.commit.interval.ms": "200"}
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, per_node={1: {"ottla.table.maintenance.interval.ms": "1000"}}) as started:
        yield started


def place(cluster: Cluster, topic: str) -> Path:
    return Path(cluster.directory) / "tables" / "ottla" / topic


def write(cluster: Cluster, topic: str, count: int, first: int = 0) -> None:
    """Records of a usual producer, and of transactions that commit and abort."""
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1})
    for number in range(first, first + count):
        plain.produce(topic, f"value {number}", f"key {number}", partition=number % 2)
    plain.flush()
    for name, commits in (("committed", True), ("aborted", False)):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic} {name}"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, f"{name} {first}", partition=0)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()


def wait_for_rows(cluster: Cluster, topic: str, format_: str, count: int) -> dict[tuple[int, int], Any]:
    """Return the values by partition and offset, once there are this many. Fail if an offset occurs twice."""
    deadline = time.monotonic() + TIMEOUT_S
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} rows\n{log_of(cluster)}"
        time.sleep(0.1)
        with suppress(ValueError, OSError, TableNotFoundError):  # the table does not exist yet
            rows = READERS[format_](place(cluster, topic))
    found = {(row["_kafka"]["partition"], row["_kafka"]["offset"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def log_of(cluster: Cluster) -> str:
    return "\n".join(file.read_text()[-3000:] for file in Path(cluster.directory).rglob("server.log"))


@pytest.mark.parametrize("format_", READERS)
def test_each_committed_record_becomes_a_row_while_producers_write(cluster: Cluster, format_: str) -> None:
    cluster.topic(format_, partitions=2, configs={"ottla.table.format": format_, **FAST})
    write(cluster, format_, 300)
    wait_for_rows(cluster, format_, format_, 301)
    write(cluster, format_, 300, first=300)
    found = wait_for_rows(cluster, format_, format_, 602)
    assert found == {(record.partition, record.offset): record.value for record in cluster.records(format_, 602)}


def worker_of(cluster: Cluster, node: int = 1) -> psutil.Process:
    """Return the process beside a node that works on tables: the child with pyarrow's code in its memory."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for child in psutil.Process(cluster.pid(node)).children():
            with suppress(psutil.NoSuchProcess):  # it was killed, and has not been reaped yet
                if has_mapped(child, "pyarrow"):
                    return child
        time.sleep(0.05)
    raise AssertionError(f"no process works on tables\n{log_of(cluster)}")


def has_mapped(process: psutil.Process, library: str) -> bool:
    skip_because(None if sys.platform == "linux" else "what a process has mapped is read from /proc")
    return any(f"/{library}/" in each.path for each in process.memory_maps())


def test_a_node_with_a_table_has_no_library_of_tables_in_its_memory(cluster: Cluster) -> None:
    cluster.topic("lean", partitions=2, configs={"ottla.table.format": "delta", **FAST})
    write(cluster, "lean", 2)
    wait_for_rows(cluster, "lean", "delta", 3)
    worker, node = worker_of(cluster), psutil.Process(cluster.pid(1))
    assert has_mapped(worker, "deltalake")
    assert worker.nice() == min(19, node.nice() + 10), "producers beside it come first"
    assert not [name for name in ("pyarrow", "numpy", "deltalake", "obstore", "pyiceberg") if has_mapped(node, name)]


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_small_files_become_few_by_themselves(cluster: Cluster, format_: str) -> None:
    name = f"kept-{format_}"
    cluster.topic(name, partitions=2, configs={"ottla.table.format": format_, **FAST})
    for turn in range(6):
        write(cluster, name, 10, first=10 * turn)
        wait_for_rows(cluster, name, format_, 11 * (turn + 1))
    merged = f'ottla_table_merged_files_total{{topic="{name}"}} '
    wait_for_page(cluster, "/metrics", lambda text: merged in text and f"{merged}0" not in text)
    found = wait_for_rows(cluster, name, format_, 66)
    assert found == {(record.partition, record.offset): record.value for record in cluster.records(name, 66)}
    state = json.loads(wait_for_page(cluster, f"/tables?topic={name}", lambda text: '"maintained_ms": 1' in text))
    assert state["merged"] > 4 and not state["maintenance_failed"]


@pytest.mark.chaos
def test_the_process_of_tables_may_be_killed_anywhere(cluster: Cluster) -> None:
    cluster.topic("killed", partitions=2, configs={"ottla.table.format": "delta", **FAST})
    for turn in range(3):
        write(cluster, "killed", 100, first=100 * turn)
        os.kill(worker_of(cluster).pid, signal.SIGKILL)
    found = wait_for_rows(cluster, "killed", "delta", 303)
    assert found == {(record.partition, record.offset): record.value for record in cluster.records("killed", 303)}


def test_a_node_that_is_killed_goes_on_where_the_table_is(cluster: Cluster) -> None:
    cluster.topic("restarted", partitions=2, configs={"ottla.table.format": "iceberg", **FAST})
    for turn in range(3):
        write(cluster, "restarted", 100, first=100 * turn)
        cluster.kill(1)
        cluster.start(1)
    found = wait_for_rows(cluster, "restarted", "iceberg", 303)
    assert found == {(record.partition, record.offset): record.value for record in cluster.records("restarted", 303)}


@pytest.mark.chaos
def test_three_brokers_commit_each_record_once_although_leaders_are_killed() -> None:
    with Cluster(3) as cluster:
        cluster.topic("spread", partitions=3, configs={"ottla.table.format": "delta", **FAST})
        acknowledged = 0

        def count(error: object, message: object) -> None:
            nonlocal acknowledged
            assert error is None
            acknowledged += 1

        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        for number in range(3_000):
            producer.produce("spread", f"value {number}", partition=number % 3, on_delivery=count)
            producer.poll(0)
            if number % 1_000 == 500:
                cluster.kill(number // 1_000 + 1)
            if number % 1_000 == 900:
                producer.flush()
                cluster.start(number // 1_000 + 1)
        producer.flush()
        assert acknowledged == 3_000
        found = wait_for_rows(cluster, "spread", "delta", 3_000)
        assert found == {(record.partition, record.offset): record.value for record in cluster.records("spread", 3_000)}


def page(cluster: Cluster, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{cluster.nodes[1].admin_port}{path}") as answer:
        text: str = answer.read().decode()
    return text


def wait_for_page(cluster: Cluster, path: str, found: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    while not found(text := page(cluster, path)):
        assert time.monotonic() < deadline, f"{text}\n{log_of(cluster)}"
        time.sleep(0.1)
    return text


def test_why_a_table_waits_is_seen_and_it_catches_up_by_itself(cluster: Cluster) -> None:
    blocked = place(cluster, "blocked")
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("no folder")
    cluster.topic("blocked", partitions=2, configs={"ottla.table.format": "delta", **FAST})
    write(cluster, "blocked", 10)
    state = json.loads(wait_for_page(cluster, "/tables?topic=blocked", lambda text: '"waits": "' in text))
    assert state["waits_since_ms"] and state["partitions"]["0"]["high_watermark"] >= 5
    assert str(blocked) in state["waits"]
    admin = f"1@127.0.0.1:{cluster.nodes[1].admin_port}"
    described = run_here("topic", "describe", "blocked", "--bootstrap", cluster.bootstrap, "--admin", admin)
    assert f"its table waits at node 1: {blocked}" in described.err
    metrics = page(cluster, "/metrics")
    assert 'ottla_table_waits{topic="blocked"} 1' in metrics
    blocked.unlink()
    wait_for_rows(cluster, "blocked", "delta", 11)
    state = json.loads(wait_for_page(cluster, "/tables?topic=blocked", lambda text: '"waits": null' in text))
    assert (state["rows"], state["lost"], state["format"]) == (11, 0, "delta")
    metrics = wait_for_page(cluster, "/metrics", lambda text: 'ottla_table_lag_records{topic="blocked"} 0' in text)
    assert 'ottla_table_rows_total{topic="blocked"} 11' in metrics
    story = page(cluster, "/story?table=blocked").splitlines()
    assert len(story) == 2 and "waits" in story[0] and "goes on" in story[1]


def test_what_does_not_fit_is_left_out_and_counted_or_has_a_table_as_the_topic_says(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    configs = {"ottla.table.format": "delta", "ottla.table.value": "string", "ottla.table.dlq": "none", **FAST}
    cluster.topic("picky", partitions=1, configs=configs)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in (b"one", b"\xff", b"two"):
        producer.produce("picky", value)
    producer.flush()
    assert {*wait_for_rows(cluster, "picky", "delta", 2)} == {(0, 0), (0, 2)}
    state = json.loads(wait_for_page(cluster, "/tables?topic=picky", lambda text: '"left_out": 1' in text))
    assert state["rejected"] == 0 and not (place(cluster, "picky") / "_rejected").exists()
    assert 'ottla_table_left_out_records_total{topic="picky"} 1' in page(cluster, "/metrics")

    change = ConfigEntry("ottla.table.dlq", "table", incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "picky", incremental_configs=[change])]
    ).values()
    done.result()
    wait_for_page(cluster, "/tables?topic=picky", lambda text: '"waits": null' in text)
    producer.produce("picky", b"\xfe")
    producer.flush()
    wait_for_page(cluster, "/tables?topic=picky", lambda text: '"rejected": 1' in text)
    (row,) = DeltaTable(place(cluster, "picky") / "_rejected").to_pyarrow_table().to_pylist()
    assert (row["_kafka"]["offset"], row["value"]) == (3, b"\xfe") and "UTF-8" in row["reason"]


def test_a_stock_client_learns_what_is_wrong_with_a_tables_settings(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for configs, text in (
        ({"ottla.table.format": "csv"}, "String must be one of: none, iceberg, delta, parquet"),
        ({"ottla.table.dlq": "orders"}, "String must be one of: table, none"),
        ({"ottla.table.format": "delta", "ottla.table.location": "/etc"}, "/etc is not allowed"),
    ):
        (made,) = admin.create_topics([NewTopic("wrong", 1, 1, config=configs)]).values()
        with pytest.raises(KafkaException) as caught:
            made.result()
        assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG and text in caught.value.args[0].str()


def test_a_newer_schema_of_the_registry_gives_a_brokers_table_a_column() -> None:
    """A value that names no schema is rejected."""
    old, new = record(("id", "int")), record(("id", "long"), ("note", "string", "-"))
    rows = {f"/schemas/ids/{number}": {"schema": json.dumps(each)} for number, each in ((1, old), (2, new))}
    latest = "/subjects/typed-value/versions/latest"
    configs = {"ottla.table.format": "iceberg", "ottla.table.value": "registry", **FAST}
    served: dict[str, Any] = {**rows, latest: {"id": 1}}
    with registry_of(served) as (url, _), Cluster(1, per_node={1: {"ottla.table.registry": url}}) as started:
        started.topic("typed", partitions=1, configs=configs)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        producer.produce("typed", written(old, {"id": 1}))
        producer.produce("typed", b"no schema")
        producer.flush()
        found = typed_rows(started, 1)
        assert [row["id"] for row in found] == [1]
        served[latest] = {"id": 2}
        producer.produce("typed", written(new, {"id": 2**40, "note": "x"}, 2))
        producer.flush()
        found = sorted(typed_rows(started, 2), key=lambda row: row["id"])
        assert [(row["id"], row["note"]) for row in found] == [(1, None), (2**40, "x")]


def typed_rows(cluster: Cluster, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + TIMEOUT_S
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} rows\n{log_of(cluster)}"
        time.sleep(0.1)
        with suppress(ValueError, OSError):  # the table does not exist yet
            rows = READERS["iceberg"](place(cluster, "typed"))
    return rows
