"""Descriptors become nodes: descriptors that clients send in place of a text, and files that come as generated code."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_descriptor import EDITIONS, LABELS, SCALARS, FieldProto
from ottla.registry.formats.proto_nodes import (
    Element,
    Enum,
    EnumValue,
    Extension,
    ExtensionRange,
    File,
    Import,
    Message,
    Method,
    OneOf,
    Option,
    Package,
    ProtoField,
    ProtoGroup,
    ProtoRange,
    Reserved,
    Service,
)
from ottla.registry.formats.proto_options import default_node, option_nodes

SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
LABEL_NAMES = {number: name for name, number in LABELS.items()}
EDITION_NAMES = {number: name for name, number in EDITIONS.items()}


def decode_base64(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return the descriptor that a client has sent in place of a text; None if it is a text."""
    try:
        read = base64.b64decode(text, validate=True)
        return descriptor_pb2.FileDescriptorProto.FromString(read) if read else None
    except (binascii.Error, DecodeError, ValueError):
        return None


def from_descriptor(made: descriptor_pb2.FileDescriptorProto) -> File:
    """Return the nodes of a descriptor.

    Raises:
        InvalidSchema: it has something that no text can have.
    """
    try:
        return _Reader(made).file()
    except (KeyError, IndexError, ValueError) as fault:
        raise InvalidSchema(f"wrong descriptor: {fault}") from None


class _Reader:
    def __init__(self, made: descriptor_pb2.FileDescriptorProto) -> None:
        self._made = made
        self._is_proto2 = made.syntax in ("", "proto2")

    def file(self) -> File:
        made = self._made
        elements: list[Element] = [Package(made.package)] if made.package else []
        for index, name in enumerate(made.dependency):
            kind = "weak" if index in made.weak_dependency else ""
            elements.append(Import(name, "public" if index in made.public_dependency else kind))
        elements += [Import(name, "option") for name in made.option_dependency]
        elements += option_nodes(made.options)
        groups = _groups(made.extension, made.message_type)
        elements += self._extensions(made.extension, groups)
        elements += [self._message(row) for row in made.message_type if row.name not in groups]
        _as_declared(elements, made.message_type)
        elements += [_enum(row) for row in made.enum_type]
        elements += [_service(row) for row in made.service]
        if made.syntax == "editions":
            return File("", EDITION_NAMES[made.edition], elements)
        return File(made.syntax, "", elements)

    def _message(self, made: Any) -> Message:
        return Message(made.name, self._elements(made), _visibility(made))

    def _elements(self, made: Any) -> list[Element]:
        groups = _groups((*made.field, *made.extension), made.nested_type)
        elements: list[Element] = list(option_nodes(made.options))
        elements += _reserved(made, 1)
        elements += [
            ExtensionRange([ProtoRange(row.start, row.end - 1)], option_nodes(row.options))
            for row in made.extension_range
        ]
        oneofs = [OneOf(row.name, list(option_nodes(row.options))) for row in made.oneof_decl]
        for field in made.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneof = oneofs[field.oneof_index]
                if not any(isinstance(row, ProtoField | ProtoGroup) for row in oneof.elements):
                    elements.append(oneof)
                oneof.elements.append(self._field(field, groups, labelled=False))
            else:
                elements.append(self._field(field, groups))
        # With the messages of maps' entries, as in Confluent's registry: they count for the index by which values name their
        # type.
        elements += [self._message(row) for row in made.nested_type if row.name not in groups]
        elements += self._extensions(made.extension, groups)
        _as_declared(elements, made.nested_type)
        return elements + [_enum(row) for row in made.enum_type]

    def _field(self, made: Any, groups: dict[str, Any], *, labelled: bool = True) -> ProtoField | ProtoGroup:
        label = LABEL_NAMES[made.label] if labelled and self._has_label(made) else ""
        group = groups.get(made.type_name.rpartition(".")[2]) if made.type == FieldProto.TYPE_GROUP else None
        if group is not None:
            return ProtoGroup(group.name, made.number, label, self._options(made), self._elements(group))
        return ProtoField(made.name, made.number, _type_of(made), label, self._options(made))

    def _has_label(self, made: Any) -> bool:
        """Return whether the text has the field's label. Outside of proto2 an ordinary field has none."""
        return bool(made.label != FieldProto.LABEL_OPTIONAL or made.proto3_optional or self._is_proto2)

    @staticmethod
    def _options(made: Any) -> list[Option]:
        options = option_nodes(made.options)
        if made.HasField("default_value"):
            options.append(Option("default", default_node(SCALAR_NAMES.get(made.type, ""), made.default_value)))
        if made.HasField("json_name") and not made.extendee:
            options.append(Option("json_name", made.json_name.encode()))
        return options

    def _extensions(self, rows: Sequence[Any], groups: dict[str, Any]) -> list[Element]:
        found: dict[str, Extension] = {}
        for row in rows:
            found.setdefault(row.extendee, Extension(row.extendee)).elements.append(self._field(row, groups))
        return list(found.values())


def _groups(fields: Sequence[Any], messages: Sequence[Any]) -> dict[str, Any]:
    """Return the messages that are groups of these fields in the text, by their names."""
    names = {
        row.type_name.rpartition(".")[2]
        for row in fields
        if row.type == FieldProto.TYPE_GROUP and row.name == row.type_name.rpartition(".")[2].lower()
    }
    return {row.name: row for row in messages if row.name in names}


def _as_declared(elements: list[Element], messages: Sequence[Any]) -> None:
    """Sort the declarations of messages, and of fields that are groups, into the order of the messages in the descriptor."""
    places = {row.name: index for index, row in enumerate(messages)}

    def place(element: Element) -> int:
        if isinstance(element, OneOf | Extension):
            return max(map(place, element.elements), default=-1)
        return places[element.name] if isinstance(element, Message | ProtoGroup) else -1

    elements.sort(key=place)


def _type_of(field: Any) -> str:
    name: str = SCALAR_NAMES.get(field.type) or field.type_name
    return name


def _enum(made: Any) -> Enum:
    values = [EnumValue(row.name, row.number, option_nodes(row.options)) for row in made.value]
    return Enum(made.name, [*option_nodes(made.options), *_reserved(made, 0), *values], _visibility(made))


def _reserved(made: Any, beyond: int) -> list[Element]:
    """Return the reserved numbers and names. The end of a range is `beyond` more than its last number."""
    ranges = [Reserved([ProtoRange(row.start, row.end - beyond)], []) for row in made.reserved_range]
    return [*ranges, *(Reserved([], [name]) for name in made.reserved_name)]


def _visibility(made: Any) -> str:
    return {1: "local", 2: "export"}.get(made.visibility, "")


def _service(made: Any) -> Service:
    rows: list[Element] = list(option_nodes(made.options))
    rows += [
        Method(
            row.name,
            row.input_type,
            row.output_type,
            row.client_streaming,
            row.server_streaming,
            option_nodes(row.options),
        )
        for row in made.method
    ]
    return Service(made.name, rows)
