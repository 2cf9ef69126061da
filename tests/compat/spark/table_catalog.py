"""PySpark over topics that are tables, by the URL of `ottla table serve` and Iceberg's own runtime: docs/TABLES.md.

The runtime is `org.apache.iceberg:iceberg-spark-runtime-4.0_2.13`, in Maven's local repository; ICEBERG_RUNTIME names another file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ottla.local.console import running_catalog
from ottla.server.extras import lacking
from tests.compat.librdkafka import Outcome
from tests.compat.logins import check, outcome

SECONDS_MAX = 300
REPOSITORY = Path.home() / ".m2/repository/org/apache/iceberg"
#: The program prints the count, the values, and the message that a change gets.
JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
spark.conf.set("spark.sql.catalog.lake.type", "rest")
spark.conf.set("spark.sql.catalog.lake.uri", sys.argv[2])
print("tables", sorted(row.tableName for row in spark.sql("show tables in lake.ottla").collect()))
print("values", sorted(row.value for row in spark.sql("select value from lake.ottla.orders").collect()))
print("offsets", spark.sql("select max(_kafka.offset) from lake.ottla.orders").first()[0])
print("snapshots", spark.sql("select count(*) from lake.ottla.orders.snapshots").first()[0])
try:
    spark.sql("insert into lake.ottla.orders select * from lake.ottla.orders")
    print("changed")
except Exception as fault:
    print("refused", type(fault).__name__, str(fault)[:200].replace(chr(10), " "))
spark.stop()
"""
EXPECTED = ("tables ['orders', 'orders__dlq']", "values ['a', 'b', 'c']", "offsets 2", "snapshots 2", "refused")


def runtime() -> str | None:
    """Return the file of Iceberg's runtime for Spark, or None if it is not here."""
    found = sorted(REPOSITORY.glob("iceberg-spark-runtime-4.0_2.13/*/*.jar"))
    return os.environ.get("ICEBERG_RUNTIME") or (str(found[-1]) if found else None)


def missing() -> str | None:
    """Return the reason why the scenario cannot be run here."""
    if (package := lacking("tables")) is not None:
        return f"the package {package} is not installed"
    return None if runtime() else "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13 is not in Maven's local repository"


def outcomes(folder: Path, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    return [report(outcome("PySpark by ottla table serve", lambda: run(folder)))]


def run(folder: Path) -> None:
    from tests.ottla.tables.lakes import Lake  # the dependencies of the extra `tables`

    lake = Lake(str(folder))
    lake.add("orders", [b"a", b"b"])
    lake.add("orders", [b"c", b"\xff"])
    with running_catalog(str(folder), 0, None) as url:
        command = [sys.executable, "-c", JOB, str(runtime()), url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    check(done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-1000:]}")
    for line in EXPECTED:
        check(line in done.stdout, f"{line} is not in {done.stdout[-2000:]}")
    check("changed" not in done.stdout, "Spark has changed a table of a topic")
