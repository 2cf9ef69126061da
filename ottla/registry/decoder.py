"""A decoder of values in the wire format of registries: a magic byte, the id of a schema, and the value's bytes in Avro, JSON
or Protobuf.

    0x00  int32 id    payload          Confluent's format; Protobuf's payload begins with the indexes of its message
    0x01  16 bytes    payload          the same with the GUID of the schema, of newer serializers in a header of the record

A producer chooses the bytes of a record, and the schema too. So the bytes are decoded in a separate process with bounded time
and memory. A value that takes more is not decoded, and the values after it are.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from ottla.protocol.records.record import Record, RecordHeaders
from ottla.registry import values
from ottla.registry.client import RegistryClient, RegistryFailed, Schema
from ottla.registry.guarded_process import GuardedProcess, GuardedProcesses, ProcessEnded
from ottla.registry.values import GOOD, DecodedValue, DecodeFailed

MAGIC_ID = 0
ID_BYTES = 5
GUID_BYTES = 17
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
#: The time limits of one value, and of one schema, in the process.
VALUE_S_MAX = 5.0
#: A value with more characters as JSON is not decoded. Kafka's records are at most 1 MiB by default.
CHARS_MAX = 64 * 1024 * 1024
#: The most questions that processes work on at the same time.
PROCESSES = 2
#: One question to a process has at most this many values, and this many bytes of values.
VALUES_MAX = 4_000
BYTES_MAX = 4 * 1024 * 1024
#: A process keeps this many schemas.
SCHEMAS_MAX = 1_024
#: The error code for a schema that the registry does not have, and the lowest error code for failures of the registry itself.
NO_SUCH_THING, OWN_FAILURE = 40400, 50000


class Encoded(NamedTuple):
    """The key or the value of a record, and the record's headers, which may name its schema."""

    data: bytes | None
    headers: RecordHeaders = ()
    is_key: bool = False


class DecodedRecord(NamedTuple):
    """A record with JSON in place of a key and a value in the wire format.

    `reasons` say why one was not decoded and keeps its bytes.
    """

    record: Record
    reasons: list[str]


class _Value(NamedTuple):
    schema_id: int
    schema: Schema
    payload: bytes


#: The result of a value; None if it is not in the wire format.
Answer = DecodedValue | DecodeFailed | None


