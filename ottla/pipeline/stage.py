"""A stage of the pipeline: its streaming queries, and the files that they read.

Executors import this file with the stages: it needs nothing that they may lack.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.pipeline import broker_table
from ottla.pipeline.config import Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


BRONZE = "bronze"


class Stage(NamedTuple):
    name: str
    start: Callable[[SparkSession, Config], list[StreamingQuery]]
    reads: str = ""  # the stage whose files it reads; empty: it reads Kafka

    def is_ready(self, config: Config) -> bool:
        """Return whether Spark's file sink has finished a batch for the stage to read, or the brokers' table has rows."""
        if not self.reads:
            return True
        if self.reads == BRONZE and broker_table.is_read(config):
            return bool(broker_table.files(config))
        log = Path(config.path(self.reads, "_spark_metadata"))
        return log.is_dir() and any(not file.name.startswith(".") for file in log.iterdir())


def triggered(writer: DataStreamWriter, config: Config, name: str) -> DataStreamWriter:
    """Return a streaming query with its name, its checkpoint and its trigger."""
    named = writer.queryName(name).option("checkpointLocation", config.checkpoint(name))
    if config.pipeline.trigger == "once":
        return named.trigger(availableNow=True)
    return named.trigger(processingTime=config.pipeline.trigger)
