"""The data source `format("ottla")`, through which Spark finds the readers and writers of this package.

It is pickled by Spark and sent to executors, which import this module: it must not import a broker.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
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
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.reader import RecordReader, RecordStreamReader
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.writer import SinkBatchWriter, StreamWriter
from ottla.spark.workers import other_python, send_wheel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.columns.avro.schemas import ReaderSchema

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

READERS: dict[str, Callable[[ConnectorOptions], DataSourceReader]] = {
    "records": RecordReader,
    "latest": tables.LatestReader,
    "offsets": tables.OffsetsReader,
    "groups": tables.GroupsReader,
}


class OttlaDataSource(DataSource):
    """Reads and writes topics of any Kafka cluster, with the options of Spark's own Kafka source."""

    #: The schemas of the table `schema`. Spark requests the columns first, and later the reader from a pickled copy of this
    #: object. Meanwhile the latest version of a subject may have changed.
    _reader_schemas: tuple[ReaderSchema, ...] | None = None

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        options = ConnectorOptions(self.options)
        if options.table in tables.SQL_TYPES:
            return tables.SQL_TYPES[options.table]
        types = dict(SQL_TYPES)
        if options.table == "schema":
            types |= _table_schema().sql_types(self._schemas(options))
        return ", ".join(f"{name} {types[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ConnectorOptions(self.options)
        if options.table == "schema":
            return _table_schema().SchemaReader(options, self._schemas(options))
        return READERS[options.table](options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = ConnectorOptions(self.options, is_stream=True)
        if options.table == "schema":
            return _table_schema().SchemaStreamReader(options, self._schemas(options))
        return RecordStreamReader(options)

    def _schemas(self, options: ConnectorOptions) -> tuple[ReaderSchema, ...]:
        if self._reader_schemas is None:
            self._reader_schemas = _table_schema().reader_schemas(options)
        return self._reader_schemas

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return SinkBatchWriter(SinkOptions(self.options, schema, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(SinkOptions(self.options, schema, is_stream=True))


def _table_schema() -> ModuleType:
    """Return the reader of the table `schema`.

    It needs a library that the other tables do not need, and raises ConnectorError without it.
    """
    try:
        from ottla.spark.schema import reader
    except ModuleNotFoundError as fault:
        if fault.name != "fastavro":
            raise
        raise ConnectorError(
            "the table schema needs the Python package fastavro, here and on executors", "pip install fastavro"
        ) from None
    return reader


def register(spark: SparkSession) -> None:
    """Register `format("ottla")` in a session, and on its executors if this package came as a wheel by --py-files.

    It warns if Spark would start another Python than this one, with other packages (PYSPARK_PYTHON).
    """
    if (problem := other_python(spark.sparkContext.pythonExec)) is not None:
        warnings.warn(problem, RuntimeWarning, stacklevel=2)
    send_wheel(spark)
    spark.dataSource.register(OttlaDataSource)
