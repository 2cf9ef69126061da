"""Protobuf schemas as descriptors, for clients that request one (base64 of a FileDescriptorProto), and for decoding values.

The protobuf library checks a descriptor when it is added to a pool, for missing types and for numbers that are used twice.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_nodes import (
    Enum,
    EnumValue,
    Extension,
    ExtensionRange,
    File,
    Import,
    MapField,
    Message,
    Method,
    OneOf,
    Option,
    ProtoField,
    ProtoGroup,
    Reserved,
    Service,
    of_kind,
)
from ottla.registry.formats.proto_options import default_text, json_name, set_options, string_of

FieldProto = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "double": FieldProto.TYPE_DOUBLE,
    "float": FieldProto.TYPE_FLOAT,
    "int64": FieldProto.TYPE_INT64,
    "uint64": FieldProto.TYPE_UINT64,
    "int32": FieldProto.TYPE_INT32,
    "fixed64": FieldProto.TYPE_FIXED64,
    "fixed32": FieldProto.TYPE_FIXED32,
    "bool": FieldProto.TYPE_BOOL,
    "string": FieldProto.TYPE_STRING,
    "bytes": FieldProto.TYPE_BYTES,
    "uint32": FieldProto.TYPE_UINT32,
    "sfixed32": FieldProto.TYPE_SFIXED32,
    "sfixed64": FieldProto.TYPE_SFIXED64,
    "sint32": FieldProto.TYPE_SINT32,
    "sint64": FieldProto.TYPE_SINT64,
}
LABELS = {
    "": FieldProto.LABEL_OPTIONAL,
    "optional": FieldProto.LABEL_OPTIONAL,
    "required": FieldProto.LABEL_REQUIRED,
    "repeated": FieldProto.LABEL_REPEATED,
}
EDITIONS = {"2023": descriptor_pb2.EDITION_2023, "2024": descriptor_pb2.EDITION_2024}
#: The name of a schema's file in a pool.
DEFAULT_NAME = "default"


def to_descriptor(file: File, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a parsed file, with names as they are written.

    Raises:
        InvalidSchema: an option of descriptor.proto or a default is wrong.
    """
    elements = file.elements
    made = descriptor_pb2.FileDescriptorProto(name=name, package=file.package)
    if file.edition:
        made.syntax, made.edition = "editions", EDITIONS[file.edition]
    elif file.syntax == "proto3":
        made.syntax = "proto3"
    for row in of_kind(elements, Import):
        if row.kind == "option":
            made.option_dependency.append(row.name)
            continue
        if row.kind:
            indexes = made.public_dependency if row.kind == "public" else made.weak_dependency
            indexes.append(len(made.dependency))
        made.dependency.append(row.name)
    builder = _Builder(file)
    for row in elements:
        match row:
            case Message():
                builder.message(made.message_type.add(), row)
            case Enum():
                builder.enum(made.enum_type.add(), row)
            case Extension():
                builder.extension(made.extension, made.message_type, row)
            case Service():
                _service(made.service.add(), row)
    set_options(made, of_kind(elements, Option))
    return made


