"""Values that are read at once equal those that fastavro reads one by one: with random schemas, other writers, and hostile
bytes.
"""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from tests.effort import LONG
from tests.needs import needs_packages

needs_packages("pyarrow", "fastavro")

import pyarrow as pa

from ottla.columns.avro.column import AvroColumn
from tests.ottla.columns.avro.values import READER_ID, Shelf, framed, reader_schema, record, written

#: The seeds of schemas that are tried; all seeds would take minutes.
SEEDS = 1_000 if LONG else 12
VALUES = 150
LEAVES = (
    "null", "boolean", "int", "long", "float", "double", "bytes", "string",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 4},
)  # fmt: skip
WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}


class SchemaMaker:
    """Random schemas, values of them without fastavro's own types, and readers' schemas that differ from a writer's schema."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._names = 0

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [(f"f{number}", self.type(depth + 1)) for number in range(self.chance.randint(1, 6))]
        return record(*fields, name=self._name())

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def type(self, depth: int) -> Any:
        chance = self.chance
        if depth > 3 or chance.random() < 0.5:
            return chance.choice(LEAVES)
        match chance.randrange(7):
            case 0:
                return self.record(depth)
            case 1:
                return {"type": "array", "items": record(("x", "int"), ("y", self.type(depth + 1)), name=self._name())}
            case 2:
                return {"type": "map", "values": self.type(depth + 1)}
            case 3:
                size = chance.choice((1, 5, 12, 16))
                return chance.choice(
                    (
                        {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]},
                        {"type": "fixed", "name": self._name(), "size": size},
                        {"type": "fixed", "name": self._name(), "size": size, "logicalType": "decimal", "precision": 2},
                    )
                )
            case 4:
                found = ["null", self.type(4)]
                chance.shuffle(found)
                return found if found.count("null") == 1 else "string"
            case 5:
                return chance.choice((["int", "null", "long"], ["float", "double"]))
        several = [
            "null",
            "boolean",
            "string",
            chance.choice(("int", "long")),
            "bytes",
            self.record(depth),
            {"type": "array", "items": "int"},
        ]
        return chance.sample(several, chance.randint(2, 5))

    def encoded(self, node: Any, out: bytearray, named: dict[str, Any]) -> None:
        """Append a value of the type. Numbers are often small, sometimes at their limits."""
        chance = self.chance
        if isinstance(node, list):
            branch = chance.randrange(len(node))
            _long(out, branch)
            self.encoded(node[branch], out, named)
            return
        if isinstance(node, str) and node in named:
            node = named[node]
        kind = node if isinstance(node, str) else node["type"]
        match kind:
            case "boolean":
                out.append(chance.randrange(2))
            case "int":
                _long(
                    out, chance.choice((0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31), chance.randrange(-(10**6), 10**6)))
                )
            case "long":
                _long(
                    out,
                    chance.choice(
                        (0, -1, 10**12, chance.randrange(-(2**45), 2**45), chance.choice((2**63 - 1, -(2**63))))
                    ),
                )
            case "float" | "double":
                out += chance.randbytes(3 if kind == "float" else 7) + b"\x3f"
            case "bytes" | "string":
                text = "".join(chance.choices("aé∂𝛿 ", k=chance.choice((0, 1, 3, 90)))).encode()
                data = text if kind == "string" else chance.randbytes(chance.choice((0, 1, 3, 4, 8, 9, 13)))
                if "logicalType" in node and chance.random() < 0.8:
                    number = chance.randrange(-(10**9) + 1, 10**9)
                    data = number.to_bytes(chance.choice((4, 5, 8, 12)), "big", signed=True)
                _long(out, len(data))
                out += data
            case "fixed":
                small = chance.randrange(-99, 100).to_bytes(node["size"], "big", signed=True)
                out += small if chance.random() < 0.8 else chance.randbytes(node["size"])
            case "enum":
                _long(out, chance.randrange(len(node["symbols"])))
            case "array" | "map":
                for count in (*(chance.randint(1, 3) for _ in range(chance.randrange(3))), 0):
                    items = bytearray()
                    for _ in range(count):
                        if kind == "map":
                            items += bytes((2, chance.choice(b"abcdefghijk")))
                        self.encoded(node["items" if kind == "array" else "values"], items, named)
                    if count and chance.random() < 0.3:
                        _long(out, -count)
                        _long(out, len(items))
                    else:
                        _long(out, count)
                    out += items
            case "record":
                named[node["name"]] = node
                for field in node["fields"]:
                    self.encoded(field["type"], out, named)

    def changed(self, node: Any) -> Any:
        """Return a reader's type for a writer's type."""
        chance = self.chance
        if isinstance(node, list):
            found = [self.changed(branch) for branch in node]
            return found if len({json.dumps(each) for each in found}) == len(found) else node
        if isinstance(node, str):
            return chance.choice(WIDER[node]) if node in WIDER and chance.random() < 0.3 else node
        match node["type"]:
            case "record":
                fields = [
                    {**field, "type": self.changed(field["type"])} for field in node["fields"] if chance.random() < 0.8
                ]
                fields += [
                    {"name": "more", "type": ["null", "string"], "default": None},
                    {"name": "one", "type": "long", "default": 1},
                ]
                chance.shuffle(fields)
                return {**node, "fields": fields}
            case "array":
                return {**node, "items": self.changed(node["items"])}
            case "map":
                return {**node, "values": self.changed(node["values"])}
            case "enum":
                return {**node, "symbols": ["C", "A"], **({"default": "A"} if chance.random() < 0.5 else {})}
        return node


def _long(out: bytearray, value: int) -> None:
    rest = (value << 1 ^ value >> 63) & (1 << 64) - 1
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def plain(array: pa.Array) -> list[Any]:
    """Return each value without what Python cannot compare: times become numbers, because Python does not have all of them, and
    others become text, because nan is not equal to itself.
    """
    kind = array.type
    if pa.types.is_timestamp(kind):
        return plain(array.view(pa.int64()))
    if pa.types.is_date(kind):
        return plain(array.view(pa.int32()))
    is_null = array.is_null().to_pylist()
    if pa.types.is_struct(kind):
        found: list[Any] = [*zip(*map(plain, array.flatten()), strict=True)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        is_map = pa.types.is_map(kind)
        items = [*zip(plain(array.keys), plain(array.items), strict=True)] if is_map else plain(array.values)
        found = [items[first:end] for first, end in itertools.pairwise(array.offsets.to_pylist())]
    else:
        return [repr(each) for each in array.to_pylist()]
    return [None if null else each for null, each in zip(is_null, found, strict=True)]


def compared(column: AvroColumn, values: list[bytes | None], schema_id: int) -> int:
    """Assert that the plan's rows and reasons are those of reading one by one. Return how many values the plan has read."""
    raw = pa.array(values, pa.binary())
    writer = column.writers.get(schema_id)
    left: list[int] = []

    class Counted(AvroColumn):
        def _one_by_one(self, framed: Any, which: int, how: Any, rows: Any, wrong: dict[int, str]) -> Any:
            left.append(len(rows))
            return super()._one_by_one(framed, which, how, rows, wrong)

    column.__class__ = Counted
    found, wrong = column.decoded(raw)
    column.__class__ = AvroColumn
    column.writers.keep(schema_id, writer._replace(plan=None))
    expected, expected_wrong = column.decoded(raw)
    column.writers.keep(schema_id, writer)
    found.validate(full=True)
    assert wrong == expected_wrong
    assert found.type == expected.type
    assert plain(found) == plain(expected)
    return len(values) - sum(left)


