"""Protobuf's text: parsed by proto-schema-parser, and printed in the layout in which Confluent's registry keeps it.

The printed text has no comments and a fixed order (package, imports, options, messages, enums, extensions, services). It is the
identity of a schema: two texts that print alike are one schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from ottla.registry.formats.parsed import InvalidSchema

TAG_MAX = (1 << 29) - 1
ENUM_MAX = (1 << 31) - 1

#: It gives the full name of a type that is named in a scope.
Resolve = Callable[[tuple[str, ...], str], str]
Element = Any  # the nodes of proto_schema_parser.ast, which has no common class


class _Raise:
    """Raises the first error of the lexer or the parser, which otherwise print it and go on (an ErrorListener of antlr4)."""

    def syntaxError(self, recognizer: object, symbol: object, line: int, column: int, text: str, fault: object) -> None:
        raise InvalidSchema(f"Syntax error in :{line}:{column + 1}: {text}")

    def ignore(self, *arguments: object) -> None:
        """What the parser reports about its own speed is of no interest."""

    reportAmbiguity = reportAttemptingFullContext = reportContextSensitivity = ignore


def parse_proto(text: str) -> ast.File:
    """Parse a .proto file.

    Raises:
        InvalidSchema: it is not valid; the text says where.
    """
    listener = _Raise()

    def set_up(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(listener)

    try:
        file = Parser(setup_lexer=set_up, setup_parser=set_up).parse(text)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
    except (ValueError, AttributeError, TypeError) as fault:
        raise InvalidSchema(str(fault)) from None
    if file.syntax not in (None, "proto2", "proto3"):
        raise InvalidSchema(f"unexpected syntax: {file.syntax}")
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    return file


def of_kind(elements: Iterable[Element], *kinds: type) -> list[Any]:
    """Return the elements of these classes, in their order."""
    return [element for element in elements if isinstance(element, kinds)]


# -- Printing ------------------------------------------------------------------------------------------------------------


class Printer:
    """Prints a file. With `resolve` it is the normalized form: full names, and all that has no meaning in its order sorted."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve
        self._scope: tuple[str, ...] = ()

    def print(self, file: ast.File) -> str:
        blocks = [self._head(file)]
        elements = file.file_elements
        imports = [self._import(row) for row in self._ordered(of_kind(elements, ast.Import), key=lambda row: row.name)]
        # Public imports stand after the others.
        imports.sort(key=lambda line: line.startswith("import public"))
        blocks.append("".join(dict.fromkeys(imports) if self._resolve else imports))
        blocks.append("".join(self._options(elements)))
        blocks.append(
            "".join(map(self._message, of_kind(elements, ast.Message)))
            + "".join(map(self._enum, of_kind(elements, ast.Enum)))
        )
        blocks.append("".join(map(self._extension, of_kind(elements, ast.Extension))))
        blocks.append("".join(map(self._service, of_kind(elements, ast.Service))))
        return "\n".join(block for block in blocks if block)

    def _head(self, file: ast.File) -> str:
        lines = []
        if file.edition is not None:
            lines.append(f'edition = "{file.edition}";\n')
        elif file.syntax is not None and not (self._resolve and file.syntax == "proto2"):
            lines.append(f'syntax = "{file.syntax}";\n')
        lines += [f"package {row.name};\n" for row in of_kind(file.file_elements, ast.Package)]
        return "".join(lines)

    @staticmethod
    def _import(row: ast.Import) -> str:
        return f'import {"public " if row.public else ""}"{row.name}";\n'

    def _ordered(self, rows: list[Any], key: Callable[[Any], Any]) -> list[Any]:
        return sorted(rows, key=key) if self._resolve else rows

    def _name(self, name: str) -> str:
        return self._resolve(self._scope, name) if self._resolve else name

    def _message(self, message: ast.Message) -> str:
        self._scope = (*self._scope, message.name)
        elements = message.elements
        fields = of_kind(elements, ast.Field, ast.MapField)
        oneofs = of_kind(elements, ast.OneOf)
        if self._resolve:
            oneofs = sorted(
                (row for row in oneofs if _members(row)), key=lambda row: min(x.number for x in _members(row))
            )
        blocks = [
            "".join(self._reserved(elements, ast.Reserved, TAG_MAX)),
            "".join(self._options(elements)),
            "".join(map(self._field, self._ordered(fields, key=lambda row: row.number))),
            "".join(map(self._oneof, oneofs)),
            "".join(map(self._group, of_kind(elements, ast.Group))),
            "".join(self._ranges(of_kind(elements, ast.ExtensionRange), "extensions", TAG_MAX)),
            "".join(map(self._extension, of_kind(elements, ast.Extension))),
            "".join(map(self._message, of_kind(elements, ast.Message)))
            + "".join(map(self._enum, of_kind(elements, ast.Enum))),
        ]
        self._scope = self._scope[:-1]
        return _braces(f"message {message.name}", blocks)

    def _enum(self, enum: ast.Enum) -> str:
        values = of_kind(enum.elements, ast.EnumValue)
        values = self._ordered(values, key=lambda row: (row.number, row.name))
        rows = [f"{row.name} = {row.number}{self._in_brackets(row.options)};\n" for row in values]
        reserved = "".join(self._reserved(enum.elements, ast.EnumReserved, ENUM_MAX))
        return _braces(f"enum {enum.name}", [reserved + "".join(self._options(enum.elements)) + "".join(rows)])

    def _field(self, field: ast.Field | ast.MapField) -> str:
        if isinstance(field, ast.MapField):
            kind = f"map<{field.key_type}, {self._name(field.value_type)}>"
        else:
            label = f"{field.cardinality.value.lower()} " if field.cardinality else ""
            kind = label + self._name(field.type)
        # Confluent's prints these two after the other options.
        options = sorted(
            field.options,
            key=lambda row: ("default", "json_name").index(row.name) + 1 if row.name in ("default", "json_name") else 0,
        )
        return f"{kind} {field.name} = {field.number}{self._in_brackets(options)};\n"

    def _oneof(self, oneof: ast.OneOf) -> str:
        rows = self._ordered(of_kind(oneof.elements, ast.Field), key=lambda row: row.number)
        groups = of_kind(oneof.elements, ast.Group)
        blocks = [
            "".join(self._options(oneof.elements)),
            "".join(map(self._field, rows)),
            "".join(map(self._group, groups)),
        ]
        return _braces(f"oneof {oneof.name}", blocks)

    def _group(self, group: ast.Group) -> str:
        label = f"{group.cardinality.value.lower()} " if group.cardinality else ""
        rows = self._ordered(of_kind(group.elements, ast.Field, ast.MapField), key=lambda row: row.number)
        return _braces(f"{label}group {group.name} = {group.number}", ["".join(map(self._field, rows))])

    def _extension(self, extension: ast.Extension) -> str:
        rows = self._ordered(of_kind(extension.elements, ast.Field), key=lambda row: row.number)
        return _braces(f"extend {self._name(extension.typeName)}", ["".join(map(self._field, rows))])

    def _service(self, service: ast.Service) -> str:
        methods = "".join(map(self._method, of_kind(service.elements, ast.Method)))
        return _braces(f"service {service.name}", ["".join(self._options(service.elements)), methods])

    def _method(self, method: ast.Method) -> str:
        def side(kind: ast.MessageType) -> str:
            return f"({'stream ' if kind.stream else ''}{self._name(kind.type)})"

        options = "".join(self._options(method.elements))
        body = f" {{\n{_indented(options)}}}" if options else ""
        return f"rpc {method.name} {side(method.input_type)} returns {side(method.output_type)}{body};\n"

    def _reserved(self, elements: Sequence[Element], kind: type, last: int) -> list[str]:
        rows = of_kind(elements, kind)
        names = [f'"{name}"' for row in rows for name in row.names]
        if self._resolve:
            ranges = sorted({text for row in rows for text in row.ranges}, key=lambda text: range_of(text, last))
            return [f"reserved {_range_text(text, last)};\n" for text in ranges] + [
                f"reserved {name};\n" for name in sorted(names)
            ]
        return [
            f"reserved {', '.join([*(f'{text}' for text in row.ranges), *(chr(34) + name + chr(34) for name in row.names)])};\n"
            for row in rows
        ]

    def _ranges(self, rows: Sequence[ast.ExtensionRange], word: str, last: int) -> list[str]:
        if self._resolve:
            ranges = sorted({text for row in rows for text in row.ranges}, key=lambda text: range_of(text, last))
            return [f"{word} {_range_text(text, last)};\n" for text in ranges]
        return [f"{word} {', '.join(row.ranges)}{self._in_brackets(row.options)};\n" for row in rows]

    def _options(self, elements: Sequence[Element]) -> list[str]:
        options = self._ordered(of_kind(elements, ast.Option), key=lambda row: row.name)
        return [f"option {row.name} = {_value(row.value)};\n" for row in options]

    def _in_brackets(self, options: Sequence[ast.Option]) -> str:
        if not options:
            return ""
        rows = [f"{row.name} = {_value(row.value)}" for row in self._ordered(list(options), key=lambda row: row.name)]
        if len(rows) == 1:
            return f" [{rows[0]}]"
        return " [\n" + _indented(",\n".join(rows) + "\n") + "]"


def range_of(text: str, last: int) -> tuple[int, int]:
    """Return the first and the last number of "7", "8 to 10" or "100 to max"."""
    first, _, end = text.partition(" to ")
    return int(first, 0), int(first, 0) if not end else last if end.strip() == "max" else int(end, 0)


def _range_text(text: str, last: int) -> str:
    first, end = range_of(text, last)
    return str(first) if first == end else f"{first} to {'max' if end == last else end}"


def _members(oneof: ast.OneOf) -> list[Any]:
    return of_kind(oneof.elements, ast.Field, ast.Group)


def _braces(head: str, blocks: Sequence[str]) -> str:
    inner = "\n".join(_indented(block) for block in blocks if block)
    return f"{head} {{\n{inner}}}\n" if inner else f"{head} {{}}\n"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" if line else "\n" for line in text.splitlines())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        if math.isinf(value) or math.isnan(value):
            return str(value)
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    if isinstance(value, ast.Identifier):
        return str(value.name)
    if isinstance(value, ast.MessageLiteral):
        rows = [
            f"{row.name}: {_value(row.value)}" for row in value.elements if isinstance(row, ast.MessageLiteralField)
        ]
        return "{\n" + _indented(",\n".join(rows) + "\n") + "}" if rows else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value)
