"""Avro schemas: checked and compared by Apache Avro's Python library, and printed as its Java library does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ottla.registry.formats.avro_text import (
    NAMED,
    PRIMITIVES,
    JavaPrinter,
    NormalPrinter,
    definitions,
    dump,
    full_name,
)
from ottla.registry.formats.parsed import InvalidSchema, ParsedSchema

#: What users read of an incompatibility, by its type (Confluent's sentences).
TEXTS = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the {reader} schema does not match with the {writer} schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the {reader} schema does not match with the {writer} schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The {reader} schema is missing enum symbols '{message}' at path '{path}' in the {writer} schema",
    "MISSING_UNION_BRANCH": "The {reader} schema is missing a type inside a union field at path '{path}' in the {writer} schema",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{message}' at path '{path}' in the {reader} schema has no default value and is "
    "missing in the {writer} schema",
}
Node = Any


class AvroSchema:
    """A schema, with the definitions of those that it refers to by name."""

    kind = "AVRO"

    def __init__(self, text: str, dependencies: Mapping[str, str]) -> None:
        self._node = _load(text)
        self._referenced: dict[str, Node] = {}
        for row in dependencies.values():
            node = _load(row)
            self._referenced.update((name, part) for name, part in definitions(node))
        self._dependencies = [_load(row) for row in dependencies.values()]
        try:
            self._form = JavaPrinter().form(self._node)
        except (KeyError, TypeError, AttributeError, RecursionError) as fault:
            raise InvalidSchema(_reason(fault)) from None

    @property
    def canonical(self) -> str:
        return dump(self._form)

    def normalized(self) -> str:
        return dump(NormalPrinter(frozenset(self._referenced)).form(self._node))

    def formatted(self, name: str) -> str:
        if name.lower() == "resolved":
            return dump(JavaPrinter(self._referenced).form(self._node))
        return self.canonical

    def check(self) -> None:
        assert self.checked is not None

    @cached_property
    def checked(self) -> Any:
        """The schema of Avro's library, which checks names, symbols and sizes, and that each name is defined.

        Raises:
            InvalidSchema: it is not valid.
        """
        from avro.errors import AvroException
        from avro.name import Names
        from avro.schema import make_avsc_object

        names = Names()
        try:
            for row in self._dependencies:
                make_avsc_object(_qualified(row), names)
            return make_avsc_object(_qualified(self._node), names)
        except (AvroException, KeyError, TypeError, AttributeError, ValueError, RecursionError) as fault:
            raise InvalidSchema(_reason(fault)) from None

    def incompatible(self, writer: ParsedSchema) -> list[str]:
        from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

        assert isinstance(writer, AvroSchema)
        result = ReaderWriterCompatibilityChecker().get_compatibility(self.checked, writer.checked)
        if result.compatibility is not SchemaCompatibilityType.incompatible:
            return []
        # The library's merged result has the root beside the places.
        messages, paths = sorted(result.messages), sorted(result.locations - {"", "/"}) or ["/"]
        kinds = dict.fromkeys(kind.value.upper() for kind in result.incompatibilities)
        rows = []
        for index, kind in enumerate(kinds):
            path = paths[min(index, len(paths) - 1)] if len(kinds) > 1 else ", ".join(paths)
            message = messages[min(index, len(messages) - 1)] if len(kinds) > 1 else ", ".join(messages)
            text = TEXTS[kind].replace("{path}", path).replace("{message}", message)
            rows.append(f"{{errorType:'{kind}', description:'{text}', additionalInfo:'{message}'}}")
        return rows


def _load(text: str) -> Node:
    try:
        node = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise InvalidSchema(_reason(fault)) from None
    if isinstance(node, str) and node not in PRIMITIVES:
        # A schema that is nothing but a name: it must be a reference's.
        return {"type": node}
    if not isinstance(node, str | list | dict):
        raise InvalidSchema(f"No type: {dump(node)}")
    return node


def _qualified(node: Node, space: str = "") -> Node:
    """Return the schema with the aliases of definitions as full names, which the library compares with full names."""
    if isinstance(node, list):
        return [_qualified(branch, space) for branch in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if isinstance(kind, str) and kind in NAMED:
        space = full_name(node, space).rpartition(".")[0]
        made = dict(node)
        if isinstance(node.get("aliases"), list):
            made["aliases"] = [name if "." in name or not space else f"{space}.{name}" for name in node["aliases"]]
        if isinstance(node.get("fields"), list):
            made["fields"] = [{**row, "type": _qualified(row["type"], space)} for row in node["fields"]]
        return made
    return {
        key: _qualified(value, space) if key in ("type", "items", "values") else value for key, value in node.items()
    }


def _reason(fault: BaseException) -> str:
    if isinstance(fault, RecursionError):
        return "the schema is nested too deeply"
    if isinstance(fault, KeyError):
        return f"No {fault.args[0]}"
    return str(fault) or type(fault).__name__