def column_of(reader: Any, *writers: Any) -> AvroColumn:
    client: Any = Shelf(*writers)
    return AvroColumn(reader_schema(reader), client)


def _made(seed: int) -> tuple[SchemaMaker, Any, list[bytes]]:
    """A schema that a column can have, and payloads of it."""
    for attempt in range(100):
        maker = SchemaMaker(seed * 1_000 + attempt)
        schema = maker.record()
        try:
            reader_schema(schema).prepared()
        except Exception:
            continue
        payloads = []
        for _ in range(VALUES):
            out = bytearray()
            maker.encoded(schema, out, {})
            payloads.append(bytes(out))
        return maker, schema, payloads
    raise AssertionError(seed)


def test_values_of_random_schemas_are_the_same_rows_as_one_by_one() -> None:
    at_once = 0
    for seed in range(SEEDS):
        _, schema, payloads = _made(seed)
        values: list[bytes | None] = [framed(each) for each in payloads]
        values[7] = None
        at_once += compared(column_of(schema), values, READER_ID)
    assert at_once > SEEDS * VALUES * 0.7


def test_values_of_other_writers_are_the_same_rows_as_one_by_one() -> None:
    at_once = 0
    for seed in range(SEEDS):
        maker, schema, payloads = _made(seed)
        column = column_of(maker.changed(schema), schema)
        at_once += compared(column, [framed(each, READER_ID + 1) for each in payloads], READER_ID + 1)
    assert at_once > SEEDS * VALUES * 0.3