class Decoder:
    """Decodes values whose schemas a registry has. Schemas are read once. `close` ends its processes."""

    def __init__(
        self, client: RegistryClient, *, value_s: float = VALUE_S_MAX, chars_max: int = CHARS_MAX, cut: bool = False
    ) -> None:
        """With `cut` a longer JSON is cut after `chars_max` characters; without it, that is a failure."""
        self.client = client
        self._chars_max = chars_max
        self._cut = cut
        self._processes = GuardedProcesses(values.__name__, value_s)
        self._slots = asyncio.Semaphore(PROCESSES)
        self._guids: dict[bytes, int] = {}
        #: The schemas that have crashed a process, with the reason.
        self._unusable: dict[int, str] = {}

    async def close(self) -> None:
        await self._processes.close()

    async def decode(
        self, data: bytes | None, headers: RecordHeaders = (), *, is_key: bool = False
    ) -> DecodedValue | None:
        """Decode the key or value of a record. Return None if it is not in the wire format.

        Raises:
            DecodeFailed: it has the format, but its bytes do not fit the schema, or there is no such schema.
            RegistryFailed: the registry does not answer.
        """
        (answer,) = [each async for some in self.decode_all([Encoded(data, headers, is_key)]) for each in some]
        if isinstance(answer, DecodeFailed):
            raise answer
        return answer

    async def decode_all(self, encoded: Iterable[Encoded]) -> AsyncGenerator[Sequence[Answer], None]:
        """Yield a result for each value, in order. A list has as many results as a process has sent at once.

        Raises:
            RegistryFailed: the registry does not answer, or no process can be started.
        """
        schemas: dict[int | bytes, tuple[int, Schema] | DecodeFailed] = {}
        batch: list[_Value | DecodeFailed | None] = []
        size = 0
        for data, headers, is_key in encoded:
            named = None if data is None else _named(data, headers, is_key)
            if named is None:
                batch.append(None)
            else:
                name, payload = named
                if name not in schemas:
                    schemas[name] = await self._schema(name)
                found = schemas[name]
                batch.append(found if isinstance(found, DecodeFailed) else _Value(*found, payload))
                size += len(payload)
            if len(batch) >= VALUES_MAX or size >= BYTES_MAX:
                async with aclosing(self._answers(batch)) as answers:
                    async for some in answers:
                        yield some
                batch, size = [], 0
        async with aclosing(self._answers(batch)) as answers:
            async for some in answers:
                yield some

    async def records(self, records: Sequence[Record]) -> AsyncGenerator[list[DecodedRecord], None]:
        """Yield the records in order, in lists.

        Raises:
            RegistryFailed: as `decode_all`.
        """
        wanted = (
            part for row in records for part in (Encoded(row.key, row.headers, True), Encoded(row.value, row.headers))
        )
        answers: list[Answer] = []
        left = iter(records)
        async with aclosing(self.decode_all(wanted)) as found:
            # The results are read to their end: a process can only be used again after all its answers were read.
            async for some in found:
                answers += some
                pairs = iter(answers)
                answers = answers[len(answers) // 2 * 2 :]
                if rows := [_with_json(*row) for row in zip(pairs, pairs, left, strict=False)]:
                    yield rows

    # -- Schemas

    async def _schema(self, name: int | bytes) -> tuple[int, Schema] | DecodeFailed:
        """Return the schema of an id or a GUID with its id, or why its values cannot be decoded."""
        try:
            schema_id = name if isinstance(name, int) else await self._id_of(name)
            return schema_id, await asyncio.to_thread(self.client.schema, schema_id)
        except DecodeFailed as fault:
            return fault
        except RegistryFailed as fault:
            return _of_the_value(fault)
        except (LookupError, TypeError, ValueError, RecursionError) as fault:
            return DecodeFailed(f"schema {name!r} of the registry cannot be used: {fault}")

    async def _id_of(self, guid: bytes) -> int:
        if guid not in self._guids:
            try:
                rows = await asyncio.to_thread(self.client.get, f"/schemas/guids/{uuid.UUID(bytes=guid)}/ids")
                found = int(rows[0]["id"])
            except RegistryFailed as fault:
                raise _of_the_value(fault) from None
            except (LookupError, TypeError, ValueError) as fault:
                raise DecodeFailed(f"the registry knows no schema {uuid.UUID(bytes=guid)}: {fault}") from None
            while len(self._guids) >= SCHEMAS_MAX:
                del self._guids[next(iter(self._guids))]
            self._guids[guid] = found
        return self._guids[guid]

    # -- Values

    async def _answers(self, batch: Sequence[_Value | DecodeFailed | None]) -> AsyncGenerator[list[Answer], None]:
        at = 0
        async with aclosing(self._decoded([each for each in batch if isinstance(each, _Value)])) as decoding:
            async for some in decoding:
                answers: list[Answer] = []
                for answer in some:
                    while not isinstance(each := batch[at], _Value):
                        answers.append(each)
                        at += 1
                    answers.append(answer)
                    at += 1
                yield answers
        yield [each for each in batch[at:] if not isinstance(each, _Value)]

    async def _decoded(self, batch: Sequence[_Value]) -> AsyncGenerator[list[DecodedValue | DecodeFailed], None]:
        """Yield the answers of processes. A process that dies has answered for all values before the one that killed it."""
        at, step = 0, len(batch)
        while at < len(batch):
            if (known := self._unusable.get(batch[at].schema_id)) is not None:
                yield [DecodeFailed(known)]
                at += 1
                continue
            async with self._slots:
                at_schema, asked, end = -1, False, self._end(batch, at, step)
                try:
                    async with self._processes.taken() as process:
                        asked = True
                        for schema_id in await self._ask(process, batch[at:end]):
                            at_schema = schema_id
                            await process.receive(self._processes.answer_s)
                        at_schema = -1
                        while at < end:
                            answers = await process.receive_some(self._processes.answer_s)
                            begin, at = at, at + len(answers)
                            yield list(map(_answer, batch[begin:at], answers))
                    step *= 2
                except ProcessEnded as fault:
                    if not asked:
                        raise RegistryFailed(f"the process that decodes has not started: {fault}") from None
                    if at_schema >= 0:
                        self._unusable[at_schema] = f"schema {at_schema} cannot be used: {fault}"
                        while len(self._unusable) > SCHEMAS_MAX:
                            del self._unusable[next(iter(self._unusable))]
                    elif end - at > 1:
                        # it had not sent all its answers: send values one by one, until a question is answered
                        step = 1
                    else:
                        yield [DecodeFailed(f"the bytes are no value of schema {batch[at].schema_id}: {fault}")]
                        at += 1

    def _end(self, batch: Sequence[_Value], at: int, step: int) -> int:
        """Return the end of a question that begins at `at`: after at most `step` values, and before the next schema that has
        crashed a process.
        """
        end = min(len(batch), at + step)
        if not self._unusable:
            return end
        return next((number for number in range(at, end) if batch[number].schema_id in self._unusable), end)

    async def _ask(self, process: GuardedProcess, batch: Sequence[_Value]) -> list[int]:
        """Send these values to a process. Return the schemas that are new to it: it first answers for each of these."""
        wanted = {each.schema_id: each.schema for each in batch}
        forget = len(process.known | wanted.keys()) > SCHEMAS_MAX
        if forget:
            process.known.clear()
        new = [number for number in wanted if number not in process.known]
        process.known.update(new)
        question = {
            "forget": forget,
            "schemas": {
                number: {"text": row.text, "kind": row.kind, "dependencies": row.dependencies}
                for number in new
                for row in (wanted[number],)
            },
            "values": [(each.schema_id, len(each.payload)) for each in batch],
            "chars_max": self._chars_max,
            "cut": self._cut,
        }
        parts = (json.dumps(question).encode(), b"".join(each.payload for each in batch))
        await process.ask(filter(None, parts), self._processes.answer_s)
        return new


def names_schema(encoded: Encoded) -> bool:
    """Return whether a key or value is in the wire format of registries."""
    data = encoded.data
    return data is not None and _named(data[:ID_BYTES], encoded.headers, encoded.is_key) is not None


def _named(data: bytes, headers: RecordHeaders, is_key: bool) -> tuple[int | bytes, bytes] | None:
    """Return the id or the GUID of the schema of a key or value, and the payload; None if the bytes are not in the wire format."""
    if headers and (header := dict(headers).get(KEY_HEADER if is_key else VALUE_HEADER)) is not None:
        if header[:1] == b"\0" and len(header) == ID_BYTES:
            return int.from_bytes(header[1:], "big"), data
        if header[:1] == b"\1" and len(header) == GUID_BYTES:
            return header[1:], data
    if len(data) >= ID_BYTES and data[0] == MAGIC_ID:
        return int.from_bytes(data[1:ID_BYTES], "big"), data[ID_BYTES:]
    return None


def _with_json(key: Answer, value: Answer, record: Record) -> DecodedRecord:
    reasons = [str(each) for each in (key, value) if isinstance(each, DecodeFailed)]
    return DecodedRecord(record._replace(key=_shown(key, record.key), value=_shown(value, record.value)), reasons)


def _shown(answer: Answer, data: bytes | None) -> bytes | None:
    return answer.text.encode("utf-8", "surrogatepass") if isinstance(answer, DecodedValue) else data


def _answer(value: _Value, answer: bytes) -> DecodedValue | DecodeFailed:
    text = answer[1:].decode("utf-8", "surrogatepass")
    return DecodedValue(text, value.schema.kind, value.schema_id) if answer[:1] == GOOD else DecodeFailed(text)


def _of_the_value(fault: RegistryFailed) -> DecodeFailed:
    """Return the failure of one value if the registry has responded that it has no such schema.

    Raises:
        RegistryFailed: no value can be decoded.
    """
    if not NO_SUCH_THING <= fault.code < OWN_FAILURE and fault.code != 404:
        raise fault
    return DecodeFailed(fault.message)
