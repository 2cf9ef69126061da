"""`ottla sql` over tables of each format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "duckdb", "moto", "flask")

from tests.ottla.conftest import run_here
from tests.ottla.tables.conftest import S3_KEYS
from tests.ottla.tables.lakes import Lake

TOPICS = ("orders", "click-stream.v1", "raw")


def sql(lake: Path, *statement: str) -> list[dict[str, object]]:
    done = run_here("sql", *statement, "--at", str(lake), "-o", "json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_table_of_each_format_is_asked_by_the_name_of_its_topic(lake: Path, topic: str) -> None:
    statement = f'select _kafka."offset" as o, value, _kafka.key as key from "{topic}" order by o'
    assert sql(lake, statement) == [
        {"o": 0, "value": "a", "key": "k0"},
        {"o": 1, "value": "b", "key": "k1"},
        {"o": 2, "value": "c", "key": "k0"},
    ]
    assert sql(lake, f'select count(*) as n from "{topic}"') == [{"n": 3}]
    assert sql(lake, f'select value, reason from "{topic}__dlq"') == [
        {"value": "\\xff", "reason": "value: it is no UTF-8: invalid start byte at byte 0"}
    ]


def test_several_tables_are_joined_and_rows_are_shown_whole(lake: Path) -> None:
    joined = 'select o.value as v from orders o join RAW r on o.value = r.value join "click-stream.v1" c on c.value = r.value'
    assert sql(lake, f"{joined} order by v") == [{"v": "a"}, {"v": "b"}, {"v": "c"}]
    (row,) = sql(lake, "select * from orders where value = 'b'")
    assert row["value"] == "b"
    assert row["_kafka"] == {
        "partition": 0,
        "offset": 1,
        "timestamp": "2026-01-02T03:04:05+00:00",
        "timestamp_type": 0,
        "leader_epoch": 0,
        "key": "k1",
        "headers": None,
    }
    assert sql(lake, "select 1 as a, 2 as a") == [{"a": 1, "a_1": 2}]
    assert sql(lake, "create table mine as select value from orders; select count(*) as n from mine") == [{"n": 3}]


def test_names_that_are_one_in_sql_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """Both names mean the same table for DuckDB: a join would read one of them twice."""
    for topic, value in (("orders", b"small"), ("Orders", b"large")):
        Lake(str(tmp_path)).add(topic, [value], "parquet")
    assert sql(tmp_path, 'select value from "Orders"') == [{"value": "large"}]
    assert sql(tmp_path, "select value from orders") == [{"value": "small"}]
    for statement in ('select * from orders, "Orders"', "select * from ORDERS"):
        done = run_here("sql", statement, "--at", str(tmp_path))
        assert done.code == 1 and "Orders and orders are one name in SQL" in done.err


def test_numbers_that_json_does_not_have_are_texts(lake: Path) -> None:
    assert sql(lake, "select 'nan'::double as a, ['-inf'::float] as b, 1.5 as c") == [
        {"a": "NaN", "b": ["-Infinity"], "c": "1.5"}
    ]


@pytest.mark.parametrize("location", ["a?b", "a#b", "a%20b", "file:///srv/a#b", "s3://lake/%2e%2e/b"])
def test_a_place_that_readers_would_take_apart_is_refused(tmp_path: Path, location: str) -> None:
    """delta-rs kept the log of a table in `a%20b` in `a b`, so each reader saw only half of the table."""
    done = run_here("sql", "--at", location if "://" in location else str(tmp_path / location))
    assert done.code == 1 and "tables cannot lie where" in done.err


def test_an_address_that_is_none_is_a_sentence() -> None:
    done = run_here("sql", "--at", "s3://")
    assert done.code == 1 and done.err.startswith("ottla: s3://: ") and len(done.err.splitlines()) < 4


def test_tables_are_listed_without_a_statement_and_strange_folders_are_passed_over(lake: Path) -> None:
    done = run_here("sql", "--at", str(lake))
    assert done.out.split() == [
        *("TABLE", "TOPIC", "FORMAT"),
        *("click-stream.v1", "click-stream.v1", "delta"),
        *("click-stream.v1__dlq", "click-stream.v1", "delta"),
        *("orders", "orders", "iceberg"),
        *("orders__dlq", "orders", "iceberg"),
        *("raw", "raw", "parquet"),
        *("raw__dlq", "raw", "parquet"),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "select * from read_text('{file}')",
        "copy (select 1) to '{file}.copy'",
        "attach '{file}.db'",
        "load httpfs",
        "install httpfs",
        "set enable_external_access = true",
        "export database '{file}.d'",
        "select * from glob('{folder}/*')",
        "select * from place",  # a Python variable
        "insert into orders values (1)",
        "drop table orders",
        "select",
    ],
)
def test_a_statement_reaches_the_tables_and_nothing_else(lake: Path, tmp_path: Path, statement: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n1\n")
    done = run_here("sql", statement.format(file=file, folder=tmp_path), "--at", str(lake))
    assert done.code != 0 and "secret\n1" not in done.out, done.out
    assert [*tmp_path.iterdir()] == [file]


def test_a_statement_with_a_wrong_name_says_how_tables_are_listed(lake: Path) -> None:
    done = run_here("sql", "select * from nothing", "--at", str(lake))
    assert done.code == 2 and "nothing" in done.err and f"ottla sql --at {lake}" in done.err


def test_a_location_that_is_not_named_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = run_here("sql", "select 1")
    assert done.code == 2 and "--at FOLDER" in done.err


def test_a_table_in_an_s3_store_is_asked_without_an_extension(s3: str) -> None:
    options = {**S3_KEYS, "endpoint": s3}
    Lake("s3://lake/sql", **options).add("orders", [b"a", b"b"])
    Lake("s3://lake/sql", **options).add("clicks", [b"c"], "delta")
    given = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    statement = "select o.value as a, c.value as b from orders o, clicks c order by 1"
    done = run_here("sql", statement, "--at", "s3://lake/sql", *given, "-o", "json")
    assert done.code == 0, done.err
    assert done.out.splitlines() == ['{"a": "a", "b": "c"}', '{"a": "b", "b": "c"}']


def test_columns_that_a_table_got_later_are_null_in_its_older_files(tmp_path: Path) -> None:
    from pyiceberg.types import IntegerType

    from ottla.tables.directory_store import DirectoryStore
    from ottla.tables.file_catalog import FileCatalog

    Lake(str(tmp_path)).add("orders", [b"a"])
    table = FileCatalog(DirectoryStore(str(tmp_path))).load_table(("ottla", "orders"))
    with table.update_schema() as update:
        update.add_column("extra", IntegerType())
    assert sql(tmp_path, "select value, extra from orders") == [{"value": "a", "extra": None}]
