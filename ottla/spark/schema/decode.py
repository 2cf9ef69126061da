"""Keys or values in a registry's wire format to a typed column: a zero byte, the id of the writer's schema (int32), and Avro's bytes.

Each value is decoded by the schema that it was written with, and resolved to the reader's: what a newer schema has more becomes its
default, what it has less is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from ottla.registry.client import RegistryClient, RegistryFailed
from ottla.spark.errors import ConnectorError
from ottla.spark.schema.subjects import ID_MISSING, ReaderSchema, context_of, text_of
from ottla.spark.schema.tree import FIELD, AvroTree

MAGIC, HEAD_BYTES = 0, 5
#: Schemas that are kept, and ids that have none. One that is dropped is asked for again.
WRITERS_MAX = 1_024


class Malformed(Exception):
    """A value that cannot be decoded: its bytes, its writer's schema, or that this one does not go with the reader's."""


class ColumnDecoder:
    """Decodes one column for one task; a writer's schema is asked for once."""

    def __init__(self, schema: ReaderSchema, client: RegistryClient, *, is_strict: bool) -> None:
        """Take the mode: a malformed value raises ConnectorError if it `is_strict`, else it is null, or a struct of nulls."""
        self._schema = schema
        self._client = client
        self._is_strict = is_strict
        self._reader, self._typed, differs = schema.prepared()
        self._malformed: Any = {} if pa.types.is_struct(self._typed.read) else None
        own = self._resolved(schema.text) if differs else (self._reader.root, None)
        #: For each id the writer's schema, and the reader's if it differs; or why there is none.
        self._writers: dict[int, tuple[Any, Any] | Malformed] = {schema.schema_id: own}

    def array(self, column: pa.Array, where: Callable[[int], str]) -> pa.Array:
        """Return the decoded column. `where` names a row for an error.

        Raises:
            ConnectorError: the registry cannot be asked; or a value is malformed, in FAILFAST mode.
        """
        values = [self._value(raw, index, where) for index, raw in enumerate(column.to_pylist())]
        try:
            return self._made(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return self._made([self._fitting(value, index, where) for index, value in enumerate(values)])

    def _made(self, values: list[Any]) -> pa.Array:
        made = pa.array(values, self._typed.read)
        return made if self._typed.read == self._typed.arrow else made.cast(self._typed.arrow)

    def _value(self, raw: bytes | None, index: int, where: Callable[[int], str]) -> Any:
        if raw is None:
            return None
        try:
            return self._decoded(raw)
        except Malformed as fault:
            return self._rejected(fault, index, where)

    def _fitting(self, value: Any, index: int, where: Callable[[int], str]) -> Any:
        """Return the value if Spark's type can hold it: a time may be out of its range, a default no value of its type."""
        try:
            self._made([value])
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as fault:
            return self._rejected(fault, index, where)
        return value

    def _rejected(self, fault: Exception, index: int, where: Callable[[int], str]) -> Any:
        if self._is_strict:
            raise ConnectorError(
                f"{where(index)}: the {self._schema.column} cannot be decoded: {fault}",
                "with mode=PERMISSIVE such a value is null",
            ) from None
        return self._malformed

    def _decoded(self, raw: bytes) -> Any:
        if len(raw) < HEAD_BYTES or raw[0] != MAGIC:
            raise Malformed(
                f"it does not begin with a zero byte and the id of a schema: {raw[:HEAD_BYTES].hex() or 'no bytes'}"
            )
        schema_id = int.from_bytes(raw[1:HEAD_BYTES], "big")
        known = self._writers.get(schema_id)
        if known is None:
            while len(self._writers) >= WRITERS_MAX:
                del self._writers[next(iter(self._writers))]
            known = self._writers[schema_id] = self._writer(schema_id)
        if isinstance(known, Malformed):
            raise known
        stream = BytesIO(raw)
        stream.seek(HEAD_BYTES)
        try:
            value = fastavro.schemaless_reader(stream, *known)[FIELD]
            return value if value is None or self._typed.convert is None else self._typed.convert(value)
        except Exception as fault:  # of the library: EOFError, IndexError, UnicodeDecodeError and its own
            raise Malformed(f"schema {schema_id}: {fault or type(fault).__name__}") from None

    def _writer(self, schema_id: int) -> tuple[Any, Any] | Malformed:
        try:
            return self._resolved(text_of(self._client.schema(schema_id, context_of(self._schema.subject))))
        except RegistryFailed as fault:
            if fault.code != ID_MISSING:
                raise ConnectorError(f"the schema with id {schema_id}: {fault.message}") from None
            return Malformed(f"the schema registry has no schema with id {schema_id}")
        except ConnectorError as fault:
            return Malformed(f"schema {schema_id}: {fault}")

    def _resolved(self, text: str) -> tuple[Any, Any]:
        tree = AvroTree(text)
        tree.strip()
        return tree.root, self._reader.root