class _Builder:
    """Fills the descriptor of one file from the nodes of its text."""

    def __init__(self, file: File) -> None:
        self._is_proto3 = file.syntax == "proto3"

    def message(self, made: Any, row: Message | ProtoGroup) -> None:
        made.name = row.name
        optional: list[Any] = []
        for part in row.elements:
            match part:
                case ProtoField():
                    self._field(made.field.add(), part)
                    if self._is_proto3 and part.label == "optional":
                        optional.append(made.field[-1])
                case MapField():
                    self._map(made, part)
                case ProtoGroup():
                    self._group(made.field.add(), made.nested_type, part)
                case OneOf():
                    self._oneof(made, part)
                case Message():
                    self.message(made.nested_type.add(), part)
                case Enum():
                    self.enum(made.enum_type.add(), part)
                case Extension():
                    self.extension(made.extension, made.nested_type, part)
                case ExtensionRange():
                    for first, last, _ in part.ranges:
                        set_options(made.extension_range.add(start=first, end=last + 1), part.options)
                case Reserved():
                    made.reserved_name.extend(part.names)
                    for first, last, _ in part.ranges:
                        made.reserved_range.add(start=first, end=last + 1)
        names = {each.name for each in (*made.field, *made.oneof_decl)}
        for field in optional:  # the oneofs of these fields come after all others
            name = f"_{field.name.removeprefix('_')}"
            while name in names:
                name = f"X{name}"
            names.add(name)
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=name)
        _visible(made, row)
        set_options(made, of_kind(row.elements, Option))

    def enum(self, made: Any, row: Enum) -> None:
        made.name = row.name
        for value in of_kind(row.elements, EnumValue):
            set_options(made.value.add(name=value.name, number=value.number), value.options)
        for reserved in of_kind(row.elements, Reserved):
            made.reserved_name.extend(reserved.names)
            for first, last, _ in reserved.ranges:
                made.reserved_range.add(start=first, end=last)
        _visible(made, row)
        set_options(made, of_kind(row.elements, Option))

    def extension(self, made: Any, nested: Any, row: Extension) -> None:
        """Add the fields of an extension, and add the messages of its groups to `nested`."""
        for field in of_kind(row.elements, ProtoField, ProtoGroup):
            part = made.add()
            if isinstance(field, ProtoGroup):
                self._group(part, nested, field)
            else:
                self._field(part, field)
                part.proto3_optional = self._is_proto3 and field.label == "optional"
                if not part.proto3_optional:
                    part.ClearField("proto3_optional")
            part.extendee = row.type_name

    def _field(self, made: Any, row: ProtoField) -> None:
        made.name, made.number = row.name, row.number
        made.label = LABELS[row.label]
        if row.type in SCALARS:
            made.type = SCALARS[row.type]
        else:
            made.type_name = row.type  # the library finds out whether the type is a message or an enum
        for option in row.options:
            if option.name == "json_name":
                made.json_name = string_of(option)
            elif option.name == "default":
                made.default_value = default_text(row.type, option.value)
        set_options(made, row.options)

    def _map(self, made: Any, row: MapField) -> None:
        if row.key_type in ("float", "double", "bytes") or row.key_type not in SCALARS:
            raise InvalidSchema(f"Key in map fields cannot be {row.key_type}")
        entry = made.nested_type.add(name=entry_name(row.name))
        entry.options.map_entry = True
        self._field(entry.field.add(), ProtoField("key", 1, row.key_type))
        self._field(entry.field.add(), ProtoField("value", 2, row.value_type))
        field = made.field.add()
        self._field(field, ProtoField(row.name, row.number, entry.name, "repeated", row.options))
        field.type = FieldProto.TYPE_MESSAGE

    def _group(self, made: Any, nested: Any, row: ProtoGroup) -> None:
        self.message(nested.add(), row)
        self._field(made, ProtoField(row.name.lower(), row.number, row.name, row.label, row.options))
        made.type = FieldProto.TYPE_GROUP

    def _oneof(self, made: Any, row: OneOf) -> None:
        index = len(made.oneof_decl)
        set_options(made.oneof_decl.add(name=row.name), of_kind(row.elements, Option))
        for member in of_kind(row.elements, ProtoField, ProtoGroup):
            if isinstance(member, ProtoField):
                self._field(made.field.add(), member)
            else:
                self._group(made.field.add(), made.nested_type, member)
            made.field[-1].oneof_index = index


def entry_name(field: str) -> str:
    """Return the name of a map field's message of entries."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _visible(made: Any, row: Message | ProtoGroup | Enum) -> None:
    visibility = "" if isinstance(row, ProtoGroup) else row.visibility
    if visibility:
        made.visibility = descriptor_pb2.SymbolVisibility.Value(f"VISIBILITY_{visibility.upper()}")


def _service(made: Any, row: Service) -> None:
    made.name = row.name
    for method in of_kind(row.elements, Method):
        part = made.method.add(name=method.name, input_type=method.input_type, output_type=method.output_type)
        if method.input_stream:
            part.client_streaming = True
        if method.output_stream:
            part.server_streaming = True
        set_options(part, method.options)
    set_options(made, of_kind(row.elements, Option))


def sorted_descriptor(made: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Return a descriptor that does not depend on the order of the text: fields, values and ranges are sorted by number, names
    alphabetically.
    """
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(made)
    kinds = {name: (index in made.public_dependency) for index, name in enumerate(made.dependency)}
    copy.ClearField("dependency")
    copy.ClearField("public_dependency")
    copy.dependency.extend(sorted(f"{'public ' if public else ''}{name}" for name, public in kinds.items()))
    copy.extension.sort(key=_place)
    enums: list[Any] = list(copy.enum_type)
    waiting: list[Any] = list(copy.message_type)
    while waiting:
        row = waiting.pop()
        oneofs = [each.name for each in row.oneof_decl]
        for field in row.field:
            if field.json_name == json_name(field.name):  # an explicit name that equals the default one
                field.ClearField("json_name")
            if field.HasField("oneof_index"):  # by name, because the oneofs are sorted, too
                field.oneof_index = sorted(oneofs).index(oneofs[field.oneof_index])
        row.oneof_decl.sort(key=lambda each: each.name)
        row.field.sort(key=_place)
        row.extension.sort(key=_place)
        # The messages of maps' entries come with their fields. Other messages keep their order, because values have their
        # indexes.
        row.nested_type.sort(key=lambda each: each.name if each.options.map_entry else "")
        row.extension_range.sort(key=lambda each: each.start)
        _sort_reserved(row)
        enums += row.enum_type
        waiting += row.nested_type
    for enum in enums:
        first = enum.value[0].name if enum.value else ""
        enum.value.sort(key=lambda each, first=first: (each.name != first, each.number, each.name))
        _sort_reserved(enum)
    return copy


def _sort_reserved(made: Any) -> None:
    made.reserved_range.sort(key=lambda each: each.start)
    made.reserved_name.sort()


def _place(field: Any) -> tuple[str, int, str]:
    return field.extendee, field.number, field.name
