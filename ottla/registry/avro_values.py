"""Values of Avro are read by fastavro, after a check of the numbers that fastavro accepts without a bound.

fastavro makes as many items as a block claims, even if an item has no bytes (`{"type": "array", "items": "null"}`); it recurses
in C as deep as the bytes demand; and it converts decimals in a time that grows with the square of their bytes. If a schema
allows one of the first two, a reader that only counts goes over the value first. Apache Avro for Java has limits for the same
(org.apache.avro.limits).
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
from fastavro import read as fastavro_read

#: The most records, arrays, maps and unions inside each other, in a value of a recursive schema.
DEPTH_MAX = 100
#: The most items without bytes in one value.
EMPTY_ITEMS_MAX = 10_000
#: The most unscaled bytes of a decimal: 1,233 digits.
DECIMAL_BYTES_MAX = 512

_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}

#: Most values have these types, which are plain JSON as they are.
_PLAIN = frozenset((str, int, float, bool, type(None)))

Node = Any  # what JSON can hold
Read = Callable[[bytes], Any]


def avro_reader(text: str, dependencies: Mapping[str, str]) -> Read:
    """Return a function that reads values of a schema as plain JSON.

    `dependencies` are the schemas that it needs, in such an order that each comes after its own dependencies.

    Raises:
        ValueError and others of fastavro: the schema is not valid.
    """
    named: dict[str, Any] = {}
    for needed in dependencies.values():
        fastavro.parse_schema(json.loads(needed), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    shape = _Shape(named)
    shape.may_be_empty(parsed)

    def read(payload: bytes) -> Any:
        if shape.is_unbounded:
            _Skim(payload, shape).value(parsed, 0)
        return plain(fastavro.schemaless_reader(io.BytesIO(payload), parsed, None))

    return read


class _Shape:
    """The values that a schema allows. `is_unbounded` means that a short value can be very deep, or have very many items."""

    def __init__(self, named: Mapping[str, Node]) -> None:
        self._named = named
        self.is_unbounded = False
        self._inside: set[str] = set()
        self._known: dict[str, bool] = {}

    def of(self, node: Node) -> tuple[str, Node]:
        """Return the name of a type, and its definition."""
        while isinstance(node, str) and node not in _PRIMITIVES:
            node = self._named[node]
        if isinstance(node, list):
            return "union", node
        kind = node if isinstance(node, str) else node["type"]
        return ("record", node) if kind == "error" else (kind, node)

    def may_be_empty(self, node: Node) -> bool:
        """Return whether a value of the type can have no bytes, and check all types inside."""
        kind, node = self.of(node)
        match kind:
            case "null":
                return True
            case "fixed":
                return not node["size"]
            case "union":
                for branch in node:
                    self.may_be_empty(branch)
            case "map":
                self.may_be_empty(node["values"])
            case "array":
                self.is_unbounded |= self.may_be_empty(node["items"])
            case "record":
                return self._may_record_be_empty(node)
        return False

    def _may_record_be_empty(self, node: Node) -> bool:
        name = node["name"]
        if name in self._inside:
            self.is_unbounded = True
            return False
        if name not in self._known:
            self._inside.add(name)
            # a list, so that all fields are checked
            empty = [self.may_be_empty(field["type"]) for field in node["fields"]]
            self._known[name] = all(empty)
            self._inside.discard(name)
        return self._known[name]


class _Skim:
    """Goes over the bytes of one value, and keeps nothing. Raises ValueError if the value exceeds a bound."""

    def __init__(self, data: bytes, shape: _Shape) -> None:
        self._data = data
        self._at = 0
        self._shape = shape
        self._empty_items = 0

    def value(self, node: Node, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise ValueError(f"the value is nested deeper than {DEPTH_MAX}")
        kind, node = self._shape.of(node)
        match kind:
            case "record":
                for field in node["fields"]:
                    self.value(field["type"], depth + 1)
            case "union":
                index = self._long()
                if not 0 <= index < len(node):
                    raise ValueError(f"a union has no branch {index}")
                self.value(node[index], depth + 1)
            case "array":
                self._blocks(node["items"], depth)
            case "map":
                self._blocks(node["values"], depth, keyed=True)
            case "bytes" | "string":
                self._skip(self._long())
            case "int" | "long" | "enum":
                self._long()
            case "fixed":
                self._skip(node["size"])
            case _:
                self._skip(_SIZES[kind])

    def _blocks(self, node: Node, depth: int, *, keyed: bool = False) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the block's length in bytes, which fastavro does not check either
            for _ in range(count):
                before = self._at
                if keyed:
                    self._skip(self._long())
                self.value(node, depth + 1)
                if self._at == before:
                    self._empty_items += 1
                    if self._empty_items > EMPTY_ITEMS_MAX:
                        raise ValueError(f"the value has more than {EMPTY_ITEMS_MAX} items without bytes")

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"a length of {size} where {len(self._data) - self._at} bytes are left")
        self._at += size

    def _long(self) -> int:
        value = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise ValueError("a number is not whole")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7


def plain(value: Any) -> Any:
    """Return a value from fastavro as plain JSON."""
    if type(value) in _PLAIN:
        return value
    match value:
        case dict():
            return {key: row if type(row) in _PLAIN else plain(row) for key, row in value.items()}
        case list():
            return [plain(row) for row in value]
        case bytes():
            return value.decode("latin-1")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
    return value


def _bounded(convert: Callable[..., Any]) -> Callable[..., Any]:
    def decimal_of(data: bytes, *schemas: Any) -> Any:
        if len(data) > DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal of {len(data)} bytes")
        return convert(data, *schemas)

    return decimal_of


for _name in ("bytes-decimal", "fixed-decimal"):
    fastavro_read.LOGICAL_READERS[_name] = _bounded(fastavro_read.LOGICAL_READERS[_name])
