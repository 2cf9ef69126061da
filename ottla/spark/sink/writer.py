"""Spark's writer objects: they hand over to `task` on executors and to `commit` on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from ottla.spark.sink import commit as driver
from ottla.spark.sink import task
from ottla.spark.sink.options import SinkOptions


class SinkBatchWriter(DataSourceArrowWriter):
    """A batch.

    All of it is committed at its end. With sinkId and batchId (in foreachBatch) it is written only once, however often it runs.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return task.write(self.options, iterator, task.place_of(self.options))

    def commit(self, messages: list[Any]) -> None:
        driver.commit(self.options, messages, self.options.batch_id or 0)

    def abort(self, messages: list[Any]) -> None:
        driver.abort(self.options, messages, self.options.batch_id or 0)


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """The writer of a streaming query.

    For streams, too, Spark looks for the class of Arrow writers, and then passes Arrow batches.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return task.write(self.options, iterator, task.place_of(self.options))

    def commit(self, messages: list[Any], batchId: int) -> None:
        driver.commit(self.options, messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        driver.abort(self.options, messages, batchId)
