"""The kinds of records that are translated: the way in which their values are made, their schema, and their columns in a
table.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import fastavro

from ottla.registry.client import AVRO, JSON_SCHEMA, Schema
from ottla.server.config.tables.topic_tables import BY_REGISTRY, BYTES, JSON

SCHEMA_ID = 1
JSON_BYTES = 1000
CURRENCIES, STATES = ("EUR", "USD", "CZK", "PLN"), ("NEW", "PAID", "SENT", "BACK")


class Kind(NamedTuple):
    """Records of one kind: their form in the table, their number, and the goals for one core of this process."""

    name: str
    form: str
    #: Returns one value.
    value: Callable[[random.Random], bytes]
    schema: Schema | None
    rows: int
    #: The goals: MB or rows a second, whichever is set, and CPU seconds of a GB of values.
    mb_per_s_min: float | None = None
    rows_per_s_min: float | None = None
    cpu_per_gb_max: float | None = None

    def values(self) -> Iterator[bytes]:
        chance = random.Random(self.name)
        return (self.value(chance) for _ in range(self.rows))


class OneSchema:
    """Stands for a client of a registry that has one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def version(self, subject: str) -> dict[str, int]:
        return {"id": SCHEMA_ID}

    def schema(self, schema_id: int, subject: str = "") -> Schema:
        return self._schema


def words(count: int) -> str:
    """Return a text that zstd compresses to a third."""
    chance = random.Random(5)
    known = ["".join(chance.choices("etaoinshrdlu", k=chance.randrange(2, 9))) for _ in range(500)]
    return " ".join(chance.choices(known, k=count))


TEXT = words(200_000)


def order(chance: random.Random) -> dict[str, Any]:
    return {
        "order_id": f"{chance.getrandbits(128):032x}",
        "customer": chance.randrange(1_000_000),
        "amount": chance.randrange(100_000) / 100,
        "currency": chance.choice(CURRENCIES),
        "quantity": chance.randrange(1, 10),
        "created": 1_790_000_000_000 + chance.randrange(10**9),
        "status": chance.choice(STATES),
        "note": None if chance.random() < 0.5 else part_of_text(chance, 60),
        "address": {
            "street": part_of_text(chance, 28),
            "city": part_of_text(chance, 8),
            "zip": chance.randrange(10_000, 99_999),
        },
        "gift": chance.random() < 0.1,
    }


def part_of_text(chance: random.Random, length: int) -> str:
    start = chance.randrange(len(TEXT) - length)
    return TEXT[start : start + length]


ADDRESS = {"type": "record", "name": "Address", "fields": [
    {"name": "street", "type": "string"}, {"name": "city", "type": "string"}, {"name": "zip", "type": "int"}]}  # fmt: skip
ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "order_id", "type": "string"}, {"name": "customer", "type": "long"}, {"name": "amount", "type": "double"},
    {"name": "currency", "type": "string"}, {"name": "quantity", "type": "int"},
    {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": [*STATES]}},
    {"name": "note", "type": ["null", "string"], "default": None}, {"name": "address", "type": ADDRESS}, {"name": "gift", "type": "boolean"},
]}  # fmt: skip
#: A map and a union of several types have no plan by which all values are read at once: fastavro reads them one by one.
LOOSE = {"type": "record", "name": "Loose", "fields": [
    {"name": "order_id", "type": "string"}, {"name": "customer", "type": "long"},
    {"name": "tags", "type": {"type": "map", "values": "long"}}, {"name": "paid_by", "type": ["null", "string", "long", "double"]},
]}  # fmt: skip
_PARSED = {"order": fastavro.parse_schema(ORDER), "loose": fastavro.parse_schema(LOOSE)}


def avro_order(chance: random.Random) -> bytes:
    return framed("order", order(chance))


def avro_loose(chance: random.Random) -> bytes:
    tags = {part_of_text(chance, 6): chance.randrange(1000) for _ in range(3)}
    paid_by = chance.choice((None, part_of_text(chance, 12), chance.randrange(10**6), chance.random()))
    row = order(chance)
    return framed("loose", {"order_id": row["order_id"], "customer": row["customer"], "tags": tags, "paid_by": paid_by})


def framed(schema: str, row: dict[str, Any]) -> bytes:
    """Return the row in the wire format of registries."""
    out = io.BytesIO()
    out.write(b"\0" + SCHEMA_ID.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, _PARSED[schema], row)
    return out.getvalue()


def json_order(chance: random.Random) -> bytes:
    row = order(chance) | {"text": ""}
    missing = JSON_BYTES - len(json.dumps(row))
    return json.dumps(row | {"text": part_of_text(chance, missing)}).encode()


TEXTS = {"type": "string"}
JSON_ORDER = {"type": "object", "properties": {
    "order_id": TEXTS, "customer": {"type": "integer"}, "amount": {"type": "number"}, "currency": TEXTS,
    "quantity": {"type": "integer"}, "created": {"type": "integer"}, "status": TEXTS, "note": {"type": ["string", "null"]},
    "address": {"type": "object", "properties": {"street": TEXTS, "city": TEXTS, "zip": {"type": "integer"}}},
    "gift": {"type": "boolean"}, "text": TEXTS,
}}  # fmt: skip

KINDS = (
    Kind("bytes, 1 KB", BYTES, json_order, None, 150_000, mb_per_s_min=80, cpu_per_gb_max=12.5),
    Kind(
        "Avro of 140 B by the registry",
        BY_REGISTRY,
        avro_order,
        Schema(json.dumps(ORDER), AVRO),
        600_000,
        rows_per_s_min=200_000,
        cpu_per_gb_max=32,
    ),
    Kind(
        "JSON, 1 KB",
        JSON,
        json_order,
        Schema(json.dumps(JSON_ORDER), JSON_SCHEMA),
        150_000,
        mb_per_s_min=40,
        cpu_per_gb_max=24,
    ),
    Kind(
        "Avro with a map and a union of types",
        BY_REGISTRY,
        avro_loose,
        Schema(json.dumps(LOOSE), AVRO),
        100_000,
        rows_per_s_min=40_000,
    ),
)
