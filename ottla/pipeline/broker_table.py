"""Bronze as the brokers write it: the topic's own table of Parquet (docs/TABLES.md), which silver reads instead of the output
of a bronze stage.

A file of the table appears complete, keeps its name, and shares no record with other files; so Spark's stream of files reads
each record once. The folder must be in a file system, as all folders of the pipeline.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from ottla.pipeline.config import TABLE, Config
from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Configurations of the topic of events, if the pipeline creates it.
FORMAT, INTERVAL = "ottla.table.format", "ottla.table.commit.interval.ms"
PARQUET = "parquet"
SCHEMA = (
    "_kafka STRUCT<partition: INT, offset: BIGINT, timestamp: TIMESTAMP, timestamp_type: INT, leader_epoch: INT, key: BINARY, "
    "headers: ARRAY<STRUCT<key: STRING, value: BINARY>>>, value BINARY"
)
#: The columns of bronze, except the topic, which is added later.
COLUMNS = (
    "_kafka.key AS key", "value", "_kafka.headers AS headers", "_kafka.partition AS partition", "_kafka.offset AS offset",
    "_kafka.timestamp AS timestamp", "_kafka.timestamp_type AS timestampType", "to_date(_kafka.timestamp) AS date",
)  # fmt: skip
CATCH_UP_SECONDS_MAX = 600
POLL_SECONDS = 0.2


def is_read(config: Config) -> bool:
    """Return True if silver reads the brokers' table."""
    return config.source.connector == TABLE


def configs(config: Config) -> dict[str, str]:
    """Return the configurations of the topic of events, for the case that the pipeline creates it."""
    if not is_read(config):
        return {}
    return {FORMAT: PARQUET, INTERVAL: str(config.source.table_interval_ms)}


def files(config: Config) -> list[str]:
    """Return the files with rows; there are none without a table, or before its first row."""
    if not config.source.tables:
        return []
    return sorted(str(file) for file in (_folder(config) / "rows").glob("*.parquet"))


def read(spark: SparkSession, config: Config) -> DataFrame:
    """Return the columns of bronze as a stream of the table's files."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", config.pipeline.files_per_trigger)
    topic = config.kafka.events.replace("'", "")
    return reader.parquet(str(_folder(config) / "rows")).selectExpr(f"'{topic}' AS topic", *COLUMNS)


def places(config: Config) -> list[tuple[str, int, int]]:
    """Return the topic, partition and offset of each row."""
    import pyarrow.parquet as pq

    rows = (
        row["_kafka"]
        for file in files(config)
        for row in pq.ParquetFile(file).read(columns=["_kafka.partition", "_kafka.offset"]).to_pylist()
    )
    return [(config.kafka.events, row["partition"], row["offset"]) for row in rows]


def await_all(config: Config, ends: dict[int, int], stop: Event) -> None:
    """Wait until the table has all records below these offsets, by partition. Raises PipelineError."""
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while not stop.is_set():
        reached = _positions(config)
        behind = {partition: end for partition, end in ends.items() if reached.get(partition, 0) < end}
        if not behind:
            return
        if time.monotonic() > deadline:
            raise PipelineError(
                f"the table of {config.kafka.events} does not reach {json.dumps(behind)} in {CATCH_UP_SECONDS_MAX} s",
                remedy="`ottla topic describe` says why it waits; an open transaction holds it back, too",
            )
        time.sleep(POLL_SECONDS)


def _positions(config: Config) -> dict[int, int]:
    """Return the next offset of each partition in the table, by its newest decision."""
    newest = max((_folder(config) / "_commits").glob("*.json"), default=None)
    if newest is None:
        return {}
    body: dict[str, Any] = json.loads(newest.read_text())
    return {int(partition): int(row[0]) for partition, row in body["positions"].items()}


def _folder(config: Config) -> Path:
    return Path(config.source.tables).absolute() / "ottla" / config.kafka.events
