"""Converts Protobuf in a registry's wire format into a typed column: the id is followed by the position of the message in its
file, and by its bytes.

All values are read by the reader's message, which skips unknown fields, as is usual in Protobuf. The writer's schema says which
message a value is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from ottla.columns.assembling import assembled
from ottla.columns.avro.blocks import Chosen, merged
from ottla.columns.batches import ColumnsError
from ottla.columns.protobuf_types import ProtobufTypes
from ottla.columns.wire import HEAD_BYTES, Framed, FramedValues, Malformed, Writers
from ottla.registry.client import PROTOBUF, RegistryClient, Schema
from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_schema import ProtobufSchema
from ottla.registry.values import DecodeFailed, message_indexes

#: The position of the first message of a file.
FIRST = 0


class ProtobufColumn:
    """A column of the first message of the reader's schema."""

    def __init__(self, schema: Schema, schema_id: int, client: RegistryClient, subject: str) -> None:
        """Take the reader's schema. Raises ColumnsError if it is not valid, or has no message."""
        parsed = _parsed(schema)
        try:
            self._name = parsed.message_name([0])
            pool = parsed.pool()
            message = pool.FindMessageTypeByName(self._name)
            self._node = ProtobufTypes(pool).message(message)
        except (InvalidSchema, LookupError, ValueError, RecursionError) as fault:
            raise ColumnsError(f"the schema is not valid: {fault or type(fault).__name__}") from None
        self.kind: pa.DataType = self._node.kind
        made = message_factory.GetMessageClass(message)
        self._read = made.FromString
        self.writers: Writers[ProtobufSchema] = Writers(client, subject, _parsed)
        self.writers.keep(schema_id, parsed)

    def decoded(self, raw: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the column, and a reason for each value that is null in it because it cannot be decoded.

        Raises:
            RegistryWaits: the registry cannot be asked.
        """
        framed, data = Framed(raw), raw.to_pylist()
        wrong = framed.wrong()
        parts: list[Chosen] = []
        for group in framed.by_schema():
            try:
                writer = self.writers.get(group.schema_id)
            except Malformed as fault:
                wrong |= dict.fromkeys(group.rows.tolist(), str(fault))
                continue
            is_first = _name_of(writer, [FIRST]) == self._name
            messages = self._messages(group, data, writer, wrong, is_first=is_first)
            parts += assembled(self._node, messages, wrong)
        return merged(parts, len(raw), self.kind), wrong

    def _messages(
        self, group: FramedValues, data: list[bytes], writer: ProtobufSchema, wrong: dict[int, str], *, is_first: bool
    ) -> Iterator[tuple[int, object]]:
        """Yield messages by their rows, and add the reasons of the others.

        With `is_first`, the first message of the file is read.
        """
        for row in group.rows.tolist():
            payload = data[row]
            try:
                if is_first and payload[HEAD_BYTES : HEAD_BYTES + 1] == b"\0":
                    yield row, self._read(payload[HEAD_BYTES + 1 :])
                else:
                    yield row, self._read(self._payload(writer, payload[HEAD_BYTES:]))
            except (DecodeError, DecodeFailed, Malformed) as fault:
                wrong[row] = f"schema {group.schema_id}: {fault}"

    def _payload(self, writer: ProtobufSchema, data: bytes) -> bytes:
        """Return the bytes of a message with the name of the reader's message. Raises Malformed, DecodeFailed."""
        indexes, payload = message_indexes(data)
        name = _name_of(writer, indexes)
        if name != self._name:
            raise Malformed(f"it is a message {name or indexes}, and the columns are those of {self._name}")
        return payload


def _name_of(writer: ProtobufSchema, indexes: list[int]) -> str:
    try:
        return writer.message_name(indexes)
    except IndexError:
        return ""


def _parsed(schema: Schema) -> ProtobufSchema:
    if schema.kind != PROTOBUF:
        raise ColumnsError(f"the schema is of {schema.kind}, where Protobuf is read")
    try:
        return ProtobufSchema(schema.text, schema.dependencies)
    except (InvalidSchema, ValueError, LookupError, TypeError, AttributeError, RecursionError) as fault:
        raise ColumnsError(f"the schema is not valid: {fault or type(fault).__name__}") from None
