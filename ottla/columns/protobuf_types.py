"""Messages of Protobuf as types of columns.

Scalars without presence (proto3's without `optional`) are never null; all other fields may be. Enums become the names of their
values, unsigned numbers of 64 bits become decimals. Messages with a JSON form of their own (Any, Struct and the like), and a
message inside itself, become a column with their JSON as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from ottla.columns.assembling import ColumnNode, Leaf, ListNode, MapNode, StructNode
from ottla.columns.batches import ColumnsError

#: The most types of a column, with nested ones.
TYPES_MAX = 10_000
_F = FieldDescriptor
SCALARS = {
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = "google/protobuf/wrappers.proto"
AS_TEXT = {f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue")}


class ProtobufTypes:
    """Make the node of a message. Raises ColumnsError if it is too large."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._count = 0

    def message(self, message: Descriptor, inside: tuple[str, ...] = ()) -> ColumnNode:
        self._count += 1
        if self._count > TYPES_MAX:
            raise ColumnsError(f"the schema has more than {TYPES_MAX} types")
        name = message.full_name
        if name == TIMESTAMP:
            return Leaf(pa.timestamp("us", "UTC"), lambda each: each.seconds * 1_000_000 + each.nanos // 1_000)
        if message.file.name == WRAPPERS:
            return Leaf(SCALARS[message.fields[0].type], attrgetter("value"))
        if name in AS_TEXT or name in inside:
            return Leaf(pa.string(), self._text)
        inside = (*inside, name)
        return StructNode([(field.name, _reading(field), self._field(field, inside)) for field in message.fields])

    def _field(self, field: FieldDescriptor, inside: tuple[str, ...]) -> ColumnNode:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return MapNode(SCALARS[key.type], self._one(value, inside))
        one = self._one(field, inside)
        return ListNode(one) if field.is_repeated else one

    def _one(self, field: FieldDescriptor, inside: tuple[str, ...]) -> ColumnNode:
        if field.message_type is not None:
            return self.message(field.message_type, inside)
        if field.enum_type is not None:
            return Leaf(pa.string(), _names(field.enum_type))
        self._count += 1
        return Leaf(SCALARS[field.type])

    def _text(self, message: Any) -> str:
        try:
            plain = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
            return json.dumps(plain, ensure_ascii=False)
        except (json_format.Error, RecursionError) as fault:
            raise ValueError(f"{message.DESCRIPTOR.full_name}: {fault}") from None


def _reading(field: FieldDescriptor) -> Callable[[Any], Any]:
    name = field.name
    if field.is_repeated or not field.has_presence:
        return attrgetter(name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _names(kind: EnumDescriptor) -> Callable[[int], str]:
    """Return the name of a number, or the number's digits if the schema has no name for it."""
    names = {number: value.name for number, value in kind.values_by_number.items()}
    return lambda number: names.get(number) or str(number)
