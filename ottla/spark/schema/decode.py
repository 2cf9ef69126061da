"""The decoded columns of the table `schema`, in one of from_avro's modes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ottla.columns.avro.column import AvroColumn
from ottla.columns.avro.schemas import ReaderSchema
from ottla.columns.wire import RegistryWaits
from ottla.registry.client import RegistryClient
from ottla.spark.errors import ConnectorError


class ColumnDecoder:
    """Decodes one column for one task."""

    def __init__(self, schema: ReaderSchema, client: RegistryClient, *, is_strict: bool) -> None:
        """Take the mode.

        With `is_strict` a malformed value raises ConnectorError; otherwise it becomes null, or a struct of nulls.
        """
        self._name = schema.column
        self._column = AvroColumn(schema, client)
        self._is_strict = is_strict

    def array(self, column: pa.Array, where: Callable[[int], str]) -> pa.Array:
        """Return the decoded column. `where` names a row for an error message.

        Raises:
            ConnectorError: the registry cannot be reached; or a value is malformed, in FAILFAST mode.
        """
        try:
            made, wrong = self._column.decoded(column)
        except RegistryWaits as fault:
            raise ConnectorError(str(fault)) from None
        if wrong and self._is_strict:
            row = min(wrong)
            raise ConnectorError(
                f"{where(row)}: the {self._name} cannot be decoded: {wrong[row]}",
                "with mode=PERMISSIVE such a value is null",
            )
        return made if not wrong or not pa.types.is_struct(made.type) else _not_null(made, wrong)


def _not_null(structs: pa.Array, rows: dict[int, str]) -> pa.Array:
    """Return the structs with those of these rows not null; only their fields are null."""
    is_null = [each and row not in rows for row, each in enumerate(structs.is_null().to_pylist())]
    return pa.StructArray.from_arrays(structs.flatten(), fields=list(structs.type), mask=pa.array(is_null, pa.bool_()))
