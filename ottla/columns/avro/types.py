"""The types of Arrow for types of Avro, by the rules of Spark's from_avro.

Arrow reads most of what fastavro returns as it is. Types that it cannot read (maps, decimals, unions of several types) have a
converter, and so have all types that contain them. Values of other schemas need no step in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.columns.avro.tree import MARK, AvroTree, Node
from ottla.columns.batches import ColumnsError

#: The most digits of a decimal in Spark, Iceberg and Delta.
DIGITS_MAX = 38
#: The most types of a column, with nested ones: a short schema can name types that contain each other many times.
TYPES_MAX = 10_000
Convert = Callable[[Any], Any]


class Typed(NamedTuple):
    """A type of the values that are read (`read`), the type in the column (`arrow`), and the conversion from the first to the
    second.

    `convert` is never called with None. `parts` are the types inside: a record's fields, a list's items, a map's values, and the members
    of a union of several types.
    """

    read: pa.DataType
    arrow: pa.DataType
    convert: Convert | None = None
    parts: tuple[tuple[str, Typed], ...] = ()


def _same(arrow: pa.DataType) -> Typed:
    return Typed(arrow, arrow)


PRIMITIVES = {
    "null": _same(pa.null()),
    "boolean": _same(pa.bool_()),
    "int": _same(pa.int32()),
    "long": _same(pa.int64()),
    "float": _same(pa.float32()),
    "double": _same(pa.float64()),
    "bytes": _same(pa.binary()),
    "string": _same(pa.string()),
    "enum": _same(pa.string()),
    "fixed": _same(pa.binary()),
}
#: Logical types, each with the type that carries it. All other logical types are read as the type that carries them, as Spark
#: does it.
LOGICAL = {
    ("int", "date"): _same(pa.date32()),
    ("long", "timestamp-millis"): Typed(pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    ("long", "timestamp-micros"): _same(pa.timestamp("us", "UTC")),
    ("long", "local-timestamp-millis"): Typed(pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "local-timestamp-micros"): _same(pa.timestamp("us")),
}
#: The Python types that fastavro returns. They distinguish the branches of a union, unless several are records.
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
#: Unions that become one type of number.
WIDENED = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


class Types:
    """Makes the types of a reader's schema, and finds the records that need a mark.

    Raises ColumnsError if no column can have a type.
    """

    def __init__(self, tree: AvroTree) -> None:
        self._tree = tree
        self._count = 0
        #: The marks of the records in unions of several types, by their full names.
        self.marks: dict[str, int] = {}

    def of(self, node: Node) -> Typed:
        self._count += 1
        if self._count > TYPES_MAX:
            raise ColumnsError(f"the schema has more than {TYPES_MAX} types")
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
                raise ColumnsError(
                    f"the schema has a union of {kinds[by_class[CLASSES[kind]]]} and {kind} among others, whose values look the same"
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
        pa.struct([(name, each.read) for name, each in fields]),
        pa.struct([(name, each.arrow) for name, each in fields]),
        convert if changes else None,
        tuple(fields),
    )


def _array(item: Typed) -> Typed:
    change = item.convert

    def convert(values: list[Any]) -> list[Any]:
        assert change is not None
        return [None if value is None else change(value) for value in values]

    return Typed(pa.list_(item.read), pa.list_(item.arrow), change and convert, (("item", item),))


def _map(value: Typed) -> Typed:
    change = value.convert

    def convert(values: dict[str, Any]) -> list[tuple[str, Any]]:
        if change is None:
            return list(values.items())
        return [(key, None if each is None else change(each)) for key, each in values.items()]

    read, arrow = (pa.map_(pa.string(), each) for each in (value.read, value.arrow))
    return Typed(read, arrow, convert, (("value", value),))


def _members(members: list[tuple[str, Typed]], by_class: dict[type, int], by_mark: dict[int, int]) -> Typed:
    """Return the column of a union of several types: a struct in which one member is not null, as with from_avro."""

    def convert(value: Any) -> dict[str, Any]:
        is_marked = isinstance(value, dict) and MARK in value
        name, member = members[by_mark[value[MARK]] if is_marked else by_class[type(value)]]
        return {name: value if member.convert is None else member.convert(value)}

    made = _struct([(name, each._replace(convert=None)) for name, each in members])
    return made._replace(convert=convert, parts=tuple(members))


def _decimal(precision: int, scale: int) -> Typed:
    if precision > DIGITS_MAX:
        raise ColumnsError(f"the schema has a decimal of {precision} digits, and columns have {DIGITS_MAX} at most")
    limit, context = 10**precision, Context(prec=DIGITS_MAX)

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= limit:
            raise ValueError(f"a decimal has more than {precision} digits")
        return Decimal(number).scaleb(-scale, context)

    kind = pa.decimal128(precision, scale)
    return Typed(kind, kind, convert)
