"""What protoc refuses and the protobuf library does not: checked before a new schema is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from google.protobuf import descriptor_pb2

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_nodes import TAG_MAX

FieldProto = descriptor_pb2.FieldDescriptorProto
#: Numbers that the library's own implementation has for itself.
OWN_NUMBERS = range(19_000, 20_000)
#: What an extension of proto3 may extend: custom options, by the messages of descriptor.proto.
OPTIONS = frozenset(
    f".google.protobuf.{name}Options"
    for name in ("File", "Message", "Field", "Oneof", "ExtensionRange", "Enum", "EnumValue", "Service", "Method")
)


def check_descriptor(made: descriptor_pb2.FileDescriptorProto) -> None:
    """Check the rules of the language that a pool of descriptors does not look at.

    Raises:
        InvalidSchema: a number or a name is used that is reserved, or the syntax does not have what the file has.
    """
    is_proto3 = made.syntax == "proto3"
    for message in _messages(made.message_type):
        _check_message(message, is_proto3=is_proto3)
    for enum in _enums(made):
        _check_enum(enum)
    if is_proto3:
        for extension in (*made.extension, *(row for each in _messages(made.message_type) for row in each.extension)):
            if extension.extendee not in OPTIONS:
                raise InvalidSchema("Extensions in proto3 are only allowed for defining options.")


def _messages(rows: Iterable[Any]) -> Iterator[Any]:
    waiting = list(rows)
    while waiting:
        row = waiting.pop()
        yield row
        waiting += row.nested_type


def _enums(made: descriptor_pb2.FileDescriptorProto) -> Iterator[Any]:
    yield from made.enum_type
    for message in _messages(made.message_type):
        yield from message.enum_type


def _check_message(made: Any, *, is_proto3: bool) -> None:
    if is_proto3 and made.extension_range:
        raise InvalidSchema("Extension ranges are not allowed in proto3.")
    reserved = [range(row.start, row.end) for row in made.reserved_range]
    taken = [range(row.start, row.end) for row in made.extension_range]
    for field in made.field:
        if field.number in OWN_NUMBERS:
            last = OWN_NUMBERS.stop - 1
            raise InvalidSchema(
                f"Field numbers {OWN_NUMBERS.start} through {last} are reserved for the protobuf library."
            )
        if field.number > TAG_MAX:
            raise InvalidSchema(f"Field numbers cannot be greater than {TAG_MAX}.")
        if any(field.number in row for row in reserved):
            raise InvalidSchema(f'Field "{field.name}" uses reserved number {field.number}.')
        if field.name in made.reserved_name:
            raise InvalidSchema(f'Field name "{field.name}" is reserved.')
        if any(field.number in row for row in taken):
            raise InvalidSchema(f'Extension range includes field "{field.name}" ({field.number}).')
    _check_apart([*reserved, *taken], made.name)


def _check_enum(made: Any) -> None:
    names: dict[int, str] = {}
    for value in made.value:
        other = names.setdefault(value.number, value.name)
        if other != value.name and not made.options.allow_alias:
            raise InvalidSchema(
                f'"{value.name}" uses the same enum value as "{other}". If this is intended, set '
                "'option allow_alias = true;' to the enum definition."
            )
        if any(row.start <= value.number <= row.end for row in made.reserved_range):
            raise InvalidSchema(f'Enum value "{value.name}" uses reserved number {value.number}.')
        if value.name in made.reserved_name:
            raise InvalidSchema(f'Enum value "{value.name}" is reserved.')
    _check_apart([range(row.start, row.end + 1) for row in made.reserved_range], made.name)


def _check_apart(ranges: list[range], name: str) -> None:
    """Check that no number is in two ranges."""
    ordered = sorted(ranges, key=lambda row: row.start)
    for first, second in pairwise(ordered):
        if second.start < first.stop:
            raise InvalidSchema(
                f"Ranges {first.start} to {first.stop - 1} and {second.start} to {second.stop - 1} of {name} overlap."
            )
