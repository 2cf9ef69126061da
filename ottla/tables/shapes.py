"""Keys and values as columns by their schemas: `ottla.table.value` and `.key` = registry or json.

The reader's schema is the subject's latest one when a file begins. If a value has a schema that this shape has not seen, and
the subject has a newer version, the file ends before that value: `SchemaMoved`. So a file has the columns of one version, and
no field of a newer version is lost.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.columns.avro.column import AvroColumn
from ottla.columns.avro.schemas import ReaderSchema, text_of
from ottla.columns.batches import ColumnsError
from ottla.columns.json_column import JsonColumn
from ottla.columns.protobuf_column import ProtobufColumn
from ottla.columns.wire import MISSING, RegistryWaits, Writers, context_of, schema_ids
from ottla.registry.client import AVRO, JSON_SCHEMA, PROTOBUF, RegistryClient, RegistryFailed, Schema
from ottla.tables.layout import KAFKA, DecodedColumns, SchemaMoved

#: A longer value is rejected, because its columns would be in memory several times.
VALUE_BYTES_MAX = 32 * 1024 * 1024
#: A schema with more columns, nested ones included, is rejected.
COLUMNS_MAX = 1_000


class TypedColumn(Protocol):
    """Values as one column."""

    @property
    def kind(self) -> pa.DataType: ...

    def decoded(self, raw: pa.Array) -> tuple[pa.Array, dict[int, str]]: ...


class TypedShape:
    """The fields of a record as separate columns; or one column if values are no records or `is_flat` is false."""

    def __init__(self, name: str, column: TypedColumn, *, is_flat: bool) -> None:
        """Take the column of the values. Raises ColumnsError if no table can have it."""
        self._column = column
        kind = column.kind
        self._is_flat = is_flat and pa.types.is_struct(kind)
        #: Columns without information are left out: fields of type null, and records without fields.
        fields = [*kind] if self._is_flat else [pa.field(name, kind)]
        self._kept = [place for place, field in enumerate(fields) if not _is_void(field.type)]
        self.fields = [fields[place].with_nullable(True) for place in self._kept]
        if why := refusal_of(self.fields):
            raise ColumnsError(why)

    def columns(self, raw: pa.Array) -> DecodedColumns:
        """Return the values as columns. Raises RegistryWaits."""
        raw, too_long = _without_long(raw)
        made, wrong = self._column.decoded(raw)
        arrays = made.flatten() if self._is_flat else [made]
        return DecodedColumns([arrays[place] for place in self._kept], wrong | too_long)


class RefusingShape:
    """It replaces columns that cannot be made: each value is rejected, with the same reason."""

    def __init__(self, why: str) -> None:
        self.fields: list[pa.Field] = []
        self._why = why

    def columns(self, raw: pa.Array) -> DecodedColumns:
        rows = np.flatnonzero(raw.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return DecodedColumns([], dict.fromkeys(rows, self._why))


class RegistryShape:
    """Keys or values each of which names the schema that it was written with."""

    def __init__(
        self, name: str, client: RegistryClient, subject: str, *, is_flat: bool = True, has_ids: bool = True
    ) -> None:
        """Read the subject's latest schema.

        With `is_flat` a value's fields become separate columns. Values without ids (`has_ids`) are plain JSON, by the subject's
        JSON Schema.

        Raises:
            RegistryWaits: the registry cannot be reached, or has no schema for a key: then the type of its column would have to
            change later.
        """
        self._client = client
        self._subject = subject
        self._has_ids = has_ids
        #: The id of the reader's schema, or None.
        self.schema_id: int | None = None
        self._seen: set[int] = set()
        try:
            self.schema_id = self._latest()
            if self.schema_id is None:
                raise ColumnsError(f"the schema registry has no subject {subject}")
            self._seen.add(self.schema_id)
            column = self._column(self.schema_id, self._schema(self.schema_id))
            self._inner: TypedShape | RefusingShape = TypedShape(name, column, is_flat=is_flat)
        except RegistryWaits:
            raise
        except ColumnsError as fault:
            why = str(fault) if subject in str(fault) else f"{subject}: {fault}"
            if not is_flat:
                raise RegistryWaits(why) from None
            self._inner = RefusingShape(why)

    @property
    def fields(self) -> list[pa.Field]:
        return self._inner.fields

    def columns(self, raw: pa.Array) -> DecodedColumns:
        """Return the values as columns. Raises SchemaMoved, before it decodes any of them; RegistryWaits."""
        new = schema_ids(raw) - self._seen if self._has_ids else set()
        if new and self._latest() != self.schema_id:
            raise SchemaMoved(f"{self._subject} has a newer schema")
        found = self._inner.columns(raw)
        self._seen |= new
        return found

    def _latest(self) -> int | None:
        try:
            return int(self._client.version(self._subject)["id"])
        except RegistryFailed as fault:
            if fault.code in MISSING:
                return None
            raise RegistryWaits(f"{self._subject}: {fault.message}") from None
        except (KeyError, TypeError, ValueError) as fault:
            raise RegistryWaits(f"{self._subject}: the registry's answer is no version: {fault!r}") from None

    def _schema(self, schema_id: int) -> Schema:
        try:
            return self._client.schema(schema_id, context_of(self._subject))
        except RegistryFailed as fault:
            raise RegistryWaits(f"the schema with id {schema_id}: {fault.message}") from None

    def _column(self, schema_id: int, schema: Schema) -> TypedColumn:
        if not self._has_ids:
            _is_json(schema)
            return JsonColumn(schema.text, schema.dependencies)
        if schema.kind == AVRO:
            return AvroColumn(ReaderSchema("", self._subject, schema_id, text_of(schema)), self._client)
        if schema.kind == PROTOBUF:
            return ProtobufColumn(schema, schema_id, self._client, self._subject)
        _is_json(schema)
        writers: Writers[bool] = Writers(self._client, self._subject, _is_json)
        writers.keep(schema_id, True)
        return JsonColumn(schema.text, schema.dependencies, writers)


def json_shape(name: str, schema: str, *, is_flat: bool = True) -> TypedShape:
    """Return the shape of JSON values with a given JSON Schema. Raises ColumnsError for one that no table can have."""
    return TypedShape(name, JsonColumn(schema), is_flat=is_flat)


def refusal_of(fields: list[pa.Field]) -> str:
    """Return the reason why no table can have these columns; it is empty if a table can."""
    names: dict[str, str] = {}
    for field in fields:
        if field.name == KAFKA:
            return f"a field is named {KAFKA}, as the table's own column is"
        if names.setdefault(field.name.lower(), field.name) != field.name:
            return f"fields {names[field.name.lower()]} and {field.name} differ by capital letters alone"
    if len(names) < len(fields):
        return "two fields have the same name"
    waiting = [(field.name, field.type) for field in fields]
    for count, (path, kind) in enumerate(waiting, 1):  # it grows in the loop
        if count > COLUMNS_MAX:
            return f"the schema has more than {COLUMNS_MAX} columns"
        if not path.rpartition(".")[2].strip():
            return "a field has no name"
        if _is_void(kind):
            return f"field {path} is of a type without values"
        waiting += [(f"{path}.{inner.name}", inner.type) for inner in _inside(kind)]
    return ""


def _inside(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return [*kind]
    if pa.types.is_map(kind):
        return [kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) else []


def _is_void(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields))


def _is_json(schema: Schema) -> bool:
    if schema.kind != JSON_SCHEMA:
        raise ColumnsError(f"the schema is of {schema.kind}, where JSON is read")
    return True


def _without_long(raw: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Return the values with null in place of too long ones, and the reasons for these."""
    if raw.nbytes <= VALUE_BYTES_MAX:
        return raw, {}
    lengths = [0 if each is None else each for each in pc.binary_length(raw).to_pylist()]
    wrong = {
        row: f"it has {length} bytes, more than {VALUE_BYTES_MAX}"
        for row, length in enumerate(lengths)
        if length > VALUE_BYTES_MAX
    }
    if not wrong:
        return raw, {}
    mask = np.zeros(len(raw), np.bool_)
    mask[list(wrong)] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, raw.type), raw), wrong
