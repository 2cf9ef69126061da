"""Options and default values are converted between the nodes of a text and descriptors.

Options of descriptor.proto itself are checked and set. An option that is an extension, such as `(google.api.http)`, would need
the extension's definition, so it stays in the text only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_nodes import Identifier, Literal, Number, Option, Value
from ottla.registry.formats.proto_tokens import unescaped

#: In a text these are options of a field, but in its descriptor they are fields of the descriptor itself.
OF_THE_FIELD = ("default", "json_name")
BITS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(1 << 31), (1 << 31) - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(1 << 63), (1 << 63) - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, (1 << 32) - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, (1 << 64) - 1)),
}
_FLOATS = ("inf", "-inf", "nan", "-nan")


# -- From the text -----------------------------------------------------------------------------------------------------


def set_options(made: Any, rows: Iterable[Option]) -> None:
    """Set the options of a declaration in its descriptor.

    Raises:
        InvalidSchema: there is no such option, its value is wrong, or it is set twice.
    """
    for row in rows:
        if row.name in OF_THE_FIELD and made.DESCRIPTOR.name == "FieldDescriptorProto":
            continue
        if "(" not in row.name:
            _set_option(made.options, row)


def _set_option(options: Any, row: Option) -> None:
    *outer, last = row.name.split(".")
    for name in outer:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None or field.message_type is None or field.is_repeated:
            raise InvalidSchema(f'Option "{row.name}" unknown')
        options = getattr(options, name)
    field = options.DESCRIPTOR.fields_by_name.get(last)
    if field is None or last == "uninterpreted_option":
        raise InvalidSchema(f'Option "{row.name}" unknown')
    if not field.is_repeated and options.HasField(last):
        raise InvalidSchema(f'Option "{row.name}" was already set')
    _set_value(options, field, row.value)


def _set_value(made: Any, field: Any, value: Value) -> None:
    rows = value if isinstance(value, list) else [value]
    if len(rows) != 1 and not field.is_repeated:
        raise InvalidSchema(f"option {field.name} has a wrong value")
    try:
        for row in rows:
            if field.message_type is not None:
                part = getattr(made, field.name)
                _fill(part.add() if field.is_repeated else part, row)
            elif field.is_repeated:
                getattr(made, field.name).append(_plain(field, row))
            else:
                setattr(made, field.name, _plain(field, row))
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError):
        raise InvalidSchema(f"option {field.name} has a wrong value") from None


def _fill(made: Any, value: Value) -> None:
    if not isinstance(value, Literal):
        raise TypeError
    made.SetInParent()
    for name, part in value.fields:
        if not name.startswith("["):
            _set_value(made, made.DESCRIPTOR.fields_by_name[name], part)


def _plain(field: Any, value: Value) -> Any:
    """Return the value of a field with a scalar type as Python's type."""
    if field.type == FieldDescriptor.TYPE_ENUM and isinstance(value, Identifier):
        return field.enum_type.values_by_name[value.name].number
    if field.type == FieldDescriptor.TYPE_BOOL and isinstance(value, Identifier):
        return {"true": True, "false": False}[value.name]
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
        return value.decode()
    if field.type == FieldDescriptor.TYPE_BYTES and isinstance(value, bytes):
        return value
    if isinstance(value, Number) and field.cpp_type <= FieldDescriptor.CPPTYPE_FLOAT:
        return value.value
    raise TypeError


def default_text(kind: str, value: Value) -> str:
    """Return a field's default in the form of descriptors: numbers in decimal, bytes with C's escapes.

    Raises:
        InvalidSchema: the default is no value of the type.
    """
    made = None
    if kind in BITS:
        number = value.value if isinstance(value, Number) else None
        if isinstance(number, int) and BITS[kind][0] <= number <= BITS[kind][1]:
            made = str(number)
    elif kind in ("float", "double"):
        if isinstance(value, Number):
            made = _float_text(value.real, is_float=kind == "float")
        elif isinstance(value, Identifier) and value.name in _FLOATS:
            made = value.name.replace("-nan", "nan")
    elif kind == "string":
        made = _decoded(value)
    elif kind == "bytes":
        made = "".join(map(_c_escaped, value)) if isinstance(value, bytes) else None
    elif isinstance(value, Identifier) and (kind != "bool" or value.name in ("true", "false")):
        made = value.name  # the name of an enum's value, which the library looks up
    if made is None:
        raise InvalidSchema(f"the default of a field of type {kind} has another type")
    return made


def string_of(option: Option) -> str:
    """Return the value of an option that is a string.

    Raises:
        InvalidSchema: the value is no string.
    """
    made = _decoded(option.value)
    if made is None:
        raise InvalidSchema(f"option {option.name} has a wrong value")
    return made


def json_name(name: str) -> str:
    """Return the default name of a field in JSON."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _decoded(value: Value) -> str | None:
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


def _float_text(value: float, *, is_float: bool) -> str:
    """Return a number as protoc writes it: with few digits if these give the same number."""
    if not is_float:
        text = f"{value:.15g}"
        return text if float(text) == value else f"{value:.17g}"
    value = _as_float(value)
    text = f"{value:.6g}"
    return text if _as_float(float(text)) == value else f"{value:.9g}"


def _as_float(value: float) -> float:
    """Return the nearest 32-bit float."""
    try:
        (made,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(made)


def _c_escaped(byte: int) -> str:
    named = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return named.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")


# -- From a descriptor -------------------------------------------------------------------------------------------------


def option_nodes(options: Any) -> list[Option]:
    """Return the nodes for the options in a descriptor."""
    rows = []
    for field, value in options.ListFields():
        if not field.is_extension and field.name != "uninterpreted_option":
            rows += [Option(field.name, _node(field, part)) for part in (value if field.is_repeated else [value])]
    return rows


def _node(field: Any, value: Any) -> Value:
    if field.message_type is not None:
        rows = [row for row in value.ListFields() if not row[0].is_extension]
        return Literal(
            tuple(
                (inner.name, _node(inner, part))
                for inner, parts in rows
                for part in (parts if inner.is_repeated else [parts])
            )
        )
    if field.type == FieldDescriptor.TYPE_ENUM:
        return Identifier(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return Identifier("true" if value else "false")
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    return Number(str(value))


def default_node(kind: str, text: str) -> Value:
    """Return the node for a default value in a descriptor."""
    if kind == "string":
        return text.encode()
    if kind == "bytes":
        return unescaped(f'"{text}"')
    is_number = kind in BITS or (kind in ("float", "double") and text not in _FLOATS)
    return Number(text) if is_number else Identifier(text)
