"""JSON becomes a typed column, by a given JSON Schema or one of a registry. msgspec reads only the fields of the schema, and
names a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from ottla.columns.assembling import assembled
from ottla.columns.avro.blocks import merged
from ottla.columns.json_types import JsonTypes
from ottla.columns.wire import HEAD_BYTES, MAGIC, Framed, Malformed, Writers

PREFIX = bytes([MAGIC])


class JsonColumn:
    """Decodes one column. A value may begin with the id of a schema, which is skipped; no JSON begins with such bytes.

    With writers' schemas each value has to name one of them.
    """

    def __init__(self, text: str, dependencies: Mapping[str, str] = {}, writers: Writers[bool] | None = None) -> None:
        """Take the JSON Schema, and by name the schemas that it refers to. Raises ColumnsError if it is not valid."""
        self._writers = writers
        typed = JsonTypes(text, dependencies).typed()
        self._node = typed.node
        self.kind: pa.DataType = typed.node.kind
        self._read = msgspec.json.Decoder(typed.read).decode

    def decoded(self, raw: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return the column, and a reason for each value that is null in it because it is no JSON, or does not fit.

        Raises:
            RegistryWaits: the registry cannot be asked.
        """
        wrong = self._unnamed(raw)
        parts = assembled(self._node, self._objects(raw, wrong), wrong)
        return merged(parts, len(raw), self.kind), wrong

    def _objects(self, raw: pa.Array, wrong: dict[int, str]) -> Iterator[tuple[int, object]]:
        """Yield the object in the JSON of each row. Add the reasons of rows that have none."""
        read = self._read
        for row, data in enumerate(raw.to_pylist()):
            if data is None or row in wrong:
                continue
            try:
                yield row, read(memoryview(data)[HEAD_BYTES:] if data[:1] == PREFIX else data)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as fault:
                wrong[row] = str(fault)

    def _unnamed(self, raw: pa.Array) -> dict[int, str]:
        """Return the reasons of values that name no schema, or an unknown one."""
        if self._writers is None:
            return {}
        framed = Framed(raw)
        wrong = framed.wrong()
        for values in framed.by_schema():
            try:
                self._writers.get(values.schema_id)
            except Malformed as fault:
                wrong |= dict.fromkeys(values.rows.tolist(), str(fault))
        return wrong