def test_hostile_bytes_are_the_same_rows_and_reasons_as_one_by_one_and_hurt_no_other_value() -> None:
    for seed in range(SEEDS):
        maker, schema, payloads = _made(seed)
        chance, values = maker.chance, []
        for payload in payloads:
            data = bytearray(payload)
            if chance.random() < 0.4:
                match chance.randrange(3):
                    case 0:
                        data = data[: chance.randrange(len(data) + 1)]
                    case 1:
                        at = chance.randrange(len(data) + 1)
                        data[at : at + 1] = chance.choice(
                            (b"\xff" * 9 + b"\x01", b"\xff" * 12, b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x80")
                        )
                    case 2:
                        data = bytearray(chance.randbytes(chance.randrange(30)))
            values.append(framed(bytes(data)))
        compared(column_of(schema), values, READER_ID)


LYING = {
    "an array of 2^60 items": ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x80\x80\x80\x80\x20" + b"\x02" * 50),
    "a block of -2^63 items": ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01" + b"\x02" * 50),
    "a map of more entries than bytes": ({"type": "map", "values": "int"}, b"\x80\x01" + b"\x02" * 30),
    "a string of 2^62 bytes": ("string", b"\xfe" + b"\xff" * 8 + b"\x00abc"),
    "a string of -1 bytes": ("string", b"\x01abc"),
    "a number without an end": ("long", b"\xff" * 40),
    "a branch of 2^40": (["null", "int"], b"\x80\x80\x80\x80\x80\x40"),
    "a symbol of -1": ({"type": "fixed", "name": "F", "size": 9}, b"\x01"),
}  # fmt: skip


@pytest.mark.parametrize("name", LYING)
def test_a_count_or_a_length_that_lies_is_the_reason_of_its_own_value(name: str) -> None:
    kind, lie = LYING[name]
    schema = record(("id", "int"), ("x", kind), ("after", "int"))
    column = column_of(schema)
    good = _valid(schema)
    values: list[bytes | None] = [framed(good)] * 200
    values[17], values[199] = framed(b"\2" + lie), framed(b"\2" + lie)
    compared(column, values, READER_ID)
    made, wrong = column.decoded(pa.array(values, pa.binary()))
    assert set(wrong) <= {17, 199}
    assert made.field("id").to_pylist()[:17] == made.field("id").to_pylist()[18:35]


def _valid(schema: Any) -> bytes:
    out = bytearray()
    SchemaMaker(1).encoded(schema, out, {})
    return bytes(out)


def test_one_long_list_among_short_ones_is_not_read_in_steps_of_one_value() -> None:
    schema = record(("x", {"type": "array", "items": "int"}))
    long = b"\x80\x89\x7a" + b"\x02" * 1_000_000 + b"\0"
    column = column_of(schema)
    values = [framed(b"\x02\x02\0")] * 500 + [framed(long)]
    made, wrong = column.decoded(pa.array(values, pa.binary()))
    assert not wrong and len(made.field("x")[500]) == 1_000_000


def test_long_lists_of_few_values_are_not_read_in_steps_of_a_few_items() -> None:
    schema = record(("x", {"type": "array", "items": "int"}))
    values: list[bytes | None] = [framed(b"\xd8\x04" + b"\2" * 300 + b"\0")] * 100
    assert compared(column_of(schema), values, READER_ID) == 0
    assert compared(column_of(schema), values * 3, READER_ID) == 300


def test_lists_within_lists_are_read_however_deep() -> None:
    deep: Any = "int"
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    expected: Any = 1
    for _ in range(60):
        expected = [expected]
    values = [framed(b"\2" * 60 + b"\2" + b"\0" * 60)] * 300
    made, wrong = column_of(record(("x", deep))).decoded(pa.array(values, pa.binary()))
    assert not wrong and made[299].as_py() == {"x": expected}


def test_what_has_no_plan_is_read_all_the_same() -> None:
    column = column_of(record(("x", "string")), record(("x", "bytes")))
    assert column.writers.get(READER_ID + 1).plan is None
    values = [written(record(("x", "bytes")), {"x": b"a"}, READER_ID + 1)] * 100
    made, wrong = column.decoded(pa.array(values, pa.binary()))
    assert not wrong and made.to_pylist() == [{"x": "a"}] * 100
