"""The data source `format("ottla")`, by which Spark finds the readers and writers of this package.

It is pickled by Spark and sent to executors, which import this module: it must not import a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark import tables
from ottla.spark.options import Options
from ottla.spark.reader import RecordReader, RecordStreamReader
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}

READERS: dict[str, Callable[[Options], DataSourceReader]] = {
    "records": RecordReader,
    "latest": tables.LatestReader,
    "offsets": tables.OffsetsReader,
    "groups": tables.GroupsReader,
}


class OttlaDataSource(DataSource):
    """Reads and writes topics of any Kafka cluster, with the options of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        options = Options(self.options)
        if options.table in tables.SQL_TYPES:
            return tables.SQL_TYPES[options.table]
        return ", ".join(f"{name} {SQL_TYPES[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options(self.options)
        return READERS[options.table](options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RecordStreamReader(Options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(SinkOptions(self.options, schema, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(SinkOptions(self.options, schema, is_stream=True))


def register(spark: SparkSession) -> None:
    """Makes `format("ottla")` known to a session."""
    spark.dataSource.register(OttlaDataSource)
