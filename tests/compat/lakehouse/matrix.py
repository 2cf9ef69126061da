"""`make compat ARGS=readers`: every engine reads the same rows of the same tables, Spark with both runtimes included.

The tables are Iceberg's, Delta's and Parquet's, of bytes and of typed columns, written in several commits of which maintenance has merged some.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.compat.lakehouse import jars
from tests.compat.logins import check
from tests.ottla.tables import readers
from tests.ottla.tables.readers import FORMS, READERS, Checksum, WrittenTable, checksum, seen, written
from tests.rules.sources import ROOT

COMMITS = 5
SPARK_SECONDS_MAX = 300
#: A job that reads the tables of each place in its input, and prints what it has seen.
JOB = """
import json, sys
from pyspark.sql import SparkSession
from tests.ottla.tables.readers import checksum, seen

jars, lakes = json.loads(sys.argv[1])
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate()
)
for name, (format_, lake) in lakes.items():
    if format_ == "iceberg":
        for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": lake}.items():
            spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        frame = spark.table(f"{name}.ottla.orders")
    elif format_ == "delta":
        frame = spark.read.format("delta").load(f"{lake}/ottla/orders")
    else:
        frame = spark.read.parquet(f"{lake}/ottla/orders/rows")
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    print("SEEN", name, frame.count(), *checksum(seen(rows)), flush=True)
spark.stop()
"""


def tables(folder: Path) -> dict[tuple[str, str], WrittenTable]:
    found = {}
    for format_ in READERS:
        for form in FORMS:
            place = folder / f"{format_}_{form}"
            found[format_, form] = written(place, format_, form, COMMITS, maintained=True)
    return found


def python_engines(folder: Path) -> None:
    """Compare pyiceberg, deltalake, pyarrow, DuckDB, Polars and pandas."""
    made = tables(folder)
    for format_, engines in READERS.items():
        for engine, read in engines.items():
            reason = readers.missing(format_, engine)
            check(reason is None, f"{engine} of {format_}: {reason}")
            for form in FORMS:
                table = made[format_, form]
                _compare(f"{engine}, {format_}, {form}", checksum(seen(read(table.place))), table)


def spark(folder: Path) -> None:
    """Compare Spark 4.0.0, with Iceberg's catalog of files, Delta's tables, and plain Parquet."""
    made = tables(folder)
    lakes = {f"{format_}_{form}": (format_, str(table.place.parents[1])) for (format_, form), table in made.items()}
    given = json.dumps([",".join(map(str, jars.runtimes())), lakes])
    done = subprocess.run(
        [sys.executable, "-c", JOB, given], capture_output=True, text=True, timeout=SPARK_SECONDS_MAX, cwd=ROOT
    )
    check(done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-1500:]}")
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    check(len(lines) == len(made), f"{len(lines)} tables were read: {done.stdout[-500:]}")
    for name, count, rows, digest in lines:
        format_, form = name.split("_")
        check(count == rows, f"{name}: count() is {count}, and {rows} rows were read")
        _compare(f"spark, {name}", Checksum(int(rows), digest), made[format_, form])


def _compare(what: str, found: Checksum, table: WrittenTable) -> None:
    check(found == checksum(table.rows), f"{what}: {found}, and {checksum(table.rows)} was written")


STEPS = {"python": python_engines, "spark": spark}
