"""Protobuf schemas as descriptors: what clients send and ask for (base64 of a FileDescriptorProto), and what decodes values.

The protobuf library checks a descriptor when it is added to a pool: types that are not there, numbers that are used twice. Options
that need an extension's definition, such as `(google.api.http)`, are in the text only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from proto_schema_parser import ast

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_text import ENUM_MAX, TAG_MAX, of_kind, range_of

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
SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
LABELS = {
    "OPTIONAL": FieldProto.LABEL_OPTIONAL,
    "REQUIRED": FieldProto.LABEL_REQUIRED,
    "REPEATED": FieldProto.LABEL_REPEATED,
}
#: The file that a schema is in a pool.
DEFAULT_NAME = "default"


# -- From text to a descriptor ---------------------------------------------------------------------------------------------


def to_descriptor(file: ast.File, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a parsed file, its names as they were written."""
    elements = file.file_elements
    made = descriptor_pb2.FileDescriptorProto(name=name, syntax=file.syntax or "proto2")
    if made.syntax == "proto2":
        made.ClearField("syntax")
    made.package = "".join(row.name for row in of_kind(elements, ast.Package)[:1])
    for row in of_kind(elements, ast.Import):
        if row.public:
            made.public_dependency.append(len(made.dependency))
        made.dependency.append(row.name)
    builder = _Builder(file.syntax == "proto3")
    for row in of_kind(elements, ast.Message):
        builder.message(made.message_type.add(), row.name, row.elements)
    for row in of_kind(elements, ast.Enum):
        builder.enum(made.enum_type.add(), row)
    for row in of_kind(elements, ast.Extension):
        builder.extension(made.extension, row)
    for row in of_kind(elements, ast.Service):
        _service(made.service.add(), row)
    _options(made, elements)
    return made


class _Builder:
    """Fills descriptors of one file from the nodes of its text."""

    def __init__(self, is_proto3: bool) -> None:
        self._is_proto3 = is_proto3

    def message(self, made: Any, name: str, elements: Sequence[Any]) -> None:
        made.name = name
        optional: list[Any] = []
        for row in elements:
            match row:
                case ast.Field():
                    self._field(made.field.add(), row)
                    if self._is_proto3 and row.cardinality is ast.FieldCardinality.OPTIONAL:
                        optional.append(made.field[-1])
                case ast.MapField():
                    self._map(made, row)
                case ast.Group():
                    self._group(made, row)
                case ast.OneOf():
                    self._oneof(made, row)
                case ast.Message():
                    self.message(made.nested_type.add(), row.name, row.elements)
                case ast.Enum():
                    self.enum(made.enum_type.add(), row)
                case ast.Extension():
                    self.extension(made.extension, row)
                case ast.ExtensionRange():
                    for text in row.ranges:
                        first, last = range_of(text, TAG_MAX)
                        made.extension_range.add(start=first, end=last + 1)
                case ast.Reserved():
                    made.reserved_name.extend(row.names)
                    for text in row.ranges:
                        first, last = range_of(text, TAG_MAX)
                        made.reserved_range.add(start=first, end=last + 1)
        for field in optional:  # their oneofs stand after all others
            field.proto3_optional = True
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")
        _options(made, elements)

    def enum(self, made: Any, row: ast.Enum) -> None:
        made.name = row.name
        for value in of_kind(row.elements, ast.EnumValue):
            part = made.value.add(name=value.name, number=value.number)
            _options(part, value.options)
        for reserved in of_kind(row.elements, ast.EnumReserved):
            made.reserved_name.extend(reserved.names)
            for text in reserved.ranges:
                first, last = range_of(text, ENUM_MAX)
                made.reserved_range.add(start=first, end=last)
        _options(made, row.elements)

    def extension(self, made: Any, row: ast.Extension) -> None:
        for field in of_kind(row.elements, ast.Field):
            part = made.add()
            self._field(part, field)
            part.extendee = row.typeName

    def _field(self, made: Any, row: ast.Field) -> None:
        made.name, made.number = row.name, row.number
        made.label = LABELS[row.cardinality.value] if row.cardinality else FieldProto.LABEL_OPTIONAL
        if row.type in SCALARS:
            made.type = SCALARS[row.type]
        else:
            made.type_name = row.type  # the library finds out whether it is a message or an enum
        for option in row.options:
            if option.name == "json_name":
                made.json_name = str(option.value)
            elif option.name == "default":
                made.default_value = (
                    option.value.name if isinstance(option.value, ast.Identifier) else _plain(option.value)
                )
        _options(made, row.options)

    def _map(self, made: Any, row: ast.MapField) -> None:
        entry = made.nested_type.add(name=entry_name(row.name))
        entry.options.map_entry = True
        self._field(entry.field.add(), ast.Field("key", 1, row.key_type))
        self._field(entry.field.add(), ast.Field("value", 2, row.value_type))
        made.field.add(
            name=row.name,
            number=row.number,
            label=FieldProto.LABEL_REPEATED,
            type=FieldProto.TYPE_MESSAGE,
            type_name=entry.name,
        )

    def _group(self, made: Any, row: ast.Group) -> Any:
        self.message(made.nested_type.add(), row.name, row.elements)
        label = LABELS[row.cardinality.value] if row.cardinality else FieldProto.LABEL_OPTIONAL
        return made.field.add(
            name=row.name.lower(), number=row.number, label=label, type=FieldProto.TYPE_GROUP, type_name=row.name
        )

    def _oneof(self, made: Any, row: ast.OneOf) -> None:
        index = len(made.oneof_decl)
        made.oneof_decl.add(name=row.name)
        for member in row.elements:
            if isinstance(member, ast.Field):
                self._field(made.field.add(), member)
            elif isinstance(member, ast.Group):
                self._group(made, member)
            else:
                continue
            made.field[-1].oneof_index = index


