"""Avro schemas are checked and compared by Apache Avro's Python library, and printed as its Java library does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from ottla.registry.formats.avro_rules import AvroRules
from ottla.registry.formats.avro_text import (
    NAMED,
    PRIMITIVES,
    RECORDS,
    JavaPrinter,
    NormalPrinter,
    definitions,
    full_name,
    names_of,
    referred,
)
from ottla.registry.formats.java_json import dump, loads
from ottla.registry.formats.parsed import InvalidSchema, ParsedSchema

#: Messages about incompatibilities, by type (Confluent's sentences).
TEXTS = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the {reader} schema does not match with the {writer} schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the {reader} schema does not match with the {writer} schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The {reader} schema is missing enum symbols '{message}' at path '{path}' in the {writer} schema",
    "MISSING_UNION_BRANCH": "The {reader} schema is missing a type inside a union field at path '{path}' in the {writer} schema",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{message}' at path '{path}' in the {reader} schema has no default value and is "
    "missing in the {writer} schema",
}
_BEYOND_ASCII, _SPELLED = re.compile(r"[^\x00-\x7f]"), re.compile(r"Zu([0-9a-f]{2,5})Z")
Node = Any
#: The errors of reading a node with an unexpected form.
FAULTS = (LookupError, TypeError, AttributeError, ValueError, RecursionError)


class AvroSchema:
    """A schema, with the definitions that it refers to by name."""

    kind = "AVRO"

    def __init__(self, text: str, dependencies: Mapping[str, str]) -> None:
        self._referenced: dict[str, Node] = {}
        self._dependencies: list[Node] = []
        try:
            for row in dependencies.values():
                needed = _load(row)
                form = JavaPrinter(dict(definitions(needed)), self._referenced).form(needed)
                self._dependencies.append(form)
                self._referenced.update(definitions(form))
            node = _load(text)
            # A name may come before its definition: Java's library prints the definition there.
            found = list(definitions(node))
            self._form = JavaPrinter(dict(found), self._referenced).form(node)
            self._own = dict(definitions(self._form))
        except FAULTS as fault:
            raise InvalidSchema(_reason(fault)) from None
        self._defined_twice = _repeated([*self._referenced, *(name for name, _ in found)])

    @property
    def canonical(self) -> str:
        return dump(self._form)

    def normalized(self) -> str:
        """Return the canonical text of the schema as Confluent's registry normalizes it."""
        normal = NormalPrinter(self._referenced, self._own).form(self._form)
        return dump(JavaPrinter(known=self._referenced).form(normal))

    def formatted(self, name: str) -> str:
        if name.lower() == "resolved":
            return dump(JavaPrinter(self._referenced).form(self._form))
        return self.canonical

    def check(self, *, is_new: bool = True) -> None:
        """Check that Java's library accepts the schema.

        Args:
            is_new: whether the default of each field has to be a value of its type, as in a registration.

        Raises:
            InvalidSchema: it is not valid.
        """
        assert self.checked is not None
        AvroRules({**self._referenced, **self._own}, is_new=is_new).check(self._form)

    @cached_property
    def checked(self) -> Any:
        """The schema in Avro's library. The library checks symbols and sizes, and that each name is defined.

        Raises:
            InvalidSchema: it is not valid.
        """
        from avro.errors import AvroException
        from avro.name import Names
        from avro.schema import make_avsc_object

        if self._defined_twice:
            raise InvalidSchema(f"Can't redefine: {self._defined_twice}")
        # `Rules` checks names: Java's names may have letters that Python's library does not allow.
        names = Names(validate_names=False)
        known = {*self._referenced, *self._own}
        try:
            for row in [*self._dependencies, self._form]:
                made = make_avsc_object(
                    _qualified(row, known), names, validate_enum_symbols=False, validate_names=False
                )
            return made
        except (AvroException, *FAULTS) as fault:
            raise InvalidSchema(_reason(fault)) from None

    def incompatible(self, writer: ParsedSchema) -> list[str]:
        from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

        assert isinstance(writer, AvroSchema)
        result = ReaderWriterCompatibilityChecker().get_compatibility(self.checked, writer.checked)
        if result.compatibility is not SchemaCompatibilityType.incompatible:
            return []
        # The library's merged result has the root among the places.
        messages, paths = (
            sorted(_shown(row) for row in result.messages),
            sorted(result.locations - {"", "/"}) or ["/"],
        )
        kinds = dict.fromkeys(kind.value.upper() for kind in result.incompatibilities)
        rows = []
        for index, kind in enumerate(kinds):
            path = paths[min(index, len(paths) - 1)] if len(kinds) > 1 else ", ".join(paths)
            message = messages[min(index, len(messages) - 1)] if len(kinds) > 1 else ", ".join(messages)
            text = TEXTS[kind].replace("{path}", path).replace("{message}", message)
            rows.append(f"{{errorType:'{kind}', description:'{text}', additionalInfo:'{message}'}}")
        return rows


def _load(text: str) -> Node:
    node = loads(text, comments=True)
    if isinstance(node, str) and node not in PRIMITIVES:
        # The schema is only a name, which must be that of a reference.
        return {"type": node}
    if not isinstance(node, str | list | dict):
        raise InvalidSchema(f"No type: {dump(node)}")
    return node


def _repeated(names: list[str]) -> str:
    """Return a name that occurs more than once, or nothing."""
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _qualified(node: Node, known: Collection[str], space: str = "") -> Node:
    """Return the schema with full names only, as the library compares them. `.A` stands for A without a namespace."""
    if isinstance(node, str):
        return node if node in PRIMITIVES else _dotted(referred(node, space, known))
    if isinstance(node, list):
        return [_qualified(branch, known, space) for branch in node]
    kind = node["type"]
    made = dict(node)
    if kind in NAMED:
        full = full_name(node, space)
        space = full.rpartition(".")[0]
        made |= {"name": _dotted(full), "namespace": None, "aliases": [_dotted(name) for name in names_of(node, space)]}
    if kind == "enum":
        made["symbols"] = [_spelled(symbol) for symbol in node["symbols"]]
    if kind in RECORDS:
        made["type"] = "record"  # the library does not compare errors, which are records in Java
        made["fields"] = [{**row, "type": _qualified(row["type"], known, space)} for row in node["fields"]]
    for key in ("items", "values"):
        if key in node:
            made[key] = _qualified(node[key], known, space)
    return made


def _spelled(symbol: Node) -> Node:
    """Return a symbol in ASCII, which the library requires: any other letter becomes Zu, its number and Z."""
    return _BEYOND_ASCII.sub(lambda found: f"Zu{ord(found[0]):x}Z", symbol) if isinstance(symbol, str) else symbol


def _shown(message: str) -> str:
    """Return a message of the library with the names as in the schema's text."""
    return _SPELLED.sub(lambda found: chr(int(found[1], 16)), message.replace("expected: .", "expected: "))


def _dotted(full: str) -> str:
    return full if "." in full else f".{full}"


def _reason(fault: BaseException) -> str:
    if isinstance(fault, RecursionError):
        return "the schema is nested too deeply"
    if isinstance(fault, KeyError):
        return f"No {fault.args[0]}"
    return str(fault) or type(fault).__name__
