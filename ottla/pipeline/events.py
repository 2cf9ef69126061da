"""The event, its two encodings, and the table of rules that decides whether a row is good. It uses neither Spark nor a clock.

A value is JSON, or Avro in the frame that schema registries use: a zero byte, the schema's id in four bytes, the body.
Fields this table does not know are ignored and optional ones may be absent, so producers can add and remove fields
without stopping the stream.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import SchemaParseException

from ottla.pipeline.errors import PipelineError

AVRO_MAGIC = b"\x00"
AVRO_FRAME = struct.Struct(">bi")
SHIPPED_SCHEMAS = str(Path(__file__).parent / "schemas")
#: A longer duration than a day is a bug of the sender.
DURATION_MS_MAX = 86_400_000


class Reason(StrEnum):
    """The reason why a row is a dead letter."""

    EMPTY = "empty"
    MALFORMED_JSON = "malformed-json"
    MALFORMED_AVRO = "malformed-avro"
    UNKNOWN_SCHEMA = "unknown-schema"
    MISSING_FIELD = "missing-field"
    WRONG_TYPE = "wrong-type"
    OUT_OF_RANGE = "out-of-range"
    TOO_LATE = "too-late"
    IN_THE_FUTURE = "in-the-future"


class Event(NamedTuple):
    event_id: str
    event_time_ms: int
    user: str
    page: str
    duration_ms: int
    referrer: str | None = None


class RejectedEvent(NamedTuple):
    """An invalid row: `reason` is counted, and the detail is for readers."""

    reason: Reason
    detail: str


class Rule(NamedTuple):
    name: str
    type: type
    required: bool
    holds: Callable[[Any], bool]


#: The rule of each field. A test compares the rules with the shipped schemas.
RULES = (
    Rule("event_id", str, True, lambda text: 0 < len(text) <= 64),
    Rule("event_time_ms", int, True, lambda ms: 0 <= ms < 1 << 52),
    Rule("user", str, True, lambda text: 0 < len(text) <= 256),
    Rule("page", str, True, lambda text: text.startswith("/")),
    Rule("duration_ms", int, True, lambda ms: 0 <= ms <= DURATION_MS_MAX),
    Rule("referrer", str, False, lambda text: True),
)


#: Avro schemas as JSON text by id. They travel to executors as text, because these do not have the driver's folders.
Schemas = Mapping[int, str]


@cache
def load_schemas(folder: str) -> Schemas:
    """Read the schemas, and parse each once: a broken schema would turn good events into dead letters, one by one."""
    found = {int(file.stem): file.read_text() for file in Path(folder).glob("*.avsc") if file.stem.isdigit()}
    for schema_id, text in found.items():
        try:
            parsed(text)
        except (ValueError, SchemaParseException) as error:
            raise PipelineError(f"{folder}/{schema_id}.avsc is no Avro schema: {error}", remedy="correct it") from None
    if not found:
        raise PipelineError(f"there is no Avro schema in {folder}", remedy="name the files <id>.avsc")
    return found


@cache
def parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def judge(value: bytes | None, kafka_time_ms: int, limits: Limits) -> Event | RejectedEvent:
    """Decode and validate one value.

    Lateness is measured by Kafka's timestamp, not by the reader's clock, so that the verdict is the same in every run.
    """
    if not value:
        return RejectedEvent(Reason.EMPTY, "the record has no value")
    found = from_avro(value, limits.schemas) if value[:1] == AVRO_MAGIC else from_json(value)
    if isinstance(found, RejectedEvent):
        return found
    verdict = validated(found)
    if isinstance(verdict, RejectedEvent):
        return verdict
    late_ms = kafka_time_ms - verdict.event_time_ms
    if late_ms > limits.max_lateness_ms:
        return RejectedEvent(Reason.TOO_LATE, f"{late_ms} ms old, allowed are {limits.max_lateness_ms}")
    if -late_ms > limits.max_ahead_ms:
        return RejectedEvent(Reason.IN_THE_FUTURE, f"{-late_ms} ms ahead, allowed are {limits.max_ahead_ms}")
    return verdict


class Limits(NamedTuple):
    """The part of the configuration that `judge` needs. It is small, because it is sent to every executor."""

    schemas: Schemas
    max_lateness_ms: int
    max_ahead_ms: int


def validated(found: dict[str, Any]) -> Event | RejectedEvent:
    values: dict[str, Any] = {}
    for rule in RULES:
        value = found.get(rule.name)
        if value is None:
            if rule.required:
                return RejectedEvent(Reason.MISSING_FIELD, rule.name)
            continue
        if type(value) is not rule.type:  # not isinstance, because True is an int
            return RejectedEvent(Reason.WRONG_TYPE, f"{rule.name} is {type(value).__name__}, not {rule.type.__name__}")
        if not (is_text(value) and rule.holds(value)):
            return RejectedEvent(Reason.OUT_OF_RANGE, f"{rule.name} = {value!r:.80}")
        values[rule.name] = value
    return Event(**values)


def is_text(value: Any) -> bool:
    """Return whether a table can store the text. JSON can spell half a surrogate pair, and no table can store that."""
    return not isinstance(value, str) or value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def from_json(value: bytes) -> dict[str, Any] | RejectedEvent:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        return RejectedEvent(Reason.MALFORMED_JSON, str(error)[:200])
    if not isinstance(found, dict):
        return RejectedEvent(Reason.WRONG_TYPE, f"the value is {type(found).__name__}, not an object")
    return found


def from_avro(value: bytes, schemas: Schemas) -> dict[str, Any] | RejectedEvent:
    if len(value) < AVRO_FRAME.size:
        return RejectedEvent(Reason.MALFORMED_AVRO, f"{len(value)} bytes: the frame alone has {AVRO_FRAME.size}")
    schema_id = AVRO_FRAME.unpack_from(value)[1]
    writer = schemas.get(schema_id)
    if writer is None:
        return RejectedEvent(Reason.UNKNOWN_SCHEMA, f"no schema has the id {schema_id}")
    body = io.BytesIO(value[AVRO_FRAME.size :])
    try:
        found = fastavro.schemaless_reader(body, parsed(writer), None)
    except Exception as error:  # for malformed bytes the decoder raises many kinds of errors
        return RejectedEvent(Reason.MALFORMED_AVRO, f"{type(error).__name__}: {error}"[:200])
    if body.read(1):
        return RejectedEvent(Reason.MALFORMED_AVRO, "bytes are left behind the last field")
    return found if isinstance(found, dict) else RejectedEvent(Reason.WRONG_TYPE, "the schema is not of a record")


def to_json(event: Event) -> bytes:
    return json.dumps({name: value for name, value in event._asdict().items() if value is not None}).encode()


def to_avro(event: Event, schema_id: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed(load_schemas(SHIPPED_SCHEMAS)[schema_id]), event._asdict())
    return AVRO_FRAME.pack(0, schema_id) + out.getvalue()