def entry_name(field: str) -> str:
    """Return the name of the message that a map field has for its entries."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _service(made: Any, row: ast.Service) -> None:
    made.name = row.name
    for method in of_kind(row.elements, ast.Method):
        part = made.method.add(
            name=method.name,
            input_type=method.input_type.type,
            output_type=method.output_type.type,
            client_streaming=method.input_type.stream,
            server_streaming=method.output_type.stream,
        )
        _options(part, method.elements)
    _options(made, row.elements)


def _options(made: Any, elements: Sequence[Any]) -> None:
    """Set the options that descriptor.proto itself has."""
    known = type(made.options).DESCRIPTOR.fields_by_name
    for row in of_kind(elements, ast.Option):
        field = known.get(row.name)
        if field is None or field.message_type is not None or field.is_repeated:
            continue
        value = row.value
        try:
            if field.type == FieldDescriptor.TYPE_ENUM:
                value = field.enum_type.values_by_name[value.name].number
            setattr(made.options, row.name, value)
        except (KeyError, AttributeError, TypeError, ValueError):
            raise InvalidSchema(f"option {row.name} has a wrong value") from None


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# -- From a descriptor to text ---------------------------------------------------------------------------------------------


def decode_base64(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return the descriptor that clients send in place of a text; None if it is none."""
    try:
        read = base64.b64decode(text, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(read) if read else None
    except (binascii.Error, DecodeError, ValueError):
        return None


def from_descriptor(made: descriptor_pb2.FileDescriptorProto) -> ast.File:
    """Return the nodes of a descriptor."""
    elements: list[Any] = [ast.Package(made.package)] if made.package else []
    public = set(made.public_dependency)
    elements += [ast.Import(name, public=index in public) for index, name in enumerate(made.dependency)]
    elements += _option_nodes(made.options)
    elements += [_message_node(row) for row in made.message_type]
    elements += [_enum_node(row) for row in made.enum_type]
    elements += _extension_nodes(made.extension)
    for service in made.service:
        rows: list[Any] = [
            ast.Method(
                row.name,
                ast.MessageType(row.input_type, row.client_streaming),
                ast.MessageType(row.output_type, row.server_streaming),
                _option_nodes(row.options),
            )
            for row in service.method
        ]
        elements.append(ast.Service(service.name, _option_nodes(service.options) + rows))
    return ast.File(syntax=made.syntax or "proto2", file_elements=elements)


def _message_node(made: Any) -> ast.Message:
    entries = {row.name: row for row in made.nested_type if row.options.map_entry}
    elements: list[Any] = _option_nodes(made.options)
    ranges = [_range(row.start, row.end - 1, TAG_MAX) for row in made.reserved_range]
    if ranges or made.reserved_name:
        elements.append(ast.Reserved(ranges, list(made.reserved_name)))
    elements += [ast.ExtensionRange([_range(row.start, row.end - 1, TAG_MAX)]) for row in made.extension_range]
    oneofs = [ast.OneOf(row.name) for row in made.oneof_decl]
    for field in made.field:
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None and field.label == FieldProto.LABEL_REPEATED:
            elements.append(ast.MapField(field.name, field.number, _type_of(entry.field[0]), _type_of(entry.field[1])))
        elif field.HasField("oneof_index") and not field.proto3_optional:
            oneofs[field.oneof_index].elements.append(_field_node(field, labelled=False))
        else:
            elements.append(_field_node(field, labelled=made_label(field)))
    elements += [row for row in oneofs if row.elements]
    elements += [_message_node(row) for row in made.nested_type if row.name not in entries]
    elements += [_enum_node(row) for row in made.enum_type]
    return ast.Message(made.name, elements + _extension_nodes(made.extension))


def made_label(field: Any) -> bool:
    """Whether the label of a field stands in its text: in proto3 that of an ordinary field does not."""
    return bool(field.label != FieldProto.LABEL_OPTIONAL or field.proto3_optional)


def _field_node(field: Any, labelled: bool) -> ast.Field:
    label = None
    if labelled:
        label = ast.FieldCardinality(next(name for name, number in LABELS.items() if number == field.label))
    options = _option_nodes(field.options)
    if field.HasField("default_value"):
        options.append(
            ast.Option(
                "default",
                ast.Identifier(field.default_value) if field.type != FieldProto.TYPE_STRING else field.default_value,
            )
        )
    default_name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
    default_name = default_name[:1].lower() + default_name[1:] if not field.name.startswith("_") else default_name
    if field.HasField("json_name") and field.json_name != default_name:
        options.append(ast.Option("json_name", field.json_name))
    return ast.Field(field.name, field.number, _type_of(field), label, options)


def _type_of(field: Any) -> str:
    name: str = SCALAR_NAMES.get(field.type) or field.type_name
    return name


def _enum_node(made: Any) -> ast.Enum:
    elements: list[Any] = _option_nodes(made.options)
    ranges = [_range(row.start, row.end, ENUM_MAX) for row in made.reserved_range]
    if ranges or made.reserved_name:
        elements.append(ast.EnumReserved(ranges, list(made.reserved_name)))
    return ast.Enum(
        made.name, elements + [ast.EnumValue(row.name, row.number, _option_nodes(row.options)) for row in made.value]
    )


def _extension_nodes(rows: Sequence[Any]) -> list[Any]:
    found: dict[str, ast.Extension] = {}
    for row in rows:
        found.setdefault(row.extendee, ast.Extension(row.extendee)).elements.append(
            _field_node(row, labelled=made_label(row))
        )
    return list(found.values())


def _option_nodes(options: Any) -> list[Any]:
    rows: list[Any] = []
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None or field.is_repeated or field.name == "map_entry":
            continue
        if field.type == FieldDescriptor.TYPE_ENUM:
            value = ast.Identifier(field.enum_type.values_by_number[value].name)
        rows.append(ast.Option(field.name, value))
    return rows


def _range(first: int, last: int, largest: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last >= largest else last}"
