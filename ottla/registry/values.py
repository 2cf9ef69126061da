"""The payloads of registry values are decoded by the schemas that they name. It runs in the decoder's process (decoder.py).

The result is plain JSON: bytes are text of one character per byte, as in Avro's own JSON, times are ISO 8601, and numbers
without a type in JSON are text.

    a question of the process:    JSON {"forget", "schemas": {id: schema}, "values": [[id, bytes], ...], "chars_max", "cut"},
                                  and the payloads of the values, one after the other
    its answers:                  one for each schema and then one for each value: "+" and its JSON, or "-" and the reason
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.registry.client import AVRO, JSON_SCHEMA, Schema
from ottla.registry.guarded_process import serve
from ottla.server.installation import install

#: A message cannot be nested deeper, so bytes with more indexes are no Protobuf value.
INDEXES_MAX = 100
GOOD, BAD = b"+", b"-"
#: A reason is cut to this length, because libraries quote the bytes.
REASON_CHARS_MAX = 300

Read = Callable[[bytes], Any]

#: `json.dumps` with options would make a new encoder for each value.
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class DecodeFailed(Exception):
    """The bytes are no value of their schema, or the schema cannot be used. The text is for the user."""


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A value as JSON text, its format (AVRO, JSON, PROTOBUF), and the id of its schema."""

    text: str
    kind: str
    schema_id: int


def reader_of(schema: Schema) -> Read:
    """Return a function that decodes the payloads of a schema to plain JSON.

    Raises:
        DecodeFailed: the schema is not valid, or the library of its format is not installed.
    """
    try:
        if schema.kind == AVRO:
            from ottla.registry.avro_values import avro_reader

            return avro_reader(schema.text, schema.dependencies)
        if schema.kind == JSON_SCHEMA:
            return json.loads
        return _protobuf_reader(schema)
    except ImportError:
        raise DecodeFailed(f"decoding {schema.kind} needs `{install('registry')}`") from None
    except DecodeFailed:
        raise
    except Exception as fault:  # errors of two libraries, each with its own classes
        raise DecodeFailed(f"the schema is not valid: {fault or type(fault).__name__}") from None


def _protobuf_reader(schema: Schema) -> Read:
    from google.protobuf import json_format, message_factory

    from ottla.registry.formats.proto_schema import ProtobufSchema

    parsed = ProtobufSchema(schema.text, schema.dependencies)
    pool = parsed.pool()

    def read(payload: bytes) -> Any:
        indexes, rest = message_indexes(payload)
        found = pool.FindMessageTypeByName(parsed.message_name(indexes))
        message = message_factory.GetMessageClass(found)()
        message.ParseFromString(rest)
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

    return read


def message_indexes(payload: bytes) -> tuple[list[int], bytes]:
    """Return the path of a message in its file, the outermost index first, and the bytes after it."""
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


# -- In a process of its own ---------------------------------------------------------------------------------------------


class Answers:
    """Answer the questions in one process. It keeps the schemas."""

    def __init__(self) -> None:
        self._readers: dict[int, Read | DecodeFailed] = {}

    def __call__(self, parts: list[bytes]) -> Iterator[bytes | None]:
        asked, payloads, at = json.loads(parts[0]), b"".join(parts[1:]), 0
        if asked["forget"]:
            self._readers.clear()
        for schema_id, row in asked["schemas"].items():
            try:
                self._readers[int(schema_id)] = reader_of(Schema(row["text"], row["kind"], (), row["dependencies"]))
                yield GOOD
            except DecodeFailed as fault:
                self._readers[int(schema_id)] = fault
                yield BAD + reason_of(fault)
            yield None  # send the answers so far, because the next value may kill the process
        for schema_id, size in asked["values"]:
            yield self._value(schema_id, payloads[at : at + size], asked["chars_max"], asked["cut"])
            at += size

    def _value(self, schema_id: int, payload: bytes, chars_max: int, cut: bool) -> bytes:
        read = self._readers[schema_id]
        if isinstance(read, DecodeFailed):
            return BAD + reason_of(read)
        try:
            text = _JSON.encode(read(payload))
        except DecodeFailed as fault:
            return BAD + reason_of(fault)
        except Exception as fault:  # errors of three libraries, each with its own classes
            return BAD + b"the bytes are no value of schema %d: " % schema_id + reason_of(fault)
        if len(text) > chars_max and not cut:
            return BAD + b"its JSON has %d characters, more than %d" % (len(text), chars_max)
        return GOOD + text[:chars_max].encode("utf-8", "surrogatepass")


def reason_of(fault: Exception) -> bytes:
    """Return the reason of a failure for an answer."""
    if isinstance(fault, MemoryError):
        return b"it takes too much memory"
    return (str(fault) or type(fault).__name__)[:REASON_CHARS_MAX].encode("utf-8", "backslashreplace")


if __name__ == "__main__":
    serve(Answers())
