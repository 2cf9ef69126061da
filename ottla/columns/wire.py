"""The wire format of registries: a zero byte and the id of the writer's schema (int32) before each value.

Also the cache of writers' schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ottla.columns.batches import ColumnsError
from ottla.columns.layout import Bytes, Numbers
from ottla.registry.client import RegistryClient, RegistryFailed, Schema

MAGIC, HEAD_BYTES = 0, 5
ID_MISSING = 40403
#: The registry's error codes for no such subject, version or id.
MISSING = (40401, 40402, ID_MISSING)
#: The names of subjects in another context than the default one begin with it. There, ids mean other schemas.
CONTEXT = ":."
#: This many schemas are kept, and as many ids without a schema. A schema that was dropped is requested again.
WRITERS_MAX = 1_024
T = TypeVar("T")


class Malformed(Exception):
    """A value cannot be decoded: its bytes or its writer's schema are malformed, or that schema does not fit the reader's."""


class RegistryWaits(ColumnsError):
    """The registry cannot be asked. Nothing is wrong with the values: the same call may succeed later."""


class Writers(Generic[T]):
    """The readers that are made of writers' schemas.

    Each schema is requested once. For an id without a usable schema there is a reason.
    """

    def __init__(self, client: RegistryClient, subject: str, make: Callable[[Schema], T]) -> None:
        """Take the function that makes a reader of a schema. It raises ColumnsError if the schema cannot be used."""
        self._client = client
        self._context = context_of(subject)
        self._make = make
        self._known: dict[int, T | Malformed] = {}

    def keep(self, schema_id: int, made: T) -> None:
        self._known[schema_id] = made

    def is_known(self, schema_id: int) -> bool:
        return schema_id in self._known

    def get(self, schema_id: int) -> T:
        """Return the reader for a schema's id. Raises Malformed; RegistryWaits."""
        known = self._known.get(schema_id)
        if known is None:
            while len(self._known) >= WRITERS_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[schema_id] = self._asked(schema_id)
        if isinstance(known, Malformed):
            raise known
        return known

    def _asked(self, schema_id: int) -> T | Malformed:
        try:
            return self._make(self._client.schema(schema_id, self._context))
        except RegistryFailed as fault:
            if fault.code != ID_MISSING:
                raise RegistryWaits(f"the schema with id {schema_id}: {fault.message}") from None
            return Malformed(f"the schema registry has no schema with id {schema_id}")
        except ColumnsError as fault:
            return Malformed(f"schema {schema_id}: {fault}")


class FramedValues(NamedTuple):
    """Values that begin with the same schema id: their numbers in ascending order, and the begin and end of the bytes behind
    the id.
    """

    schema_id: int
    rows: Numbers
    begins: Numbers
    ends: Numbers


class Framed:
    """The values of a column, by the schemas that they name."""

    def __init__(self, raw: pa.Array) -> None:
        """Take a binary array of values; null is no value."""
        self.raw = raw
        self._count = len(raw)
        _, offsets, data = raw.buffers()
        self.buffer: pa.Buffer | None = data if data is not None and data.size else None
        self.data: Bytes = np.frombuffer(data, np.uint8) if self.buffer is not None else np.zeros(1, np.uint8)
        bounds = (
            np.frombuffer(offsets, np.int32)[raw.offset : raw.offset + self._count + 1].astype(np.int64)
            if self._count
            else np.zeros(1, np.int64)
        )
        self._begins, self._ends = bounds[:-1], bounds[1:]
        valid = np.ones(self._count, np.bool_)
        if raw.null_count:
            valid[np.flatnonzero(_flags(raw.is_null()))] = False
        has_head = (self._ends - self._begins >= HEAD_BYTES) & (self.data.take(self._begins, mode="clip") == MAGIC)
        self._rows: Numbers = np.flatnonzero(valid & has_head)
        self._without: Numbers = np.flatnonzero(valid & ~has_head)

    def wrong(self) -> dict[int, str]:
        """Return the reasons of values that do not name a schema."""
        return {
            row: f"it does not begin with a zero byte and the id of a schema: {self._head(row)}"
            for row in self._without.tolist()
        }

    def by_schema(self) -> Iterator[FramedValues]:
        """Yield the values of each schema, in the order of the schemas' first values."""
        heads = self.data.take(self._begins[self._rows][:, None] + np.arange(1, HEAD_BYTES), mode="clip")
        ids = heads.view(">i4")[:, 0].astype(np.int64) & 0xFFFFFFFF
        found, firsts = np.unique(ids, return_index=True)
        for schema_id in found[np.argsort(firsts)].tolist():
            rows = self._rows if len(found) == 1 else self._rows[ids == schema_id]
            yield FramedValues(schema_id, rows, self._begins[rows] + HEAD_BYTES, self._ends[rows])

    def payload(self, row: int) -> bytes:
        """Return the bytes behind the id."""
        return self.data[self._begins[row] + HEAD_BYTES : self._ends[row]].tobytes()

    def _head(self, row: int) -> str:
        begin, end = int(self._begins[row]), int(self._ends[row])
        return self.data[begin : min(end, begin + HEAD_BYTES)].tobytes().hex() or "no bytes"


def schema_ids(raw: pa.Array) -> set[int]:
    """Return the ids of the schemas that values name."""
    return {values.schema_id for values in Framed(raw).by_schema()}


def _flags(array: pa.Array) -> Any:
    """Return the flags of an array without nulls."""
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)]


def context_of(subject: str) -> str:
    """Return the subject that a request by id has to name, so that the id is looked up in that subject's context."""
    return subject if subject.startswith(CONTEXT) else ""
