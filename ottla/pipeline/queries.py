"""Starts a streaming query with its name, its checkpoint and its trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipeline.config import Config

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter


def triggered(writer: DataStreamWriter, config: Config, name: str) -> DataStreamWriter:
    named = writer.queryName(name).option("checkpointLocation", config.checkpoint(name))
    if config.pipeline.trigger == "once":
        return named.trigger(availableNow=True)
    return named.trigger(processingTime=config.pipeline.trigger)
