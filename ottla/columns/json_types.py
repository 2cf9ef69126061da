"""JSON Schemas as types for columns, and for msgspec, which checks and reads the JSON.

Fields of JSON are all nullable, `integer` is 64 bits and `number` a double, and values with a format stay text, because JSON
Schema does not make values follow it. A schema without a fitting type of column (several types, no type, tuples, a schema
inside itself) becomes a column with its JSON as text. Keywords that limit values are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from types import GenericAlias
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ottla.columns.assembling import ColumnNode, Leaf, ListNode, MapNode, StructNode, Values
from ottla.columns.batches import ColumnsError

#: The most types of a column, with nested ones.
TYPES_MAX = 10_000
SCALARS: dict[str, tuple[Any, pa.DataType]] = {
    "string": (str | None, pa.string()),
    "integer": (int | float | None, pa.int64()),  # 1.0 is an integer
    "number": (float | None, pa.float64()),
    "boolean": (bool | None, pa.bool_()),
}
#: These two together are read as `number`.
NUMBERS = {"integer", "number"}
ALTERNATIVES = ("oneOf", "anyOf")
Schema = Any  # what JSON can hold


class IntegerLeaf(Leaf):
    """Integers. Arrow itself would cut a fraction off."""

    def array(self, values: Values) -> pa.Array:
        if float in {*map(type, values)}:
            for each in values:
                if isinstance(each, float) and not each.is_integer():
                    raise ValueError(f"{each} is no integer")
        return super().array(values)


class JsonTyped(NamedTuple):
    """A type for msgspec's decoder, and the node that makes its column."""

    read: Any
    node: ColumnNode


class JsonTypes:
    """The types of one schema and of the schemas that it refers to. Raises ColumnsError if it is not valid, or too large."""

    def __init__(self, text: str, dependencies: Mapping[str, str] = {}) -> None:
        try:
            self._root = json.loads(text)
            self._others = {name: json.loads(each) for name, each in dependencies.items()}
        except (ValueError, RecursionError) as fault:
            raise ColumnsError(f"the schema is not valid: {fault or type(fault).__name__}") from None
        self._count = 0

    def typed(self) -> JsonTyped:
        try:
            return self._of(self._root, self._root, ())
        except RecursionError:
            raise ColumnsError("the schema is nested too deeply") from None

    def _of(self, schema: Schema, document: Schema, inside: tuple[int, ...]) -> JsonTyped:
        self._count += 1
        if self._count > TYPES_MAX:
            raise ColumnsError(f"the schema has more than {TYPES_MAX} types")
        found = self._plain(schema, document)
        if found is None or id(found[0]) in inside:
            return AS_TEXT
        schema, document = found
        inside = (*inside, id(schema))
        kind = _kind_of(schema)
        if kind in SCALARS:
            read, arrow = SCALARS[kind]
            return JsonTyped(read, IntegerLeaf(arrow) if kind == "integer" else Leaf(arrow))
        if kind == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
            item = self._of(schema["items"], document, inside)
            return JsonTyped(GenericAlias(list, (item.read,)) | None, ListNode(item.node))
        if kind != "object":
            return AS_TEXT
        properties, rest = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            return self._struct({name: self._of(each, document, inside) for name, each in properties.items()})
        if isinstance(rest, dict):
            value = self._of(rest, document, inside)
            return JsonTyped(GenericAlias(dict, (str, value.read)) | None, MapNode(pa.string(), value.node))
        return AS_TEXT

    @staticmethod
    def _struct(fields: dict[str, JsonTyped]) -> JsonTyped:
        inner = {name: f"f{number}" for number, name in enumerate(fields)}
        try:
            made = msgspec.defstruct(
                "JsonObject",
                [(inner[name], typed.read, None) for name, typed in fields.items()],
                rename={short: name for name, short in inner.items()},
                gc=False,
            )
        except (TypeError, ValueError) as fault:
            raise ColumnsError(f"the schema has a property that no column can be: {fault}") from None
        node = StructNode([(name, attrgetter(inner[name]), typed.node) for name, typed in fields.items()])
        return JsonTyped(made | None, node)

    def _plain(self, schema: Schema, document: Schema) -> tuple[Schema, Schema] | None:
        """Return the schema with references resolved and its one alternative chosen, and its document; None if it has no single
        type.
        """
        for _ in range(TYPES_MAX):
            if not isinstance(schema, dict):
                return None
            if "$ref" in schema:
                found = self._referred(schema["$ref"], document)
                if found is None:
                    return None
                schema, document = found
                continue
            branches = [each for word in (*ALTERNATIVES, "allOf") for each in _list_of(schema.get(word))]
            branches = [each for each in branches if each != {"type": "null"}]
            if not branches or "properties" in schema:
                return schema, document
            if len(branches) > 1:
                return None
            schema = branches[0]
        return None

    def _referred(self, reference: Any, document: Schema) -> tuple[Schema, Schema] | None:
        name, _, pointer = str(reference).partition("#")
        document = self._others.get(name) if name else document
        found = document
        for part in _parts(pointer):
            found = found.get(part) if isinstance(found, dict) else None
        return None if found is None else (found, document)


def _kind_of(schema: Any) -> str:
    """Return the type of the values that are not null. It is empty if the schema has several types, or none."""
    given = schema.get("type")
    kinds = {
        each for each in (given if isinstance(given, list) else [given]) if each != "null" and isinstance(each, str)
    }
    if not kinds and isinstance(schema.get("enum"), list):
        names = {type(each) for each in schema["enum"] if each is not None}
        return "string" if names == {str} else ""
    if not kinds and isinstance(schema.get("properties"), dict):
        return "object"
    if kinds == NUMBERS:
        return "number"
    return kinds.pop() if len(kinds) == 1 else ""


def _list_of(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _parts(pointer: str) -> Iterator[str]:
    for part in filter(None, pointer.split("/")):
        yield part.replace("~1", "/").replace("~0", "~")


def _text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text


AS_TEXT = JsonTyped(msgspec.Raw, Leaf(pa.string(), _text))
