"""Keys or values of Avro in a registry's wire format become a typed column.

Each value is decoded by the schema that it was written with, and resolved to the reader's: a field that only the reader's
schema has gets its default, and a field that only the writer's has is skipped. Values of one writer are read at once where
there is a plan for it (plans.py), at ten times the rate. fastavro reads all others, and those that the plan leaves, one by one.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa

from ottla.columns.avro.blocks import VALUES_MIN, Block, BlockPart, Chosen, merged
from ottla.columns.avro.plans import plan_of
from ottla.columns.avro.schemas import ReaderSchema, text_of
from ottla.columns.avro.steps import AvroStep
from ottla.columns.avro.tree import FIELD, AvroTree
from ottla.columns.layout import Numbers
from ottla.columns.wire import Framed, FramedValues, Malformed, Writers
from ottla.registry.client import RegistryClient, Schema

#: The part of fastavro's messages that names the object it has read.
_OBJECT = re.compile(r" from <[^>]*>")
#: The errors of Arrow for values that do not fit a type.
NOT_FITTING = (pa.ArrowException, OverflowError, TypeError, ValueError)


class AvroWriter(NamedTuple):
    """A writer's schema as fastavro takes it, the reader's schema if it differs, and the plan that reads the writer's values at
    once.
    """

    schema: Any
    reader: Any
    plan: AvroStep | None


class AvroColumn:
    """Decodes one column. Each writer's schema is requested once."""

    def __init__(self, schema: ReaderSchema, client: RegistryClient) -> None:
        """Take the reader's schema. Raises ColumnsError if no column can have it."""
        self._reader, self._typed, differs = schema.prepared()
        self.kind: pa.DataType = self._typed.arrow
        self.writers: Writers[AvroWriter] = Writers(client, schema.subject, self._writer)
        if differs:
            own = self._resolved(schema.text)
        else:
            own = AvroWriter(self._reader.root, None, plan_of(self._reader, self._reader, self._typed))
        self.writers.keep(schema.schema_id, own)

    def decoded(self, raw: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the column, and a reason for each value that is null in it because it cannot be decoded.

        Raises:
            RegistryWaits: the registry cannot be asked.
        """
        framed = Framed(raw)
        wrong = framed.wrong()
        parts: list[Chosen] = []
        for values in framed.by_schema():
            try:
                writer = self.writers.get(values.schema_id)
            except Malformed as fault:
                wrong |= dict.fromkeys(values.rows.tolist(), str(fault))
                continue
            left = values.rows
            if writer.plan is not None and framed.buffer is not None and len(left) >= VALUES_MIN:
                made, is_left = _read_at_once(writer.plan, framed.buffer, values)
                read, left = np.flatnonzero(~is_left), values.rows[is_left]
                parts.append(Chosen(values.rows[read], made, read if len(left) else None))
            parts += self._one_by_one(framed, values.schema_id, writer, left, wrong)
        return merged(parts, len(raw), self.kind), wrong

    def _one_by_one(
        self, framed: Framed, schema_id: int, writer: AvroWriter, rows: Numbers, wrong: dict[int, str]
    ) -> list[Chosen]:
        """Return the values that can be decoded. Add the reasons of the others."""
        values: dict[int, Any] = {}
        for row in rows.tolist():
            try:
                values[row] = self._value(schema_id, writer, framed.payload(row))
            except Malformed as fault:
                wrong[row] = str(fault)
        if not values:
            return []
        try:
            made = self._made([*values.values()])
        except NOT_FITTING:
            for row, value in [*values.items()]:
                try:
                    self._made([value])
                except NOT_FITTING as fault:  # a time may be out of range, and a default may not fit its type
                    wrong[row] = f"schema {schema_id}: {fault}"
                    del values[row]
            made = self._made([*values.values()])
        return [Chosen(np.array([*values], np.int64), made)]

    def _made(self, values: list[Any]) -> pa.Array:
        return _recast(pa.array(values, self._typed.read), self._typed.arrow)

    def _value(self, schema_id: int, writer: AvroWriter, payload: bytes) -> Any:
        try:
            value = fastavro.schemaless_reader(BytesIO(payload), writer.schema, writer.reader)[FIELD]
            return value if value is None or self._typed.convert is None else self._typed.convert(value)
        except Exception as fault:  # errors of the library: EOFError, IndexError, UnicodeDecodeError and its own
            raise Malformed(f"schema {schema_id}: {_OBJECT.sub('', str(fault)) or type(fault).__name__}") from None

    def _writer(self, schema: Schema) -> AvroWriter:
        return self._resolved(text_of(schema))

    def _resolved(self, text: str) -> AvroWriter:
        tree = AvroTree(text)
        tree.strip()
        return AvroWriter(tree.root, self._reader.root, plan_of(tree, self._reader, self._typed))


def _recast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast the array, but only its parts with another type: Arrow's own cast of a struct (20.0) damages maps with nulls beside
    what it casts.
    """
    if array.type == kind:
        return array
    if not pa.types.is_struct(kind):
        return array.cast(kind)
    fields = [_recast(each, field.type) for each, field in zip(array.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())


def _read_at_once(plan: AvroStep, data: pa.Buffer, values: FramedValues) -> tuple[pa.Array, Any]:
    """Return the values, and flags of those that are left to be read one by one.

    In their places the array has no meaningful values.
    """
    block = Block(data, len(values.rows))
    part = BlockPart(np.arange(len(values.rows)), values.ends)
    made, at = plan.read(block, part, values.begins)
    block.leave(part, at > values.ends)
    return made, block.is_left
