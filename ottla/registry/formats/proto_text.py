"""Protobuf's text in the layout in which Confluent's registry keeps it.

The printed text has no comments and a fixed order (package, imports, options, messages, enums, extensions, services). It is the
identity of a schema: two texts that print alike are one schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.registry.formats.proto_descriptor import SCALARS
from ottla.registry.formats.proto_nodes import (
    ENUM_MAX,
    TAG_MAX,
    Element,
    Enum,
    EnumValue,
    Extension,
    ExtensionRange,
    File,
    Identifier,
    Import,
    Literal,
    MapField,
    Message,
    Method,
    Number,
    OneOf,
    Option,
    Package,
    ProtoField,
    ProtoGroup,
    ProtoRange,
    Reserved,
    Service,
    Value,
    is_message_set,
    map_entry,
    of_kind,
)
from ottla.registry.formats.proto_normal import NormalNames, joined
from ottla.registry.formats.proto_tokens import quoted


class Printer:
    """Prints a file. With `names` it prints the normalized form: full names, and everything sorted whose order has no meaning."""

    def __init__(self, names: NormalNames | None = None) -> None:
        self._names = names
        self._scope: tuple[str, ...] = ()
        self._has_edition = False

    def print(self, file: File) -> str:
        self._has_edition = bool(file.edition)
        elements = file.elements
        imports = [self._import(row) for row in self._ordered(of_kind(elements, Import), key=lambda row: row.name)]
        # Public imports come after the others.
        imports.sort(key=lambda line: line.startswith("import public"))
        blocks = [
            "".join(dict.fromkeys(imports) if self._names else imports),
            self._options(elements),
            *self._types_and_extensions(elements),
            "".join(map(self._service, of_kind(elements, Service))),
        ]
        # There is a blank line before each block, also before the first one.
        return self._head(file) + "".join(f"\n{block}" for block in blocks if block)

    def _head(self, file: File) -> str:
        lines = []
        if file.edition:
            lines.append(f'edition = "{file.edition}";\n')
        elif file.syntax and not (self._names and file.syntax == "proto2"):
            lines.append(f'syntax = "{file.syntax}";\n')
        lines += [f"package {row.name};\n" for row in of_kind(file.elements, Package)]
        return "".join(lines)

    @staticmethod
    def _import(row: Import) -> str:
        return f"import {row.kind + ' ' if row.kind else ''}{quoted(row.name.encode())};\n"

    def _ordered(self, rows: list[Any], key: Callable[[Any], Any]) -> list[Any]:
        return sorted(rows, key=key) if self._names else rows

    def _name(self, name: str) -> str:
        return self._names.full(self._scope, name) if self._names else name

    def _type(self, name: str) -> str:
        # A message may have the same name as a scalar. A field can then only mean the scalar.
        return name if name in SCALARS else self._name(name)

    def _types(self, elements: Sequence[Element]) -> str:
        messages = map(self._message, of_kind(elements, Message))
        return "".join(messages) + "".join(map(self._enum, of_kind(elements, Enum)))

    def _message(self, message: Message) -> str:
        visibility = f"{message.visibility} " if message.visibility else ""
        return _braces(f"{visibility}message {message.name}", self._body(message.name, message.elements))

    def _body(self, name: str, elements: Sequence[Element]) -> list[str]:
        """Return the blocks of a message or a group."""
        if self._names:
            elements = _with_maps(elements)
        self._scope = (*self._scope, name)
        largest = ENUM_MAX - 1 if is_message_set(elements) else TAG_MAX
        fields = self._ordered(of_kind(elements, ProtoField, MapField), key=lambda row: row.number)
        blocks = [
            self._reserved(elements, largest),
            self._options(elements),
            "".join(map(self._field, fields)),
        ]
        ranges = self._extension_ranges(of_kind(elements, ExtensionRange), largest)
        if _has_groups(elements):
            blocks += [ranges, *self._in_order(elements)]
        else:
            oneofs = self._ordered(of_kind(elements, OneOf), key=_first_number)
            blocks += ["".join(map(self._oneof, oneofs)), ranges, self._extensions(elements), self._types(elements)]
        self._scope = self._scope[:-1]
        return blocks

    def _types_and_extensions(self, elements: Sequence[Element]) -> list[str]:
        """Return the blocks of a file's messages, enums and extensions."""
        if _has_groups(elements):
            return self._in_order(elements)
        return [self._types(elements), self._extensions(elements)]

    def _in_order(self, elements: Sequence[Element]) -> list[str]:
        """Return the declarations of messages in their order: a value names its message by the position among messages and
        groups.
        """
        blocks = []
        for row in elements:
            match row:
                case Message():
                    blocks.append(self._message(row))
                case ProtoGroup():
                    blocks.append(self._group(row))
                case OneOf():
                    blocks.append(self._oneof(row))
                case Extension():
                    blocks.append(self._extension(self._name(row.type_name), row.elements))
        return [*blocks, "".join(map(self._enum, of_kind(elements, Enum)))]

    def _enum(self, enum: Enum) -> str:
        values = of_kind(enum.elements, EnumValue)
        # The first value stays first: it is the default of fields.
        values[1:] = self._ordered(values[1:], key=lambda row: (row.number, row.name))
        rows = [f"{row.name} = {row.number}{self._in_brackets(row.options)};\n" for row in values]
        visibility = f"{enum.visibility} " if enum.visibility else ""
        block = self._reserved(enum.elements, ENUM_MAX) + self._options(enum.elements) + "".join(rows)
        return _braces(f"{visibility}enum {enum.name}", [block])

    def _field(self, field: ProtoField | MapField) -> str:
        if isinstance(field, MapField):
            kind = f"map<{field.key_type}, {self._type(field.value_type)}>"
        else:
            kind = _label(field.label) + self._type(field.type)
        return f"{kind} {field.name} = {field.number}{self._in_brackets(_special_last(field.options))};\n"

    def _oneof(self, oneof: OneOf) -> str:
        rows = self._ordered(of_kind(oneof.elements, ProtoField), key=lambda row: row.number)
        groups = of_kind(oneof.elements, ProtoGroup)
        blocks = [
            self._options(oneof.elements),
            "".join(map(self._field, rows)),
            "".join(map(self._group, groups)),
        ]
        return _braces(f"oneof {oneof.name}", blocks)

    def _group(self, group: ProtoGroup) -> str:
        head = f"{_label(group.label)}group {group.name} = {group.number}{self._in_brackets(group.options)}"
        return _braces(head, self._body(group.name, group.elements))

    def _extensions(self, elements: Sequence[Element]) -> str:
        rows = [(self._name(row.type_name), row.elements) for row in of_kind(elements, Extension)]
        if self._names:
            joined: dict[str, list[Element]] = {}
            for name, parts in rows:
                joined.setdefault(name, []).extend(parts)
            rows = list(joined.items())
        return "".join(self._extension(name, parts) for name, parts in rows)

    def _extension(self, name: str, elements: Sequence[Element]) -> str:
        fields = self._ordered(of_kind(elements, ProtoField), key=lambda row: row.number)
        groups = of_kind(elements, ProtoGroup)
        return _braces(f"extend {name}", ["".join(map(self._field, fields)), "".join(map(self._group, groups))])

    def _service(self, service: Service) -> str:
        methods = "".join(map(self._method, of_kind(service.elements, Method)))
        return _braces(f"service {service.name}", [self._options(service.elements), methods])

    def _method(self, method: Method) -> str:
        def side(name: str, stream: bool) -> str:
            return f"({'stream ' if stream else ''}{self._name(name)})"

        options = self._options(method.options)
        body = f" {{\n{_indented(options)}}}" if options else ""
        sides = side(method.input_type, method.input_stream), side(method.output_type, method.output_stream)
        return f"rpc {method.name} {sides[0]} returns {sides[1]}{body};\n"

    # -- Numbers and options -------------------------------------------------------------------------------------------

    def _reserved(self, elements: Sequence[Element], largest: int) -> str:
        rows = of_kind(elements, Reserved)
        if self._names:
            ranges = sorted({part.plain() for row in rows for part in row.ranges})
            names = sorted({name for row in rows for name in row.names})
            rows = [*(Reserved([part], []) for part in ranges), *(Reserved([], [name]) for name in names)]
        return "".join(f"reserved {', '.join(self._reserved_parts(row, largest))};\n" for row in rows)

    def _reserved_parts(self, row: Reserved, largest: int) -> list[str]:
        names = row.names if self._has_edition else [quoted(name.encode()) for name in row.names]
        return [*(_range_text(part, largest) for part in row.ranges), *names]

    def _extension_ranges(self, rows: Sequence[ExtensionRange], largest: int) -> str:
        if self._names:
            rows = sorted(
                (ExtensionRange([part.plain()], row.options) for row in rows for part in row.ranges),
                key=lambda row: row.ranges,
            )
        texts = [", ".join(_range_text(part, largest) for part in row.ranges) for row in rows]
        return "".join(
            f"extensions {text}{self._in_brackets(row.options)};\n" for text, row in zip(texts, rows, strict=True)
        )

    def _options(self, elements: Sequence[Element]) -> str:
        rows = self._ordered_options(of_kind(elements, Option))
        return "".join(f"option {self._assigned(row)};\n" for row in rows)

    def _in_brackets(self, options: Sequence[Option]) -> str:
        rows = [self._assigned(row) for row in self._ordered_options(options)]
        return f" {_listed(rows)}" if rows else ""

    def _ordered_options(self, rows: Sequence[Option]) -> Sequence[Option]:
        return self._names.options(self._scope, rows) if self._names else rows

    def _assigned(self, option: Option) -> str:
        value = option.value
        text = _listed([self._value(row) for row in value]) if isinstance(value, list) else self._value(value)
        return f"{option.name} = {text}"

    def _value(self, value: Value) -> str:
        if isinstance(value, bytes):
            return quoted(value)
        if isinstance(value, Number):
            return number_text(value) if self._names else value.text
        if isinstance(value, Identifier):
            return value.name
        if isinstance(value, list):
            if self._names and len(value) == 1:
                return self._value(value[0])
            return "[\n" + _indented(",\n".join(map(self._value, value)) + "\n" if value else "") + "]"
        rows = [f"{name}: {self._value(part)}" for name, part in self._fields(value)]
        return "{\n" + _indented(",\n".join(rows) + "\n" if rows else "") + "}"

    def _fields(self, literal: Literal) -> list[tuple[str, Any]]:
        names = self._names
        if names is None:
            return joined(literal)
        rows = [
            (f"[{names.extension(self._scope, name[1:-1])}]" if name.startswith("[") else name, value)
            for name, value in joined(literal)
            if value != []
        ]
        return sorted(rows, key=lambda row: row[0])


