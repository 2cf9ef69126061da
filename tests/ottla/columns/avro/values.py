"""Values of Avro in the wire format of registries, and a registry of their schemas."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from ottla.columns.avro.schemas import ReaderSchema, text_of
from ottla.columns.wire import ID_MISSING
from ottla.registry.client import AVRO, RegistryFailed, Schema

READER_ID = 1


class Shelf:
    """A shelf of schemas that replaces a client of the registry: schemas by id, and the ids that were requested."""

    def __init__(self, *schemas: Any, kind: str = AVRO) -> None:
        self.schemas = {READER_ID + 1 + number: Schema(json.dumps(each), kind) for number, each in enumerate(schemas)}
        self.asked: list[int] = []

    def schema(self, schema_id: int, subject: str = "") -> Schema:
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise RegistryFailed("Schema not found", ID_MISSING)
        return self.schemas[schema_id]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record with these fields: (name, type) or (name, type, default)."""
    rows = [{"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}) for each in fields]
    return {"type": "record", "name": name, "fields": rows, **more}


def written(schema: Any, value: Any, schema_id: int = READER_ID) -> bytes:
    """Return the value in the wire format."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return framed(out.getvalue(), schema_id)


def framed(payload: bytes, schema_id: int = READER_ID) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def reader_schema(schema: Any, *fields: str) -> ReaderSchema:
    text = text_of(Schema(schema if isinstance(schema, str) and schema[:1] in '"{[' else json.dumps(schema)))
    return ReaderSchema("value", "t-value", READER_ID, text, fields)
