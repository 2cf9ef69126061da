"""Bronze: every record of the topic as it came, written to Parquet by date, exactly once (by the checkpoint and the file sink's
own log).

Run as `ottla-pipeline run bronze`, or `spark-submit pipeline/bronze.py --config FILE`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if __name__ == "__main__":
    # spark-submit puts this file's folder first on the path, not the folder that contains the package `ottla`.
    sys.path[0] = next(str(at) for at in Path(__file__).resolve().parents if (at / "ottla/pipeline").is_dir())

from ottla.pipeline import broker_table, source
from ottla.pipeline.config import Config
from ottla.pipeline.stage import BRONZE, Stage, triggered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NAME: Final = BRONZE
COLUMNS = (
    "key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType", "to_date(timestamp) AS date",
)  # fmt: skip
#: The columns of the source with includeHeaders, and the date. Streams of files need the schema before the first file exists.
SCHEMA = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT, date DATE"
)


def rows(records: DataFrame) -> DataFrame:
    return records.selectExpr(*COLUMNS)


def stream(spark: SparkSession, config: Config) -> list[StreamingQuery]:
    records = spark.readStream.format(source.connector(config)).options(**source.options(config)).load()
    writer = rows(records).writeStream.format("parquet").partitionBy("date").option("path", config.path("bronze"))
    return [triggered(writer, config, NAME).start()]


def batch(spark: SparkSession, config: Config) -> DataFrame:
    """Return the same rows over a range of offsets or times."""
    return rows(spark.read.format(source.connector(config)).options(**source.options(config, batch=True)).load())


def read(spark: SparkSession, config: Config) -> DataFrame:
    """Return bronze as a stream of its files, or of the brokers' table.

    Only files that the sink's log names as finished are read.
    """
    if broker_table.is_read(config):
        return broker_table.read(spark, config)
    return (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", config.pipeline.files_per_trigger)
        .parquet(config.path("bronze"))
    )


STAGE: Final = Stage(NAME, stream)

if __name__ == "__main__":
    from ottla.pipeline.run import submitted

    submitted(STAGE)