def _with_maps(elements: Sequence[Element]) -> list[Element]:
    """Return the declarations in a message, with maps in place of the repeated fields of entries that descriptors have."""
    entries = {row.name: types for row in of_kind(elements, Message) if (types := map_entry(row)) is not None}
    made: list[Element] = []
    for row in elements:
        if isinstance(row, ProtoField) and row.label == "repeated" and row.type.rpartition(".")[2] in entries:
            made.append(MapField(row.name, row.number, *entries[row.type.rpartition(".")[2]], row.options))
        elif not (isinstance(row, Message) and row.name in entries):
            made.append(row)
    return made


def number_text(number: Number) -> str:
    """Return a number in the shortest form that gives the same number."""
    value = number.value
    if not math.isfinite(value):  # 1e400 has no other form
        return number.text
    if value == 0:
        return "-0" if number.text.startswith("-") else "0"
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _special_last(options: Iterable[Option]) -> list[Option]:
    """Confluent's registry prints these two options after the others."""
    order = {"default": 1, "json_name": 2}
    return sorted(options, key=lambda row: order.get(row.name, 0))


def _range_text(row: ProtoRange, largest: int) -> str:
    if row.first == row.last and not row.is_spelled:
        return str(row.first)
    return f"{row.first} to {'max' if row.last == largest else row.last}"


def _label(label: str) -> str:
    return f"{label} " if label else ""


def _first_number(oneof: OneOf) -> int:
    return int(min(row.number for row in of_kind(oneof.elements, ProtoField, ProtoGroup)))


def _has_groups(elements: Sequence[Element]) -> bool:
    """Return whether a field (of a message, a oneof or an extension) is a group, which also declares a message."""
    return any(
        isinstance(row, ProtoGroup) or (isinstance(row, OneOf | Extension) and of_kind(row.elements, ProtoGroup))
        for row in elements
    )


def _listed(rows: Sequence[str]) -> str:
    return f"[{rows[0]}]" if len(rows) == 1 else "[\n" + _indented(",\n".join(rows) + "\n" if rows else "") + "]"


def _braces(head: str, blocks: Sequence[str]) -> str:
    inner = "\n".join(_indented(block) for block in blocks if block)
    return f"{head} {{\n{inner}}}\n" if inner else f"{head} {{}}\n"


def _indented(text: str) -> str:
    # splitlines() would be wrong: strings may have characters that end a line for it, but not in a .proto text. Blank lines are
    # indented too, as in Confluent's registry.
    return "".join(f"  {line}\n" for line in text.split("\n")[:-1])
