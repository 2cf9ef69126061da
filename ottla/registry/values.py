"""Values in the wire format of registries: a magic byte, the id of a schema, and the value's bytes in Avro, JSON or Protobuf.

    0x00  int32 id    payload          Confluent's format; Protobuf's payload begins with the indexes of its message
    0x01  16 bytes    payload          the same with the GUID of the schema, of newer serializers in a header of the record

What is decoded is plain JSON: bytes are text of one character per byte, as in Avro's own JSON, times are ISO 8601, and numbers
that JSON has no type for are text.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.protocol.records.record import Record
from ottla.registry.client import AVRO, JSON_SCHEMA, RegistryClient, RegistryFailed, Schema

MAGIC_ID = 0
MAGIC_GUID = 1
ID_BYTES = 5
GUID_BYTES = 17
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
#: More indexes than a message can be nested deep are no value of Protobuf.
INDEXES_MAX = 100
READERS_MAX = 1_024
MISSING = "decoding {} needs `pip install 'ottla[registry]'`"

Read = Callable[[bytes], Any]


class DecodeFailed(Exception):
    """The bytes are no value of their schema, or their schema cannot be had. The text is for the user."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value as plain JSON, the format it had (AVRO, JSON, PROTOBUF), and the id of its schema."""

    value: Any
    kind: str
    schema_id: int

    def text(self) -> str:
        return json.dumps(self.value, ensure_ascii=False, separators=(",", ":"))


class Decoder:
    """Decodes values whose schemas a registry has. Schemas are read once."""

    def __init__(self, client: RegistryClient) -> None:
        self.client = client
        self._readers: dict[int, tuple[str, Read]] = {}
        self._guids: dict[bytes, int] = {}

    async def decode(
        self, data: bytes | None, headers: Sequence[tuple[str, bytes | None]] = (), *, is_key: bool = False
    ) -> Decoded | None:
        """Decode the key or value of a record; None if it is not in the wire format.

        Raises:
            DecodeFailed: it has the format, but not its schema's bytes, or the registry does not answer.
        """
        if data is None:
            return None
        schema_id, payload = await self._split(data, dict(headers).get(KEY_HEADER if is_key else VALUE_HEADER))
        if schema_id is None:
            return None
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = await asyncio.to_thread(self._reader, schema_id)
            while len(self._readers) >= READERS_MAX:
                del self._readers[next(iter(self._readers))]
            self._readers[schema_id] = reader
        kind, read = reader
        try:
            return Decoded(read(payload), kind, schema_id)
        except DecodeFailed:
            raise
        except Exception as fault:  # of three libraries, each with its own
            raise DecodeFailed(
                f"the bytes are no value of schema {schema_id}: {fault or type(fault).__name__}"
            ) from None

    async def record(self, record: Record) -> Record:
        """Return the record with JSON in place of a key and value that are in the wire format.

        Raises:
            DecodeFailed: as `decode`.
        """
        key = await self.decode(record.key, record.headers, is_key=True)
        value = await self.decode(record.value, record.headers)
        if key is None and value is None:
            return record
        return record._replace(
            key=record.key if key is None else key.text().encode("utf-8", "surrogatepass"),
            value=record.value if value is None else value.text().encode("utf-8", "surrogatepass"),
        )

    async def _split(self, data: bytes, header: bytes | None) -> tuple[int | None, bytes]:
        if header is not None:
            if header[:1] == b"\0" and len(header) == ID_BYTES:
                return int.from_bytes(header[1:], "big"), data
            if header[:1] == b"\1" and len(header) == GUID_BYTES:
                return await self._id_of(header[1:]), data
        if len(data) >= ID_BYTES and data[0] == MAGIC_ID:
            return int.from_bytes(data[1:ID_BYTES], "big"), data[ID_BYTES:]
        return None, data

    async def _id_of(self, guid: bytes) -> int:
        if guid not in self._guids:
            try:
                rows = await asyncio.to_thread(self.client.get, f"/schemas/guids/{uuid.UUID(bytes=guid)}/ids")
                self._guids[guid] = int(rows[0]["id"])
            except (RegistryFailed, LookupError, TypeError) as fault:
                raise DecodeFailed(str(fault)) from None
        return self._guids[guid]

    def _reader(self, schema_id: int) -> tuple[str, Read]:
        try:
            schema = self.client.schema(schema_id)
        except RegistryFailed as fault:
            raise DecodeFailed(fault.message) from None
        return schema.kind, reader_of(schema)


def reader_of(schema: Schema) -> Read:
    """Return what decodes the payloads of a schema to plain JSON.

    Raises:
        DecodeFailed: the schema is not valid, or the library of its format is not installed.
    """
    try:
        if schema.kind == AVRO:
            return _avro_reader(schema)
        if schema.kind == JSON_SCHEMA:
            return json.loads
        return _protobuf_reader(schema)
    except ImportError:
        raise DecodeFailed(MISSING.format(schema.kind)) from None
    except DecodeFailed:
        raise
    except Exception as fault:  # of two libraries, each with its own
        raise DecodeFailed(f"the schema is not valid: {fault or type(fault).__name__}") from None


def _avro_reader(schema: Schema) -> Read:
    import io

    import fastavro

    named: dict[str, Any] = {}
    for text in schema.dependencies.values():
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)

    def read(payload: bytes) -> Any:
        return plain(fastavro.schemaless_reader(io.BytesIO(payload), parsed, None))

    return read


def _protobuf_reader(schema: Schema) -> Read:
    from google.protobuf import json_format, message_factory

    from ottla.registry.formats.proto_descriptor import DEFAULT_NAME
    from ottla.registry.formats.proto_schema import ProtobufSchema

    pool = ProtobufSchema(schema.text, schema.dependencies).pool()
    file = pool.FindFileByName(DEFAULT_NAME)

    def read(payload: bytes) -> Any:
        indexes, rest = message_indexes(payload)
        found = list(file.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            found = found.nested_types[index]
        message = message_factory.GetMessageClass(found)()
        message.ParseFromString(rest)
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

    return read


def message_indexes(payload: bytes) -> tuple[list[int], bytes]:
    """Return the position of a message in its file, outermost first, and the bytes after it."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return [0], payload[at:]
    if not 0 < count <= INDEXES_MAX:
        raise DecodeFailed(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        if index < 0:
            raise DecodeFailed(f"message index {index}")
        indexes.append(index)
    return indexes, payload[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise DecodeFailed("the message indexes end too early")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def plain(value: Any) -> Any:
    """Return a value of Avro's library as plain JSON."""
    match value:
        case dict():
            return {key: plain(row) for key, row in value.items()}
        case list():
            return [plain(row) for row in value]
        case bytes():
            return value.decode("latin-1")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
    return value
