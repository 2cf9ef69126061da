"""A job as users submit it: `spark-submit --py-files WHEEL job.py PACKAGE BOOTSTRAP FOLDER TOPIC` prints its counts.

PACKAGE is the package of the wheel: ottla.spark or pyspark_ottla. Nothing else of Ottla is imported here. TOPIC and TOPIC-copy
exist.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

ROWS = 3000
TRIES_MAX = 10


def patiently(work: Callable[[], None]) -> None:
    """Spark gives a new process of Python ten seconds to start, and has no setting for this limit. On a busy machine the job
    needs more tries.
    """
    for _ in range(TRIES_MAX):
        try:
            return work()
        except Exception as fault:
            if "failed to connect back" not in str(fault):
                raise
    return work()


def committed(spark: Any, bootstrap: str, topic: str) -> Any:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.option("kafka.isolation.level", "read_committed").load()


def copy(spark: Any, bootstrap: str, folder: str, source: str, target: str) -> None:
    """Copy the records that are not copied yet, by the checkpoint."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()


def main(package: str, bootstrap: str, folder: str, topic: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    importlib.import_module(package).register(spark)
    rows = spark.range(0, ROWS, 1, 4).selectExpr("CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value")
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    for _ in range(2):  # the second write is of the same batch, as when foreachBatch repeats it after a crash
        writer.options(sinkId=topic, batchId="0").mode("append").save()
    for _ in range(2):
        patiently(partial(copy, spark, bootstrap, folder, topic, f"{topic}-copy"))
    found = [committed(spark, bootstrap, name).selectExpr("CAST(value AS STRING)") for name in (topic, f"{topic}-copy")]
    counts = [[each.count(), each.distinct().count()] for each in found]
    print("COUNTS", json.dumps({"pyspark": spark.version, "rows and distinct rows": counts}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
