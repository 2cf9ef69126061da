"""A table whose rows can be replaced: foreachBatch writes gold to it. It needs a local or mounted file system.

If Delta is available it is a Delta table (delta.py), otherwise this module's own form of Parquet. A table keeps the form that
it has.

The folder holds one sub-folder of Parquet per table partition and batch, and `_manifest/<batch>.json`, which names the
sub-folders that make up the table after that batch. A batch rewrites only the partitions it touches and then publishes its
manifest by one rename, so a reader sees a whole batch or none. If a batch is repeated after a crash and its manifest exists, it
is skipped; otherwise its partial files are overwritten. So the effect is exactly once.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipeline import delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Readers of the manifests before the last one may still be at work.
MANIFESTS_KEPT = 3


def current(table: str) -> tuple[int, dict[str, str]]:
    """Return the number of the last batch (-1: none), and the folder of each partition."""
    found = sorted(manifests(table).items())
    return (found[-1][0], json.loads(found[-1][1].read_text())) if found else (-1, {})


def last_batch(table: str) -> int:
    """Return the number of the last batch of a table of either form, or -1."""
    return delta.current(table).batch if delta.is_table(table) else current(table)[0]


def manifests(table: str) -> dict[int, Path]:
    folder = Path(table) / "_manifest"
    return {int(file.stem): file for file in folder.glob("*.json")} if folder.is_dir() else {}


def apply(
    spark: SparkSession,
    table: str,
    changes: DataFrame,
    batch_id: int,
    *,
    keys: list[str],
    partition: str,
    in_delta: bool = False,
) -> bool:
    """Replace or add the rows of `changes` by their keys; rows with `deleted` true are removed.

    Return False if this batch was applied before.

    A key must always fall into the same partition and occur once in a batch. `changes` is read several times: persist it. With
    `in_delta` a new table becomes a Delta table.
    """
    if delta.is_table(table) or (in_delta and not manifests(table)):
        return delta.apply(spark, table, changes, batch_id, keys=keys, partition=partition)
    last, folders = current(table)
    if batch_id <= last:
        return False
    folders = dict(folders)
    for row in changes.select(partition).distinct().collect():
        name = str(row[0])
        touched = changes.where(changes[partition] == row[0])
        kept = touched.where("NOT deleted").drop("deleted")
        if name in folders:
            before = spark.read.parquet(str(Path(table) / folders[name]))
            kept = before.join(touched.select(*keys), keys, "left_anti").unionByName(kept)
        target = f"{name}/{batch_id}"
        kept.coalesce(1).write.mode("overwrite").parquet(str(Path(table) / target))
        folders[name] = target
    publish(table, batch_id, folders)
    return True


def publish(table: str, batch_id: int, folders: dict[str, str]) -> None:
    folder = Path(table) / "_manifest"
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{batch_id}.draft"
    with draft.open("w") as file:
        file.write(json.dumps(folders))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / f"{batch_id}.json")
    remove_old(table)


def remove_old(table: str) -> None:
    """Drop old manifests, and every folder that no remaining manifest names."""
    (*old,) = sorted(manifests(table).items())[:-MANIFESTS_KEPT]
    for _, file in old:
        file.unlink()
    named = {name for file in manifests(table).values() for name in json.loads(file.read_text()).values()}
    for partition in Path(table).iterdir():
        if partition.name.startswith("_"):
            continue
        for folder in partition.iterdir():
            if f"{partition.name}/{folder.name}" not in named:
                shutil.rmtree(folder, ignore_errors=True)


def files(table: str) -> list[str]:
    """Return the present Parquet files of the table, for readers without Spark."""
    if delta.is_table(table):
        return list(delta.current(table).files)
    return [str(file) for name in current(table)[1].values() for file in sorted((Path(table) / name).glob("*.parquet"))]
