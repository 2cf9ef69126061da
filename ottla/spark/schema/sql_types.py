"""Types of Arrow in Spark's DDL."""

from __future__ import annotations

import pyarrow as pa

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


def ddl_of(kind: pa.DataType) -> str:
    """Return the type as Spark names it."""
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
