"""The upsert table as a Delta table, if the package delta-spark and its jars are installed: each micro-batch is one MERGE.

The MERGE writes the number of its batch into the table's log (`txn`), in the same commit as the rows. A batch that is repeated
after a crash finds its number there and is skipped: the effect is exactly once. The log is read here without Spark, from its
last checkpoint on. As in every Delta table, files that no version needs stay until VACUUM is run.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APPLICATION = "ottla-pipeline"
JARS = "delta-spark_2.13-*.jar"
#: The settings that a session needs, beside the jars.
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Off, because readers of the files alone, such as `verify`, would see rows that are deleted.
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
}
_TXN = "spark.databricks.delta.write.txn"


class Version(NamedTuple):
    """A version of a table: the number of the last batch (-1: none), and its files."""

    batch: int
    files: tuple[str, ...]


def is_usable(jars: Path | None) -> bool:
    """Return whether delta-spark is installed in the version for pyspark, with its jars in the folder."""
    if jars is None or importlib.util.find_spec("delta") is None or not any(jars.glob(JARS)):
        return False
    own, spark = (metadata.version(name).split(".")[:2] for name in ("delta-spark", "pyspark"))
    return own == spark


def is_table(table: str) -> bool:
    return (Path(table) / "_delta_log").is_dir()


def current(table: str) -> Version:
    """Return the present version of the table from its log.

    Raises PipelineError for a table whose files alone do not show its rows.
    """
    batch, files = -1, dict[str, None]()
    for action in _actions(Path(table) / "_delta_log"):
        if (txn := action.get("txn")) and txn["appId"] == APPLICATION:
            batch = max(batch, txn["version"])
        if add := action.get("add"):
            if add.get("deletionVector"):
                raise PipelineError(
                    f"{table} has deletion vectors",
                    remedy="read it with Spark, or set delta.enableDeletionVectors=false",
                )
            files[add["path"]] = None
        if remove := action.get("remove"):
            files.pop(remove["path"], None)
    return Version(batch, tuple(str(Path(table) / unquote(path)) for path in files))


def _actions(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the actions of the last checkpoint, and of the commits after it."""
    first = 0
    pointer = log / "_last_checkpoint"
    if pointer.is_file():
        import pyarrow.parquet as pq

        version = json.loads(pointer.read_text())["version"]
        for file in sorted(log.glob(f"{version:020}.checkpoint*.parquet")):
            for row in pq.read_table(file, columns=["txn", "add"]).to_pylist():
                yield {name: action for name, action in row.items() if action is not None}
        first = version + 1
    for file in sorted(log.glob("[0-9]*.json")):
        if int(file.stem) >= first:
            yield from map(json.loads, file.read_text().splitlines())


def apply(
    spark: SparkSession, table: str, changes: DataFrame, batch_id: int, *, keys: list[str], partition: str
) -> bool:
    """Apply a batch as `upsert.apply` does, with the same arguments."""
    if batch_id <= current(table).batch:
        return False
    spark.conf.set(f"{_TXN}AppId", APPLICATION)
    spark.conf.set(f"{_TXN}Version", str(batch_id))
    try:
        if is_table(table):
            _merge(spark, table, changes, [*keys, partition])
        else:
            rows = changes.where("NOT deleted").drop("deleted")
            rows.write.format("delta").partitionBy(partition).mode("append").save(table)
    finally:
        spark.conf.unset(f"{_TXN}AppId")
        spark.conf.unset(f"{_TXN}Version")
    return True


def _merge(spark: SparkSession, table: str, changes: DataFrame, keys: list[str]) -> None:
    from delta.tables import DeltaTable

    values = {name: f"changes.{name}" for name in changes.columns if name != "deleted"}
    same_key = " AND ".join(f"rows.{name} = changes.{name}" for name in keys)
    merge = DeltaTable.forPath(spark, table).alias("rows").merge(changes.alias("changes"), same_key)
    merge = merge.whenMatchedDelete("changes.deleted").whenMatchedUpdate(set=values)
    merge.whenNotMatchedInsert("NOT changes.deleted", values=values).execute()
