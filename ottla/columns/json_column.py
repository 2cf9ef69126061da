"""JSON to a typed column, by a JSON Schema that is given or a registry's. msgspec reads only what the schema names, and says what does not fit."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa

from ottla.columns.assembling import fitting
from ottla.columns.avro.blocks import Chosen, merged
from ottla.columns.json_types import JsonTypes
from ottla.columns.wire import HEAD_BYTES, MAGIC, Framed, Malformed, Writers

PREFIX = bytes([MAGIC])


class JsonColumn:
    """Decodes one column. Values may begin with the id of a schema, which JSON never does: it is passed over.

    With writers' schemas each value has to name one of them.
    """

    def __init__(self, text: str, dependencies: Mapping[str, str] = {}, writers: Writers[bool] | None = None) -> None:
        """Raises ColumnsError for a schema that is not valid."""
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
        rows: list[int] = []
        values: list[object] = []
        read = self._read
        for row, data in enumerate(raw.to_pylist()):
            if data is None or row in wrong:
                continue
            if data[:1] == PREFIX:
                data = memoryview(data)[HEAD_BYTES:]
            try:
                values.append(read(data))
                rows.append(row)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as fault:
                wrong[row] = str(fault)
        places, arrays = fitting(self._node, rows, values, wrong)
        if not arrays:
            return pa.nulls(len(raw), self.kind), wrong
        whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        return merged([Chosen(np.array(places, np.int64), whole)], len(raw), self.kind), wrong

    def _unnamed(self, raw: pa.Array) -> dict[int, str]:
        """Return the reasons of values that name no schema, or one that is not known."""
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
