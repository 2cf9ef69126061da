"""An encoder of JSON by the schemas of a registry, into the wire format of its serializers: 0x00, the id of the schema as
int32, and the bytes in Avro, JSON or Protobuf.

A registry chooses the schema and a user the value, so this too is done in a separate process with bounded time and memory.

    a question of the process:    JSON {"text", "kind", "dependencies", "message"}, and the JSON of the value
    its answer:                   "+" and the bytes after the id, or "-" and the reason
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from ottla.registry.client import AVRO, JSON_SCHEMA, Schema
from ottla.registry.guarded_process import GuardedProcesses, ProcessEnded, serve
from ottla.registry.values import BAD, GOOD, reason_of
from ottla.server.installation import install

VALUE_S_MAX = 5.0
#: Kafka's records are at most 1 MiB by default.
TEXT_BYTES_MAX = 4 * 1024 * 1024


class EncodeFailed(Exception):
    """The JSON is no value of the schema, or the schema cannot be used. The text is for the user."""


class Encoder:
    """Encodes values one by one. `close` ends its processes."""

    def __init__(self, value_s: float = VALUE_S_MAX) -> None:
        self._processes = GuardedProcesses(__name__, value_s)

    async def close(self) -> None:
        await self._processes.close()

    async def encode(self, schema_id: int, schema: Schema, text: str, message: str = "") -> bytes:
        """Return the bytes of a value that is given as JSON.

        `message` is the full name of a message of Protobuf; by default it is the first one.

        Raises:
            EncodeFailed: the text is no JSON or no value of the schema, or it takes too long.
        """
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > TEXT_BYTES_MAX:
            raise EncodeFailed(f"the JSON has {len(data)} bytes, more than {TEXT_BYTES_MAX}")
        question = {
            "text": schema.text,
            "kind": schema.kind,
            "dependencies": schema.dependencies,
            "message": message,
        }
        try:
            async with self._processes.taken() as process:
                await process.ask(filter(None, (json.dumps(question).encode(), data)), self._processes.answer_s)
                answer = await process.receive(self._processes.answer_s)
        except ProcessEnded as fault:
            raise EncodeFailed(f"the value cannot be encoded: {fault}") from None
        if answer[:1] != GOOD:
            raise EncodeFailed(answer[1:].decode("utf-8", "replace"))
        return b"\0" + schema_id.to_bytes(4, "big") + answer[1:]


# -- In a process of its own ---------------------------------------------------------------------------------------------


def encoded(schema: Schema, text: str, message: str) -> bytes:
    """Return the bytes of a value after the id of its schema.

    Raises:
        EncodeFailed: the text is no value of the schema, or the library of its format is not installed.
    """
    try:
        if schema.kind == AVRO:
            return _avro(schema, text)
        if schema.kind == JSON_SCHEMA:
            return _json(schema, text)
        return _protobuf(schema, text, message)
    except ImportError:
        raise EncodeFailed(f"encoding {schema.kind} needs `{install('registry')}`") from None


def read_json(text: str, **options: Any) -> Any:
    """Return the value of a JSON text.

    Raises:
        EncodeFailed: the text is no JSON.
    """

    def reject(word: str) -> NoReturn:
        raise EncodeFailed(f"{word} is no JSON")

    try:
        return json.loads(text, parse_constant=reject, **options)
    except RecursionError:
        raise EncodeFailed("the value is nested too deeply") from None
    except json.JSONDecodeError as fault:
        raise EncodeFailed(f"no JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}") from None
    except ValueError as fault:
        raise EncodeFailed(f"no JSON: {fault}") from None


def _avro(schema: Schema, text: str) -> bytes:
    from ottla.registry.avro_json import NoSuchValue, avro_writer

    write = avro_writer(schema.text, schema.dependencies)
    try:
        return write(read_json(text, parse_float=Decimal))
    except NoSuchValue as fault:
        raise EncodeFailed(str(fault)) from None


def _json(schema: Schema, text: str) -> bytes:
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    from ottla.registry.formats.json_rules import DEFAULT_DRAFT

    root = json.loads(schema.text)
    default = validator_for({"$schema": DEFAULT_DRAFT})
    validator = validator_for(root, default=default)(root, registry=_references(schema.dependencies))
    fault = best_match(validator.iter_errors(read_json(text)))
    if fault is not None:
        raise EncodeFailed(f"{fault.json_path}: {fault.message}")
    return text.strip().encode()


def _references(dependencies: Mapping[str, str]) -> Any:
    """Return the schemas to which $refs may refer: those that were registered, and the drafts.

    Nothing is loaded from elsewhere.
    """
    from jsonschema_specifications import REGISTRY
    from referencing import Registry, Resource
    from referencing.exceptions import NoSuchResource
    from referencing.jsonschema import DRAFT7

    known = {name: Resource.from_contents(json.loads(text), DRAFT7) for name, text in dependencies.items()}

    def retrieve(uri: str) -> Any:
        for name, resource in known.items():
            if uri == name or uri.endswith(f"/{name}"):  # it is resolved against the $id of the schema that contains it
                return resource
        try:
            return REGISTRY[uri]
        except NoSuchResource:
            raise NoSuchResource(ref=uri) from None

    return Registry(retrieve=retrieve)


def _protobuf(schema: Schema, text: str, message: str) -> bytes:
    from google.protobuf import json_format, message_factory

    from ottla.registry.formats.proto_schema import ProtobufSchema

    parsed = ProtobufSchema(schema.text, schema.dependencies)
    indexes = parsed.message_indexes(message)
    if indexes is None:
        raise EncodeFailed(f"the schema has no message {message!r}" if message else "the schema has no message")
    pool = parsed.pool()
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(parsed.message_name(indexes)))()
    read_json(text)
    try:
        json_format.Parse(text, made, descriptor_pool=pool)
    except json_format.ParseError as fault:
        raise EncodeFailed(str(fault)) from None
    return written_indexes(indexes) + bytes(made.SerializeToString())


def written_indexes(indexes: list[int]) -> bytes:
    """Return the position of a message in its file as serializers write it: zigzag numbers, and a single byte for the first
    message.
    """
    if indexes == [0]:
        return b"\0"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def _zigzag(number: int) -> bytes:
    left, written = number << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


def answers(parts: list[bytes]) -> Iterator[bytes | None]:
    """Answer one question of the process."""
    question: Mapping[str, Any] = json.loads(parts[0])
    text = b"".join(parts[1:]).decode("utf-8", "replace")
    schema = Schema(question["text"], question["kind"], (), question["dependencies"])
    try:
        yield GOOD + encoded(schema, text, question["message"])
    except EncodeFailed as fault:
        yield BAD + reason_of(fault)
    except Exception as fault:  # errors of three libraries, each with its own classes
        yield BAD + b"the value cannot be encoded by its schema: " + reason_of(fault)


if __name__ == "__main__":
    serve(answers)
