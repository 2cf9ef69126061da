"""Rules that protoc checks and the protobuf library does not. They are checked before a new schema is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from google.protobuf import descriptor_pb2

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_nodes import (
    TAG_MAX,
    Element,
    Extension,
    File,
    Identifier,
    Literal,
    MapField,
    Message,
    OneOf,
    Option,
    ProtoField,
    ProtoGroup,
    of_kind,
)
from ottla.registry.formats.proto_options import OF_THE_FIELD, json_name, string_of

FieldProto = descriptor_pb2.FieldDescriptorProto
FieldOptions = descriptor_pb2.FieldOptions
#: Numbers that are reserved for the implementation of the library.
OWN_NUMBERS = range(19_000, 20_000)
#: In proto3 only these messages of descriptor.proto can be extended, for custom options.
OPTIONS = frozenset(
    f".google.protobuf.{name}Options"
    for name in ("File", "Message", "Field", "Oneof", "ExtensionRange", "Enum", "EnumValue", "Service", "Method")
)
_LEGACY = Identifier("LEGACY_BEST_EFFORT")
_MESSAGES = (FieldProto.TYPE_MESSAGE, FieldProto.TYPE_GROUP)
_NOT_PACKED = (*_MESSAGES, FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES)
_64_BITS = (
    FieldProto.TYPE_INT64,
    FieldProto.TYPE_UINT64,
    FieldProto.TYPE_SINT64,
    FieldProto.TYPE_FIXED64,
    FieldProto.TYPE_SFIXED64,
)


# -- What only the text shows ------------------------------------------------------------------------------------------


def check_file(file: File) -> None:
    """Check the rules of which a descriptor has no trace.

    Raises:
        InvalidSchema: a label is missing or not allowed, or something is declared twice.
    """
    for name in _twice(file.imports):
        raise InvalidSchema(f'Import "{name}" was listed twice.')
    waiting: list[Element] = [*file.elements]
    is_legacy = (not file.edition and file.syntax != "proto3") or _has_legacy_names(file.elements)
    while waiting:
        row = waiting.pop()
        if isinstance(row, Message | ProtoGroup | Extension):
            for field in of_kind(row.elements, ProtoField, ProtoGroup):
                _check_label(file, field)
        if isinstance(row, Message | ProtoGroup | Extension | OneOf):
            for field in of_kind(row.elements, ProtoField, MapField, ProtoGroup):
                _check_pseudo_options(field, isinstance(row, Extension))
            waiting += row.elements
            _check_json_names(row, may_be_same=is_legacy)
        if isinstance(row, ProtoGroup) and file.syntax == "proto3":
            raise InvalidSchema("Groups are not supported in proto3 syntax.")


def _check_json_names(message: Message | ProtoGroup | Extension | OneOf, *, may_be_same: bool) -> None:
    """Check that no two fields have the same name in JSON. In proto2 only explicit names count that differ from the default.

    A descriptor has a name for each field.
    """
    oneofs = [row.elements for row in of_kind(message.elements, OneOf)]
    fields = [row for part in (message.elements, *oneofs) for row in of_kind(part, ProtoField, MapField, ProtoGroup)]
    usual = {row.name: json_name(row.name) for row in fields}
    said = {row.name: string_of(option) for row in fields for option in row.options if option.name == "json_name"}
    written = {name: text for name, text in said.items() if text != usual[name]}
    names = [list(written.values())]
    if not may_be_same and not _has_legacy_names(message.elements) and not isinstance(message, Extension):
        names = [list(usual.values()), list({**usual, **written}.values())]
    for name in (name for rows in names for name in _twice(rows)):
        raise InvalidSchema(f'The JSON name "{name}" belongs to two fields.')


def _has_legacy_names(elements: Sequence[Element]) -> bool:
    """Return whether an option of a file or a message allows equal names in JSON."""
    return any(
        (row.name, row.value)
        in (
            ("deprecated_legacy_json_field_conflicts", Identifier("true")),
            ("features.json_format", _LEGACY),
        )
        or (row.name == "features" and isinstance(row.value, Literal) and ("json_format", _LEGACY) in row.value.fields)
        for row in of_kind(elements, Option)
    )


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _check_label(file: File, field: ProtoField | ProtoGroup) -> None:
    if file.edition:
        if field.label == "required":
            raise InvalidSchema('Label "required" is not supported in editions, use features.field_presence.')
    elif not field.label and file.syntax != "proto3":
        raise InvalidSchema(f'field {field.name}: Expected "required", "optional", or "repeated".')


def _check_pseudo_options(field: ProtoField | MapField | ProtoGroup, is_extension: bool) -> None:
    for name in OF_THE_FIELD:
        rows = [row for row in field.options if row.name == name]
        if len(rows) > 1:
            raise InvalidSchema(f'Already set option "{name}".')
        if rows and name == "json_name":
            if is_extension:
                raise InvalidSchema("option json_name is not allowed on extension fields.")
            text = string_of(rows[0])
            if "\0" in text or (text.startswith("[") and text.endswith("]")):
                raise InvalidSchema(f'The custom JSON name of field "{field.name}" is invalid.')


# -- What descriptors show ---------------------------------------------------------------------------------------------


def check_descriptor(made: descriptor_pb2.FileDescriptorProto) -> None:
    """Check the rules of the language that a pool of descriptors does not check.

    Raises:
        InvalidSchema: a reserved number or name is used, or the syntax does not allow a part of the file.
    """
    is_proto3 = made.syntax == "proto3"
    messages = list(_messages(made.message_type))
    for message in messages:
        _check_message(message, is_proto3=is_proto3)
    for enum in (*made.enum_type, *(row for each in messages for row in each.enum_type)):
        _check_enum(enum)
    for extension in (*made.extension, *(row for each in messages for row in each.extension)):
        _check_field(extension)
        if extension.label == FieldProto.LABEL_REQUIRED:
            raise InvalidSchema(f"The extension {extension.name} cannot be required.")
        if is_proto3 and extension.extendee not in OPTIONS:
            raise InvalidSchema("Extensions in proto3 are only allowed for defining options.")


def _messages(rows: Iterable[Any]) -> Iterator[Any]:
    waiting = list(rows)
    while waiting:
        row = waiting.pop()
        yield row
        waiting += row.nested_type


def _check_message(made: Any, *, is_proto3: bool) -> None:
    if is_proto3 and made.extension_range:
        raise InvalidSchema("Extension ranges are not allowed in proto3.")
    if is_proto3 and made.options.message_set_wire_format:
        raise InvalidSchema("MessageSet is not supported in proto3.")
    reserved = [range(row.start, row.end) for row in made.reserved_range]
    taken = [range(row.start, row.end) for row in made.extension_range]
    for field in made.field:
        _check_field(field)
        if field.number > TAG_MAX:
            raise InvalidSchema(f"Field numbers cannot be greater than {TAG_MAX}.")
        if any(field.number in row for row in reserved):
            raise InvalidSchema(f'Field "{field.name}" uses reserved number {field.number}.')
        if field.name in made.reserved_name:
            raise InvalidSchema(f'Field name "{field.name}" is reserved.')
        if any(field.number in row for row in taken):
            raise InvalidSchema(f'Extension range includes field "{field.name}" ({field.number}).')
    _check_apart([*reserved, *taken], made.name)


def _check_field(made: Any) -> None:
    """Check a field or an extension: its number, and options that only fields of other types may have."""
    if made.number in OWN_NUMBERS:
        last = OWN_NUMBERS.stop - 1
        raise InvalidSchema(f"Field numbers {OWN_NUMBERS.start} through {last} are reserved for the protobuf library.")
    is_repeated = made.label == FieldProto.LABEL_REPEATED
    if is_repeated and made.HasField("default_value"):
        raise InvalidSchema("Repeated fields can't have default values.")
    options = made.options
    if options.packed and (not is_repeated or made.type in _NOT_PACKED):
        raise InvalidSchema("[packed = true] can only be specified for repeated primitive fields.")
    if (options.lazy or options.unverified_lazy) and made.type not in _MESSAGES:
        raise InvalidSchema("[lazy = true] can only be specified for submessage fields.")
    if options.jstype != FieldOptions.JS_NORMAL and made.type not in _64_BITS:
        raise InvalidSchema("jstype is only allowed on int64, uint64, sint64, fixed64 or sfixed64 fields.")


def _check_enum(made: Any) -> None:
    names: dict[int, str] = {}
    has_aliases = False
    for value in made.value:
        other = names.setdefault(value.number, value.name)
        has_aliases = has_aliases or other != value.name
        if other != value.name and not made.options.allow_alias:
            raise InvalidSchema(
                f'"{value.name}" uses the same enum value as "{other}". If this is intended, set '
                "'option allow_alias = true;' to the enum definition."
            )
        if any(row.start <= value.number <= row.end for row in made.reserved_range):
            raise InvalidSchema(f'Enum value "{value.name}" uses reserved number {value.number}.')
        if value.name in made.reserved_name:
            raise InvalidSchema(f'Enum value "{value.name}" is reserved.')
    if made.options.HasField("allow_alias") and not has_aliases:
        raise InvalidSchema(f'"{made.name}" sets allow_alias, and none of its values share a number.')
    _check_value_names(made)
    _check_apart([range(row.start, row.end + 1) for row in made.reserved_range], made.name)


def _check_value_names(made: Any) -> None:
    """Check that the names of values differ in languages that drop the prefix and change the case."""
    found: dict[str, Any] = {}
    for value in made.value:
        short = _without_prefix(made.name, value.name)
        other = found.setdefault("".join(part.capitalize() for part in short.split("_")), value)
        if other.number != value.number:
            raise InvalidSchema(
                f"Enum name {value.name} has the same name as {other.name} if you ignore case and strip out the enum "
                "name prefix (if any)."
            )


def _without_prefix(enum: str, value: str) -> str:
    """Return the name of a value without that of its enum, without regard to case and underscores."""
    left = enum.replace("_", "").lower()
    at = 0
    while left and at < len(value):
        if value[at] != "_":
            if value[at].lower() != left[0]:
                return value
            left = left[1:]
        at += 1
    rest = value[at:].lstrip("_")
    return value if left or not rest else rest


def _check_apart(ranges: list[range], name: str) -> None:
    """Check that no number is in two ranges."""
    ordered = sorted(ranges, key=lambda row: row.start)
    for first, second in pairwise(ordered):
        if second.start < first.stop:
            raise InvalidSchema(
                f"Ranges {first.start} to {first.stop - 1} and {second.start} to {second.stop - 1} of {name} overlap."
            )
