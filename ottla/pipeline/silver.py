"""Silver: events are decoded, validated and deduplicated, and go to Parquet.

Rows that are no valid events go to the dead-letter topic.

Two queries read the same bronze rows, so that each has one sink and one checkpoint: the file sink is exactly once; the Kafka
sink is at least once, and a duplicate dead letter has the same source position in its headers. `ottla-pipeline run silver`, or
`spark-submit pipeline/silver.py --config FILE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __name__ == "__main__":
    # spark-submit puts this file's folder first on the path, not the folder that contains the package `ottla`.
    sys.path[0] = next(str(at) for at in Path(__file__).resolve().parents if (at / "ottla/pipeline").is_dir())

from ottla.pipeline import bronze
from ottla.pipeline.config import Config
from ottla.pipeline.events import SHIPPED_SCHEMAS, Event, Limits, RejectedEvent, judge, load_schemas
from ottla.pipeline.source import client_options, connector
from ottla.pipeline.stage import Stage, triggered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NAME: Final = "silver"
DEAD_LETTERS: Final = "dead-letters"
#: The columns of bronze that a dead letter repeats, and its origin.
TAKEN = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
EVENT = "event_id STRING, event_time TIMESTAMP, user STRING, page STRING, duration_ms BIGINT, referrer STRING"
JUDGED = f"{TAKEN}, {EVENT}, reason STRING, detail STRING"
COLUMNS = (
    "event_id",
    "event_time",
    "user",
    "page",
    "duration_ms",
    "referrer",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "to_date(event_time) AS date",
)
SCHEMA = f"{EVENT}, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, date DATE"
#: Headers of a dead letter. The record's own headers follow them.
HEADERS = (
    ("error.reason", "reason"), ("error.detail", "detail"), ("source.topic", "topic"), ("source.partition", "CAST(partition AS STRING)"),
    ("source.offset", "CAST(offset AS STRING)"), ("source.timestamp", "CAST(unix_millis(timestamp) AS STRING)"),
)  # fmt: skip


def judged(rows: DataFrame, config: Config) -> DataFrame:
    """Return bronze rows with either an event or a reason."""
    pipeline = config.pipeline
    schemas = load_schemas(pipeline.schemas or SHIPPED_SCHEMAS)
    limits = Limits(schemas, pipeline.max_lateness_ms, pipeline.max_ahead_ms)
    names = [column.split()[0] for column in TAKEN.replace("STRUCT<key: STRING, value: BINARY>", "").split(", ")]
    judge_batches: Callable[[Iterable[Any]], Iterator[Any]] = partial(_judge_batches, limits=limits)
    return rows.select(*names).mapInArrow(judge_batches, JUDGED)


def _judge_batches(batches: Iterable[Any], limits: Limits) -> Iterator[Any]:
    import pyarrow as pa

    zoned = pa.timestamp("us", tz="UTC")
    for batch in batches:
        values = batch.column("value").to_pylist()
        kafka_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
        verdicts = [judge(value, time // 1000, limits) for value, time in zip(values, kafka_us, strict=True)]
        events = [None if isinstance(verdict, RejectedEvent) else verdict for verdict in verdicts]
        rejected = [verdict if isinstance(verdict, RejectedEvent) else None for verdict in verdicts]
        columns = {name: batch.column(name) for name in batch.schema.names}
        for name in Event._fields:
            type_ = pa.int64() if name.endswith("_ms") else pa.string()
            column = pa.array([event and getattr(event, name) for event in events], type_)
            if name == "event_time_ms":
                ms = pa.timestamp("ms", tz="UTC")
                columns["event_time"] = column.cast(ms).cast(zoned)
            else:
                columns[name] = column
        columns["reason"] = pa.array([each and str(each.reason) for each in rejected], pa.string())
        columns["detail"] = pa.array([each and each.detail for each in rejected], pa.string())
        yield pa.RecordBatch.from_pydict(columns)


def good(rows: DataFrame) -> DataFrame:
    return rows.where("reason IS NULL").selectExpr(*COLUMNS)


def dead(rows: DataFrame, config: Config) -> DataFrame:
    """Return dead letters in the form of the Kafka sink: the original record, with the verdict in headers."""
    added = ", ".join(f"named_struct('key', '{name}', 'value', CAST({value} AS BINARY))" for name, value in HEADERS)
    return rows.where("reason IS NOT NULL").selectExpr(
        f"'{config.kafka.dead_letters}' AS topic",
        "key",
        "value",
        f"concat(array({added}), coalesce(headers, array())) AS headers",
    )


def stream(spark: SparkSession, config: Config) -> list[StreamingQuery]:
    deduplicated = (
        good(judged(bronze.read(spark, config), config))
        .withWatermark("event_time", config.pipeline.watermark)
        .dropDuplicatesWithinWatermark(["event_id"])
    )
    silver = deduplicated.writeStream.format("parquet").partitionBy("date").option("path", config.path("silver"))
    letters = dead(judged(bronze.read(spark, config), config), config).writeStream.format(connector(config))
    return [
        triggered(silver, config, NAME).start(),
        triggered(letters.options(**client_options(config)), config, DEAD_LETTERS).start(),
    ]


def batch(rows: DataFrame, config: Config) -> tuple[DataFrame, DataFrame]:
    """Return the good events of bronze rows, each once, and the dead letters."""
    verdicts = judged(rows, config)
    return good(verdicts).dropDuplicates(["event_id"]), dead(verdicts, config)


def read(spark: SparkSession, config: Config) -> DataFrame:
    return (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", config.pipeline.files_per_trigger)
        .parquet(config.path("silver"))
    )


STAGE: Final = Stage(NAME, stream, bronze.NAME)

if __name__ == "__main__":
    from ottla.pipeline.run import submitted

    submitted(STAGE)
