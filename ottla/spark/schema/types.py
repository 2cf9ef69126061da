"""Types of Avro as types of Spark and of Arrow, by the rules of Spark's own from_avro.

Arrow reads most of what fastavro returns as it is. What it cannot (maps, decimals, unions of several types) has a converter,
and so has all that holds such a value; a schema without them costs no step in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.spark.errors import ConnectorError
from ottla.spark.schema.tree import MARK, AvroTree, Node

#: Spark's own limit of a decimal's digits.
DIGITS_MAX = 38
#: So many types, nested ones included, may a column have: names can stand for each other's sums of sums.
TYPES_MAX = 10_000
Convert = Callable[[Any], Any]


class Typed(NamedTuple):
    """A type in Spark's DDL, in Arrow as values are read (`read`) and as Spark takes them (`arrow`), and how the first become the second.

    `convert` is never called with None.
    """

    sql: str
    read: pa.DataType
    arrow: pa.DataType
    convert: Convert | None = None


def _same(sql: str, arrow: pa.DataType) -> Typed:
    return Typed(sql, arrow, arrow)


PRIMITIVES = {
    "null": _same("VOID", pa.null()),
    "boolean": _same("BOOLEAN", pa.bool_()),
    "int": _same("INT", pa.int32()),
    "long": _same("BIGINT", pa.int64()),
    "float": _same("FLOAT", pa.float32()),
    "double": _same("DOUBLE", pa.float64()),
    "bytes": _same("BINARY", pa.binary()),
    "string": _same("STRING", pa.string()),
    "enum": _same("STRING", pa.string()),
    "fixed": _same("BINARY", pa.binary()),
}
#: Logical types by the type that carries them. All others of Avro are read as the type that carries them, as Spark does it.
LOGICAL = {
    ("int", "date"): _same("DATE", pa.date32()),
    ("long", "timestamp-millis"): Typed("TIMESTAMP", pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    ("long", "timestamp-micros"): _same("TIMESTAMP", pa.timestamp("us", "UTC")),
    ("long", "local-timestamp-millis"): Typed("TIMESTAMP_NTZ", pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "local-timestamp-micros"): _same("TIMESTAMP_NTZ", pa.timestamp("us")),
}
#: What fastavro returns, by which the branches of a union are distinguished. Of records there may be several.
CLASSES: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "fixed": bytes,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
}
#: Unions that are one number in Spark.
WIDENED = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


class Types:
    """Makes the types of a reader's schema, and finds the records that need a mark. Raises ConnectorError for what Spark has not."""

    def __init__(self, tree: AvroTree) -> None:
        self._tree = tree
        self._count = 0
        #: The marks of the records in unions of several types, by their full names.
        self.marks: dict[str, int] = {}

    def of(self, node: Node) -> Typed:
        self._count += 1
        if self._count > TYPES_MAX:
            raise ConnectorError(f"the schema has more than {TYPES_MAX} types", "name the fields: columns=value.FIELD")
        kind, node = self._tree.kind(node), self._tree.definition(node)
        match kind:
            case "union":
                return self._union([branch for branch in node if self._tree.kind(branch) != "null"])
            case "record":
                return _struct([(field["name"], self.of(field["type"])) for field in node["fields"]])
            case "array":
                return _array(self.of(node["items"]))
            case "map":
                return _map(self.of(node["values"]))
        logical = node.get("logicalType") if isinstance(node, dict) else None
        if logical == "decimal" and kind in ("bytes", "fixed") and node.get("precision"):
            return _decimal(int(node["precision"]), int(node.get("scale") or 0))
        return LOGICAL.get((kind, str(logical)), PRIMITIVES[kind])

    def _union(self, branches: list[Node]) -> Typed:
        kinds = [self._tree.kind(branch) for branch in branches]
        if len(branches) < 2:
            return self.of(branches[0]) if branches else PRIMITIVES["null"]
        if word := WIDENED.get(frozenset(kinds)):
            return PRIMITIVES[word]
        members = [(f"member{index}", self.of(branch)) for index, branch in enumerate(branches)]
        by_class: dict[type, int] = {}
        by_mark: dict[int, int] = {}
        for index, (kind, branch) in enumerate(zip(kinds, branches, strict=True)):
            if kind == "record":
                name = self._tree.definition(branch)["name"]
                by_mark[self.marks.setdefault(name, len(self.marks))] = index
            elif by_class.setdefault(CLASSES[kind], index) != index:
                raise ConnectorError(
                    f"the schema has a union of {kinds[by_class[CLASSES[kind]]]} and {kind} among others, whose values look the same",
                    "name fields without it: columns=value.FIELD",
                )
        return _members(members, by_class, by_mark)


def _struct(fields: list[tuple[str, Typed]]) -> Typed:
    changes = [(name, each.convert) for name, each in fields if each.convert is not None]

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        made = dict(row)  # a default is the same object in all rows
        for name, change in changes:
            value = made.get(name)
            if value is not None:
                made[name] = change(value)
        return made

    return Typed(
        f"STRUCT<{', '.join(f'{_quoted(name)}: {each.sql}' for name, each in fields)}>",
        pa.struct([(name, each.read) for name, each in fields]),
        pa.struct([(name, each.arrow) for name, each in fields]),
        convert if changes else None,
    )


def _array(item: Typed) -> Typed:
    change = item.convert

    def convert(values: list[Any]) -> list[Any]:
        assert change is not None
        return [None if value is None else change(value) for value in values]

    return Typed(f"ARRAY<{item.sql}>", pa.list_(item.read), pa.list_(item.arrow), change and convert)


def _map(value: Typed) -> Typed:
    change = value.convert

    def convert(values: dict[str, Any]) -> list[tuple[str, Any]]:
        if change is None:
            return list(values.items())
        return [(key, None if each is None else change(each)) for key, each in values.items()]

    read, arrow = (pa.map_(pa.string(), each) for each in (value.read, value.arrow))
    return Typed(f"MAP<STRING, {value.sql}>", read, arrow, convert)


def _members(members: list[tuple[str, Typed]], by_class: dict[type, int], by_mark: dict[int, int]) -> Typed:
    """A union of several types is a struct in which one member is not null, as from_avro has it."""

    def convert(value: Any) -> dict[str, Any]:
        is_marked = isinstance(value, dict) and MARK in value
        name, member = members[by_mark[value[MARK]] if is_marked else by_class[type(value)]]
        return {name: value if member.convert is None else member.convert(value)}

    return _struct([(name, each._replace(convert=None)) for name, each in members])._replace(convert=convert)


def _decimal(precision: int, scale: int) -> Typed:
    if precision > DIGITS_MAX:
        raise ConnectorError(f"the schema has a decimal of {precision} digits, and Spark has {DIGITS_MAX} at most")
    limit, context = 10**precision, Context(prec=DIGITS_MAX)

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= limit:
            raise ValueError(f"a decimal has more than {precision} digits")
        return Decimal(number).scaleb(-scale, context)

    kind = pa.decimal128(precision, scale)
    return Typed(f"DECIMAL({precision}, {scale})", kind, kind, convert)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
