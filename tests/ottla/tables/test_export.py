"""`ottla table export` of records from stock clients, read by the formats' own libraries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from ottla.server.table_work import TableSettings
from ottla.tables.opening import open_tables
from ottla.tables.table import Owner, TableRefused
from ottla.testing import Cluster
from tests.ottla.columns.avro.values import record, written
from tests.ottla.conftest import Finished, run_here
from tests.ottla.registry.stand_in import registry_of

TOPIC = "orders"
#: In production the node writes it every five seconds.
CHECKPOINTS = {"replica.high.watermark.checkpoint.interval.ms": "50"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, per_node={1: CHECKPOINTS}) as started:
        started.topic(TOPIC, partitions=2)
        write(started)
        yield started


def write(cluster: Cluster) -> None:
    """Records of a usual producer, of transactions that commit and abort, and at the end one that stays open."""
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1})
    for number in range(500):
        plain.produce(
            TOPIC, f"value {number}", f"key {number}", partition=number % 2, headers=[("n", str(number).encode())]
        )
    plain.produce(TOPIC, b"\xff\xfe no UTF-8", b"bad", partition=0)
    plain.produce(TOPIC, None, b"a tombstone", partition=1)
    plain.flush()
    for name, commits in (("committed", True), ("aborted", False)):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(5):
            producer.produce(TOPIC, f"{name} {number}", name, partition=number % 2)
        producer.commit_transaction() if commits else producer.abort_transaction()


def data_of(cluster: Cluster) -> str:
    (folder,) = {folder.parent for folder in Path(cluster.directory).rglob(f"{TOPIC}-0")}
    return str(folder)


def export(cluster: Cluster, lake: Path, *more: str) -> Finished:
    return run_here("table", "export", TOPIC, "--log-dir", data_of(cluster), "--to", str(lake), *more, "-o", "json")


def iceberg(place: Path) -> list[dict[str, Any]]:
    versions = [int(file.name[1:].split(".")[0]) for file in place.glob("metadata/v*.metadata.json")]
    rows: list[dict[str, Any]] = (
        StaticTable.from_metadata(f"{place}/metadata/v{max(versions)}.metadata.json").scan().to_arrow().to_pylist()
    )
    return rows


def delta(place: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    return rows


def parquet(place: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(place.glob("rows/*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {"iceberg": iceberg, "delta": delta, "parquet": parquet}


def expected(cluster: Cluster) -> dict[tuple[int, int], bytes | None]:
    """Return the committed records, as a stock consumer sees them."""
    return {(record.partition, record.offset): record.value for record in cluster.records(TOPIC, 507)}


@pytest.mark.parametrize("format_", READERS)
def test_each_committed_record_is_a_row_once_however_often_it_is_exported(
    cluster: Cluster, tmp_path: Path, format_: str
) -> None:
    place = tmp_path / "lake" / "ottla" / TOPIC
    for _ in range(2):
        done = export(cluster, tmp_path / "lake", "--format", format_)
        assert done.code == 0, done.err
    rows = READERS[format_](place)
    found = [(row["_kafka"]["partition"], row["_kafka"]["offset"]) for row in rows]
    assert len(found) == len(set(found)) == 507
    values = {where: row["value"] for where, row in zip(found, rows, strict=True)}
    assert values == expected(cluster)
    (row,) = (row for row in rows if row["value"] == b"value 42")
    assert row["_kafka"]["key"] == b"key 42" and row["_kafka"]["headers"] == [{"key": "n", "value": b"42"}]
    assert row["_kafka"]["leader_epoch"] == 0 and row["_kafka"]["timestamp_type"] == 0


def test_what_is_no_text_is_rejected_with_its_reason_and_stops_nothing(cluster: Cluster, tmp_path: Path) -> None:
    done = export(cluster, tmp_path, "--format", "parquet", "--value", "string")
    assert done.code == 0 and "506 rows, 1 rejected" in done.err
    place = tmp_path / "ottla" / TOPIC
    assert len(parquet(place)) == 506
    (bad,) = (row for file in place.glob("rejected_rows/*.parquet") for row in pq.ParquetFile(file).read().to_pylist())
    assert bad["value"] == b"\xff\xfe no UTF-8" and bad["_kafka"]["key"] == b"bad"
    assert bad["reason"] == "value: it is no UTF-8: invalid start byte at byte 0"


def test_the_lag_is_that_of_the_log(cluster: Cluster, tmp_path: Path) -> None:
    done = export(cluster, tmp_path, "--format", "delta")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["partition"] for row in rows] == [0, 1]
    assert all(row["lag"] == 0 and row["committed"] == row["table"] > 250 for row in rows)


def test_a_topic_that_is_made_again_does_not_write_into_the_others_table(cluster: Cluster, tmp_path: Path) -> None:
    assert export(cluster, tmp_path, "--format", "delta").code == 0
    decision = tmp_path / "ottla" / TOPIC / "_commits" / f"{1:012}.json"
    decision.write_text(decision.read_text().replace('"topic_id": "', '"topic_id": "x'))
    done = export(cluster, tmp_path, "--format", "delta")
    assert done.code == 1 and f"has the rows of topic {TOPIC} (id x" in done.err


def test_values_are_columns_by_the_schemas_that_they_name_also_when_a_newer_one_comes_between(
    cluster: Cluster, tmp_path: Path
) -> None:
    old, new = record(("id", "int")), record(("id", "long"), ("note", "string", "-"))
    schemas = {f"/schemas/ids/{number}": {"schema": json.dumps(each)} for number, each in ((1, old), (2, new))}
    latest = "/subjects/typed-value/versions/latest"
    place = tmp_path / "ottla" / "typed"
    cluster.topic("typed", partitions=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    given = typed(cluster, tmp_path, "parquet")
    with registry_of({**schemas, latest: {"id": 1}}) as (url, _):
        for value in (written(old, {"id": 1}), written(old, {"id": 2})):
            producer.produce("typed", value, "k")
        producer.flush()
        done = exported_all("typed", 2, *given, "--registry", url)
        for format_ in ("iceberg", "delta"):
            exported_all("typed", 2, *typed(cluster, tmp_path / "grown" / format_, format_), "--registry", url)
    with registry_of({**schemas, latest: {"id": 2}}) as (url, _):
        for value in (written(old, {"id": 3}), written(new, {"id": 2**40, "note": "x"}, 2), b"bad"):
            producer.produce("typed", value, "k")
        producer.flush()
        done = exported_all("typed", 5, *given, "--registry", url)
        for format_ in ("iceberg", "delta"):
            lake = tmp_path / format_
            exported_all("typed", 5, *typed(cluster, lake, format_), "--registry", url)
            read = READERS[format_](lake / "ottla" / "typed")
            assert sorted((row["id"], row["note"]) for row in read) == [(1, "-"), (2, "-"), (3, "-"), (2**40, "x")]
        exported_all("typed", 5, *typed(cluster, tmp_path / "grown" / "iceberg", "iceberg"), "--registry", url)
        grown = iceberg(tmp_path / "grown" / "iceberg" / "ottla" / "typed")
        assert sorted((row["id"], row["note"]) for row in grown) == [(1, None), (2, None), (3, "-"), (2**40, "x")]
        refused = run_here(
            "table", "export", "typed", *typed(cluster, tmp_path / "grown" / "delta", "delta"), "--registry", url
        )
        assert refused.code == 1 and "Delta cannot change the type of id" in refused.err
    assert "1 rejected" in done.err
    rows = {row["_kafka"]["offset"]: row for row in parquet(place)}
    assert [rows[offset].get("note") for offset in range(4)] == [None, None, "-", "x"]
    assert [rows[offset]["id"] for offset in range(4)] == [1, 2, 3, 2**40]
    away = run_here("table", "export", "typed", *given, "--registry", "http://127.0.0.1:1")
    assert away.code == 1 and "the schema registry at http://127.0.0.1:1 cannot be reached" in away.err


def typed(cluster: Cluster, lake: Path, format_: str) -> tuple[str, ...]:
    return "--log-dir", data_of(cluster), "--to", str(lake), "--format", format_, "--value", "registry"


def exported_all(topic: str, records: int, *given: str) -> Finished:
    """Export once the log directory shows that this many records are committed."""
    for _ in range(200):
        done = run_here("table", "export", topic, *given, "-o", "json")
        if done.code == 0 and json.loads(done.out)["committed"] == records:
            return done
        assert done.code == 0 or "no partition" in done.err, done.err
        time.sleep(0.05)
    raise AssertionError(done.out + done.err)


def test_a_table_is_partitioned_as_the_export_that_makes_it_says(cluster: Cluster, tmp_path: Path) -> None:
    for partition in ("day", "none"):  # the second one continues with the existing table
        done = export(cluster, tmp_path, "--format", "delta", "--partition", partition)
        assert done.code == 0, done.err
    table = DeltaTable(tmp_path / "ottla" / TOPIC)
    rows = table.to_pyarrow_table().to_pylist()
    assert table.metadata().partition_columns == ["_kafka_day"] and len(rows) == 507
    assert all(row["_kafka_day"] == row["_kafka"]["timestamp"].date() for row in rows)


def test_json_is_columns_by_a_given_schema(cluster: Cluster, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"properties": {"value": {"type": "integer"}}}')
    done = export(cluster, tmp_path, "--format", "parquet", "--value", "json", "--json-schema", str(schema))
    assert done.code == 0 and "1 rows, 506 rejected" in done.err, "none but the tombstone is JSON"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--log-dir", "/nowhere"), "these log directories have no partition of orders"),
        (("--option", "region"), "--option region is not NAME=VALUE"),
        (("--to", "ftp://x"), "ftp://x"),
        (("--value", "registry"), "a value that is registry needs the address of a schema registry"),
        (("--json-schema", "/no.json"), "/no.json"),
    ],
)
def test_what_is_wrong_is_said(cluster: Cluster, tmp_path: Path, arguments: tuple[str, str], said: str) -> None:
    given = {"--log-dir": data_of(cluster), "--to": str(tmp_path)} | {arguments[0]: arguments[1]}
    done = run_here("table", "export", TOPIC, *(word for pair in given.items() for word in pair))
    assert done.code != 0 and said in done.err


def test_a_topic_of_the_name_of_rejected_records_has_no_table(tmp_path: Path) -> None:
    settings = TableSettings("parquet", str(tmp_path), "files", "bytes", "bytes", {})
    with pytest.raises(TableRefused, match="orders__dlq has the name of a table of rejected records"):
        open_tables(settings, Owner("cluster", "id", "orders__dlq"))


@pytest.mark.parametrize("topic", ["../orders", "", ".."])
def test_a_name_that_no_topic_has_is_no_path(tmp_path: Path, topic: str) -> None:
    done = run_here("table", "status", topic, "--at", str(tmp_path))
    assert done.code == 1 and f"{topic!r} is no name of a topic" in done.err


def table(command: str, lake: Path, *more: str) -> Finished:
    return run_here("table", command, TOPIC, "--at", str(lake), *more)


@pytest.mark.parametrize("format_", READERS)
def test_the_status_is_that_of_the_table(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    export(cluster, tmp_path, "--format", format_, "--value", "string")
    done = table("status", tmp_path, "--log-dir", data_of(cluster), "-o", "json")
    assert done.code == 0, done.err
    row = json.loads(done.out)
    assert row.pop("last_commit").startswith("20")
    files, counts = row.pop("files"), {"rows": 506, "rejected": 1, "waiting": 0, "lag": 0}
    assert (
        files == 2
        and row
        == {"topic": TOPIC, "commits": 1, "orphans": 2 * (format_ == "parquet") + (format_ == "parquet")} | counts
    )
    done = table("status", tmp_path, "--partitions", "-o", "json")
    assert [json.loads(line)["table"] > 250 for line in done.out.splitlines()] == [True, True]


@pytest.mark.parametrize("format_", READERS)
def test_a_table_that_is_rebuilt_is_what_it_was(cluster: Cluster, tmp_path: Path, format_: str) -> None:
    export(cluster, tmp_path, "--format", format_)
    place = tmp_path / "ottla" / TOPIC
    rows = sorted(READERS[format_](place), key=lambda row: (row["_kafka"]["partition"], row["_kafka"]["offset"]))
    done = table("rebuild", tmp_path, "--yes", "--log-dir", data_of(cluster))
    assert done.code == 0, done.err
    assert not [file for file in place.rglob("*") if file.is_file()]
    assert "there is no table of orders" in table("status", tmp_path).err
    done = export(cluster, tmp_path, "--format", format_, "--value", "string")
    assert done.code == 0 and "506 rows, 1 rejected" in done.err
    again = [row["_kafka"] for row in READERS[format_](place)]
    bad = [row["_kafka"] for row in rows if row["value"] == b"\xff\xfe no UTF-8"]
    assert sorted([*again, *bad], key=lambda row: (row["partition"], row["offset"])) == [row["_kafka"] for row in rows]


def test_another_topics_table_is_rebuilt_only_by_its_id(cluster: Cluster, tmp_path: Path) -> None:
    export(cluster, tmp_path, "--format", "delta")
    done = table("rebuild", tmp_path, "--yes")
    assert done.code != 0 and "discard it: --discard " in done.err
    topic_id = done.err.rpartition("--discard ")[2].split()[0]
    assert table("rebuild", tmp_path, "--yes", "--discard", "x").code != 0
    assert table("rebuild", tmp_path, "--yes", "--discard", topic_id).code == 0


def test_maintenance_is_a_command_and_changes_no_row(cluster: Cluster, tmp_path: Path) -> None:
    export(cluster, tmp_path)
    before = iceberg(tmp_path / "ottla" / TOPIC)
    done = table("maintain", tmp_path, "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "topic": TOPIC,
        **dict.fromkeys(("merged", "expired", "orphans", "decisions", "conflicts"), 0),
    }
    assert iceberg(tmp_path / "ottla" / TOPIC) == before
