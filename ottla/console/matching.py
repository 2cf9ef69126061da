"""The query of a page of records, and the records that match it: texts are compared here, expressions and JSON paths in a
separate process.

Values of a schema registry are decoded before expressions and paths look at them; a text is searched in the bytes that were
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.consumer import Consumed
from ottla.console.record_view import Decoded
from ottla.console.value_filter import NOT_SEEN, RECORDS_MAX, YES, Expressions, ValueFilter
from ottla.protocol.records.record import Record

#: One turn of the event loop compares this many records with texts.
COMPARED_AT_ONCE = 5_000
#: The ways in which the text of a filter is compared.
CONTAINS, WHOLE, REGEX = "contains", "whole", "regex"
KEY_WAYS = (CONTAINS, WHOLE, REGEX)
VALUE_WAYS = (CONTAINS, REGEX)

#: Returns the decoded keys and values of records, by their bytes.
Decode = Callable[[Sequence[Record]], Awaitable[Decoded]]


class Found(NamedTuple):
    """A record and its partition."""

    partition: int
    record: Record


@dataclass(frozen=True)
class Query:
    """The records that a page asks for.

    `at` is the offset or time to start at, and `until` the time before which records are wanted. `after` and `before` are an
    offset for each partition.
    """

    topic: str
    partition: int | None = None
    start: str = "newest"
    at: str = ""
    until: str = ""
    limit: int = 50
    key: str = ""
    key_by: str = CONTAINS
    value: str = ""
    value_by: str = CONTAINS
    header: str = ""
    path: str = ""
    after: Mapping[int, int] | None = None
    before: Mapping[int, int] | None = None

    @property
    def is_filtered(self) -> bool:
        return bool(self.key or self.value or self.header or self.path)

    @property
    def goes_back(self) -> bool:
        return self.after is None and (self.before is not None or self.start == "newest")

    @property
    def expressions(self) -> Expressions | None:
        """Return the part of the query that a process has to compare, or None if there is none."""
        key = self.key if self.key_by == REGEX else ""
        value = self.value if self.value_by == REGEX else ""
        return Expressions(key, value, self.path) if key or value or self.path else None

    def has_texts(self, record: Record) -> bool:
        """Return whether a record contains the wanted texts in its key, its value, and the value of a header."""
        if self.key and self.key_by != REGEX:
            key = self.key.encode()
            if record.key is None or (record.key != key if self.key_by == WHOLE else key not in record.key):
                return False
        if self.value and self.value_by != REGEX and (record.value is None or self.value.encode() not in record.value):
            return False
        name, equals, wanted = self.header.partition("=")
        return not name or any(
            found == name and (not equals or (data is not None and wanted.encode() in data))
            for found, data in record.headers
        )


class RecordFilter:
    """The filter of one reader. `close` ends its process."""

    def __init__(self, query: Query, decode: Decode | None = None) -> None:
        """Take the function that decodes values of a registry.

        Raises:
            Failure: an expression or the JSON path of the query is malformed.
        """
        self._query = query
        self._decode = decode
        expressions = query.expressions
        self._values = None if expressions is None else ValueFilter(expressions)
        #: The number of records that were not compared: they are too large, or their schema cannot be used.
        self.not_seen = 0

    async def close(self) -> None:
        if self._values is not None:
            await self._values.close()

    async def hits(self, consumed: Consumed) -> list[Found]:
        """Return the records that match.

        Raises:
            Failure: the expressions take too long.
        """
        hits = []
        for number, record in enumerate(consumed.records, 1):
            if self._query.has_texts(record):
                hits.append(record)
            if not number % COMPARED_AT_ONCE:
                await asyncio.sleep(0)
        if self._values is not None:
            parts = [hits[at : at + RECORDS_MAX] for at in range(0, len(hits), RECORDS_MAX)]
            hits = [record for part in parts for record in await self._looked_into(self._values, part)]
        return [Found(consumed.partition, record) for record in hits]

    async def _looked_into(self, values: ValueFilter, records: list[Record]) -> list[Record]:
        decoded = {} if self._decode is None else await self._decode(records)
        verdicts = await values.verdicts([(_read(row.key, decoded), _read(row.value, decoded)) for row in records])
        unreadable = [data for data, (_, text) in decoded.items() if text is None]
        self.not_seen += verdicts.count(NOT_SEEN) + len(unreadable)
        return [record for record, verdict in zip(records, verdicts, strict=True) if verdict == YES]


def _read(data: bytes | None, decoded: Decoded) -> bytes | None:
    """Return the decoded text of bytes with a schema, and other bytes as they are."""
    if data is None or data not in decoded:
        return data
    text = decoded[data][1]
    return data if text is None else text.encode("utf-8", "surrogatepass")
