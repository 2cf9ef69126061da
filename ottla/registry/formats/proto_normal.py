"""The normalized form of a .proto text: full names of types and extensions, and each custom option written once.

If Confluent's registry finds the definition of an extension, it prints `(o).a = 1, (pkg.o).b = 2` as one option, `(pkg.o) = {a:
1, b: 2}`; the options of a declaration are sorted by their names without parentheses.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from ottla.registry.formats.proto_compatibility import ProtoMember, ProtoType, ProtoTypes
from ottla.registry.formats.proto_nodes import Literal, Option, Value

Scope = tuple[str, ...]


class NormalNames:
    """The names in one file. They are looked up among the types that the file can use."""

    def __init__(self, package: str, types: ProtoTypes) -> None:
        self._package = package
        self._types = types

    def full(self, scope: Scope, name: str) -> str:
        """Return the full name of a type, with a dot before it, or the name itself if there is no such type."""
        found = self._types.find(self._package, scope, name)
        return "." + found.name if found is not None else name

    def extension(self, scope: Scope, name: str) -> str:
        """Return the full name of an extension, or the name itself if the definition is missing."""
        found = self._types.find_extension(self._package, scope, name)
        return found[0] if found is not None else name

    def options(self, scope: Scope, rows: Iterable[Option]) -> list[Option]:
        """Return the options of a declaration, sorted by name. An option whose extension is known is written once."""
        made = sorted((self._whole(scope, row) for row in rows), key=_bare)
        merged: list[Option] = []
        for name, group in groupby(made, key=lambda row: row.name):
            same = list(group)
            found = self._types.find_extension(self._package, scope, name[1:-1]) if name.endswith(")") else None
            if found is not None and found[1].label != "repeated":
                same = [Option(name, self._merged_all(found, [row.value for row in same]))]
            merged += same
        return merged

    def _whole(self, scope: Scope, row: Option) -> Option:
        """Return an option with the full name of its extension. A path into the extension becomes a message."""
        first, rest = _split(row.name)
        found = self._types.find_extension(self._package, scope, first[1:-1]) if first.startswith("(") else None
        if found is None:
            return row
        value = row.value
        for part in reversed(rest):
            value = Literal(((f"[{part[1:-1]}]" if part.startswith("(") else part, value),))
        return Option(f"({found[0]})", value)

    def _merged_all(self, found: tuple[str, ProtoMember], values: list[Value]) -> Value:
        made = values[0]
        for value in values[1:]:
            made = self._merged(self._type_of(found[0].rpartition(".")[0], found[1]), made, value)
        return made

    def _merged(self, kind: ProtoType | None, old: Value, new: Value) -> Value:
        """Return the later value of a field. Of two messages, merge the fields."""
        if not (isinstance(old, Literal) and isinstance(new, Literal)):
            return new
        found: dict[str, Any] = dict(joined(old))
        members = {} if kind is None else {row.name: row for row in kind.members.values()}
        for name, value in joined(new):
            if name not in found:
                found[name] = value
            elif (row := members.get(name)) is not None and row.label != "repeated" and row.key is None:
                inner = self._type_of(kind.name, row) if kind is not None else None
                found[name] = self._merged(inner, found[name], value)
            else:
                rows = [*_rows(found[name]), *_rows(value)]
                found[name] = [part for index, part in enumerate(rows) if part not in rows[:index]]
        return Literal(tuple(found.items()))

    def _type_of(self, around: str, member: ProtoMember) -> ProtoType | None:
        """Return the type of a field in the message or package with this full name."""
        return self._types.find("", tuple(around.split(".")) if around else (), member.type)


def joined(literal: Literal) -> list[tuple[str, Any]]:
    """Return the fields of a literal, each once. The values of a repeated field become a list."""
    found: dict[str, Any] = {}
    for name, value in literal.fields:
        found[name] = [*_rows(found[name]), *_rows(value)] if name in found else value
    return list(found.items())


def _rows(value: Value) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _bare(row: Option) -> str:
    """Return the name by which options are sorted: for `features.a` and `(o).a` the first part, without parentheses."""
    first, _ = _split(row.name)
    return first.strip("()")


def _split(name: str) -> tuple[str, list[str]]:
    """Return the first part of an option's name, and the rest. Dots within parentheses do not end a part."""
    parts: list[str] = []
    for piece in name.split("."):
        if parts and parts[-1].startswith("(") and not parts[-1].endswith(")"):
            parts[-1] += "." + piece
        else:
            parts.append(piece)
    return parts[0], parts[1:]
