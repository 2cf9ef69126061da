"""How values of a writer's schema are read at once as the reader's column: Avro's schema resolution, done once for each writer.

A plan covers the cases on which all implementations agree: fields in another order, fields that only one side has, wider
numbers, branches of unions that the other side has under the same name. All other cases (aliases, bytes that become text, a
plain type that became a union) have no plan, and are read value by value.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ottla.columns.avro.steps import (
    AvroStep,
    BooleanStep,
    BytesStep,
    ConstantStep,
    DecimalStep,
    EnumStep,
    FloatStep,
    ItemsStep,
    LongStep,
    MapStep,
    NullStep,
    RecordStep,
    UnionStep,
)
from ottla.columns.avro.tree import AvroTree, Node
from ottla.columns.avro.types import WIDENED, Typed, Types
from ottla.columns.batches import ColumnsError

#: The types that a number of each type may be read as.
WIDER = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
}
#: Groups of types within which a writer's value may become another type.
EXCHANGED = (frozenset(WIDER), frozenset(("bytes", "string")))


class NoPlan(Exception):
    """There is no plan: the values are read one by one."""


def plan_of(writer: AvroTree, reader: AvroTree, typed: Typed) -> AvroStep | None:
    """Return the step that reads the column, or None. Both trees are as `ReaderSchema.prepared` leaves them."""
    try:
        return Plans(writer, reader).step(writer.top, reader.top, typed)
    except (NoPlan, RecursionError):
        return None


class Plans:
    """Makes the steps for one writer's schema and one reader's schema."""

    def __init__(self, writer: AvroTree, reader: AvroTree) -> None:
        self._writer, self._reader = writer, reader

    def step(self, written: Node, read: Node, typed: Typed) -> AvroStep:
        """Return the step of a type. Raises NoPlan."""
        kind, wanted = self._writer.kind(written), self._reader.kind(read)
        if kind == "union":
            return self._union(written, read, typed)
        if wanted == "union":
            raise NoPlan
        written, read = self._writer.definition(written), self._reader.definition(read)
        if kind in WIDER:
            return _number(kind, wanted, typed)
        if kind != wanted:
            raise NoPlan
        if kind in ("record", "enum", "fixed") and written["name"] != read["name"]:
            raise NoPlan
        match kind:
            case "null":
                return NullStep(typed.arrow)
            case "boolean":
                return BooleanStep()
            case "bytes" | "string":
                return DecimalStep(typed.arrow) if pa.types.is_decimal(typed.arrow) else BytesStep(typed.arrow)
            case "fixed":
                if written["size"] != read["size"]:
                    raise NoPlan
                is_decimal = pa.types.is_decimal(typed.arrow)
                return (DecimalStep if is_decimal else BytesStep)(typed.arrow, int(written["size"]))
            case "enum":
                known = {*read["symbols"]}
                return EnumStep([each if each in known else read.get("default") for each in written["symbols"]])
            case "array":
                return ItemsStep(self.step(written["items"], read["items"], _part(typed, 0)), typed.arrow)
            case "map":
                return MapStep(self.step(written["values"], read["values"], _part(typed, 0)), typed.arrow)
        assert kind == "record", kind
        return self._record(written, read, typed)

    def _record(self, written: Node, read: Node, typed: Typed) -> AvroStep:
        if any("aliases" in field for field in read["fields"]):
            raise NoPlan
        wanted = {field["name"]: field for field in read["fields"]}
        places = {name: place for place, (name, _) in enumerate(typed.parts)}
        steps: list[tuple[AvroStep, int | None]] = []
        for field in written["fields"]:
            name = field["name"]
            if name in places:
                place = places.pop(name)
                steps.append((self.step(field["type"], wanted[name]["type"], _part(typed, place)), place))
            else:
                steps.append((self._passed(field["type"]), None))
        return RecordStep(
            typed.arrow, steps, [(place, _default(wanted[name], _part(typed, place))) for name, place in places.items()]
        )

    def _passed(self, written: Node) -> AvroStep:
        """Return the step that reads a field that the reader does not have."""
        try:
            typed = Types(self._writer).of(written)
        except ColumnsError:
            raise NoPlan from None
        return Plans(self._writer, self._writer).step(written, written, typed)

    def _union(self, written: list[Node], read: Node, typed: Typed) -> AvroStep:
        is_union = self._reader.kind(read) == "union"
        branches: list[Node] = read if is_union else [read]
        members = [branch for branch in branches if self._reader.kind(branch) != "null"]
        is_struct = len(members) > 1 and frozenset(map(self._reader.kind, members)) not in WIDENED
        steps: list[AvroStep | None] = []
        numbers: list[int | None] = []
        for branch in written:
            kind = self._writer.kind(branch)
            if kind == "null":
                has_null = len(members) < len(branches)
                steps.append(NullStep(pa.null()) if has_null else None)
                numbers.append(None)
                continue
            place = self._member(branch, kind, members)
            if place is None:
                steps.append(None)
                numbers.append(None)
                continue
            part = _part(typed, place) if is_struct else typed
            if len(members) > 1 and not is_struct:
                steps.append(_number(kind, self._wider(typed), typed))
                numbers.append(0)
            else:
                steps.append(self.step(branch, members[place], part))
                numbers.append(place)
        return UnionStep(typed.arrow, steps, numbers, is_struct)

    @staticmethod
    def _wider(typed: Typed) -> str:
        return "long" if typed.arrow == pa.int64() else "double"

    def _member(self, branch: Node, kind: str, members: list[Node]) -> int | None:
        """Return the member that a branch becomes, or None if each of its values has to be read alone. Raises NoPlan."""
        name = self._name(self._writer, branch, kind)
        group = next((group for group in EXCHANGED if kind in group), frozenset((kind,)))
        for place, member in enumerate(members):
            other = self._reader.kind(member)
            if other == kind and self._name(self._reader, member, other) == name:
                return place
            if other in group and other != kind:  # the first member that a value can become is taken
                if len(members) == 1 and kind in WIDER and other in WIDER[kind]:
                    return place
                if {other, kind} <= {"int", "long"} or {other, kind} <= {"float", "double"}:
                    continue
                return None
        return None

    @staticmethod
    def _name(tree: AvroTree, node: Node, kind: str) -> str | None:
        return tree.definition(node)["name"] if kind in ("record", "enum", "fixed") else None


def _part(typed: Typed, place: int) -> Typed:
    return typed.parts[place][1]


def _number(kind: str, wanted: str, typed: Typed) -> AvroStep:
    if kind not in WIDER or wanted not in WIDER[kind]:
        raise NoPlan
    if kind in ("int", "long"):
        return LongStep(typed.read, typed.arrow)
    return FloatStep(4 if kind == "float" else 8, typed.arrow)


def _default(field: Any, typed: Typed) -> AvroStep:
    if "default" not in field:
        raise NoPlan
    value = field["default"]
    if value is not None and typed.convert is not None:
        value = typed.convert(value)
    try:
        made = pa.array([value], typed.read)
        return ConstantStep(made if typed.read == typed.arrow else made.cast(typed.arrow))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise NoPlan from None
