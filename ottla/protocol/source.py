"""The common base of the two code generators: lines of Python with indentation, fresh names, and runs of fixed-width fields.

A run gathers neighbouring fixed-width values until something of variable length follows; it then becomes one call of
one struct.Struct. The length prefix of what follows, when it is one byte or an old-style length, ends the run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from ottla.protocol.schema import FIXED, UNSET, ZERO_UUID, Field, Struct, WireType, fields, has_list, shared_default

# The struct codes of array elements; one call reads or writes such an array.
NUMBERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I", "float64": "d"}


class Source:
    """The function that is being generated for a version of a message, the objects that it refers to, and the open run."""

    #: The names to which the function refers for any message.
    names: ClassVar[dict[str, object]]

    def __init__(self, cls: type[Struct], version: int, flexible: bool) -> None:
        self.cls, self.version, self.flexible = cls, version, flexible
        self.where = cls.__name__  # the field that is being read or written, for errors
        self.scope = dict(self.names)
        self.lines: list[str] = []
        self.depth = 1
        self.run: list[tuple[str, str]] = []  # (struct code, expression or target)
        self._names = 0

    def line(self, *texts: str) -> None:
        self.lines += ["    " * self.depth + text for text in texts]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a line, and indent the lines that are written within the context."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, prefix: str) -> str:
        """Return a new, unused name of a local variable."""
        self._names += 1
        return f"{prefix}{self._names}"

    def refer(self, name: str, value: object) -> str:
        """Bind `value` in the function's namespace to `name`, or to a longer name if that one is taken; return the name."""
        while self.scope.setdefault(name, value) is not value:
            name += "_"
        return name

    def codec(self, codes: str, method: str) -> str:
        """Return the name of the pack or unpack_from method for these struct codes."""
        name = f"{'pack' if method == 'pack' else 'read'}_{codes.replace('?', 'bool_')}"
        if name not in self.scope:
            self.scope[name] = getattr(struct.Struct(">" + codes), method)
        return name


def run_size(codes: str) -> int:
    return struct.calcsize(">" + codes)


def default_value(field: Field) -> object:
    """Return the Python value that stands for the field's default; lists and structs with lists are not shared."""
    if field.default is not UNSET:
        return field.default
    if field.type.struct is None:
        return []
    return field.type.struct() if has_list(field.type.struct) else shared_default(field.type.struct)


def default_expression(source: Source, field: Field) -> str:
    """Return source text of the field's default; mutable defaults are created for each object."""
    if field.default is not UNSET:
        return "ZERO_UUID" if field.default == ZERO_UUID and field.type.name == "uuid" else repr(field.default)
    if field.type.struct is None:
        return "[]"
    cls = field.type.struct
    if has_list(cls):
        return source.refer(cls.__name__, cls) + "()"
    return source.refer(f"DEFAULT_{cls.__name__}", shared_default(cls))


def differs_from_default(source: Source, field: Field, value: str) -> str:
    """Source text of the test whether `value` is not the field's default."""
    default, kind = field.default, field.type.name
    if default is UNSET and kind == "list":
        return f"({value} is None or {value})" if field.nullable else value
    if default is UNSET:
        assert field.type.struct is not None
        return _struct_differs(source, field, field.type.struct, value)
    if default is None:
        return f"{value} is not None"
    if default is False or default in ("", b""):
        return value if not field.nullable else f"{value} != {default!r}"
    if default is True:
        return f"not {value}"
    return f"{value} != {default_expression(source, field)}"


def _struct_differs(source: Source, field: Field, cls: type[Struct], value: str) -> str:
    expression = default_expression(source, field)
    if field.nullable or has_list(cls):
        return f"{value} != {expression}"
    parts = [differs_from_default(source, part, f"{value}.{part.name}") for part in fields(cls)]
    return f"({value} is not {expression} and ({' or '.join(parts)}))"


def present(cls: type[Struct], version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """Return the fields of this version in wire order, its tagged fields by tag, and those it lacks."""
    plain, tagged, absent = [], [], []
    for field in fields(cls):
        if version not in field.versions:
            absent.append(field)
        elif field.tag is None:
            plain.append(field)
        else:
            tagged.append(field)
    return plain, sorted(tagged, key=lambda field: field.tag or 0), absent


def least_size(wire_type: WireType, version: int, flexible: bool) -> int:
    """Return the smallest encoded size of a value; with it an array's count is checked against the remaining bytes."""
    if wire_type.name in FIXED:
        return run_size(FIXED[wire_type.name])
    if wire_type.struct is not None:
        plain, _, _ = present(wire_type.struct, version)
        return (
            sum(1 if f.type.struct and version in f.nullable else least_size(f.type, version, flexible) for f in plain)
            + flexible
        )
    if flexible:
        return 1
    return 2 if wire_type.name == "str" else 4
