"""Spark's reader objects for the table `schema`: the rows of a topic, with decoded columns in place of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.columns.avro.schemas import ReaderSchema
from ottla.columns.batches import ColumnsError
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Range
from ottla.spark.reader import RecordReader, RecordStreamReader, read_range
from ottla.spark.schema.decode import ColumnDecoder
from ottla.spark.schema.options import SchemaOptions
from ottla.spark.schema.subjects import DECODE_IT_YOURSELF, client_of, reader_schemas

__all__ = ["SchemaReader", "SchemaStreamReader", "reader_schemas", "sql_types"]
Schemas = tuple[ReaderSchema, ...]
#: Types of Arrow as Spark's DDL names them.
PLAIN = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.binary(): "BINARY",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def sql_types(schemas: Schemas) -> dict[str, str]:
    """Return the types of the decoded columns in Spark's DDL. Raises ConnectorError for a schema that Spark has no type for."""
    try:
        return {schema.column: ddl_of(schema.prepared()[1].arrow) for schema in schemas}
    except ColumnsError as fault:
        raise ConnectorError(
            str(fault), f"name fields of another kind: columns=value.FIELD; or {DECODE_IT_YOURSELF}"
        ) from None


def ddl_of(kind: pa.DataType) -> str:
    """Return Spark's name of the type."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {ddl_of(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<STRING, {ddl_of(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return PLAIN[kind]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def read_columns(options: ConnectorOptions, schemas: Schemas, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range with decoded columns. Raises ConnectorError."""
    how = SchemaOptions(options)
    client = client_of(how)
    decoders = {each.column: ColumnDecoder(each, client, is_strict=how.is_strict) for each in schemas}
    for batch in read_range(options, wanted, (*options.columns, "offset")):
        offsets = batch.column(batch.num_columns - 1)

        def where(index: int, offsets: pa.Array = offsets) -> str:
            return f"{wanted.topic}-{wanted.partition} at offset {offsets[index]}"

        columns = [
            decoders[name].array(column, where) if name in decoders else column
            for name, column in zip(options.columns, batch.columns, strict=False)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(options.columns))


class SchemaReader(RecordReader):
    """The reader of a batch query, with decoded columns."""

    def __init__(self, options: ConnectorOptions, schemas: Schemas) -> None:
        super().__init__(options)
        self.schemas = schemas

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition is None else read_columns(self.options, self.schemas, partition.wanted)


class SchemaStreamReader(RecordStreamReader):
    """The reader of a streaming query, with decoded columns. The readers' schemas are read at the start of the query."""

    def __init__(self, options: ConnectorOptions, schemas: Schemas) -> None:
        super().__init__(options)
        self.schemas = schemas

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "schemas": self.schemas}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_columns(self.options, self.schemas, partition.wanted)
