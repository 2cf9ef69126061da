"""The registry's schemas that columns are read with."""

from __future__ import annotations

import json
from typing import NamedTuple

from ottla.columns.avro.tree import AvroTree
from ottla.columns.avro.types import Typed, Types
from ottla.columns.batches import ColumnsError
from ottla.registry.client import AVRO, Schema
from ottla.registry.formats.avro_text import resolved


class ReaderSchema(NamedTuple):
    """The schema that a column is read with.

    It can be pickled: `text` is the JSON with all definitions. `fields` are the fields to read; without any, all are read.
    """

    column: str
    subject: str
    schema_id: int
    text: str
    fields: tuple[str, ...] = ()

    def prepared(self) -> tuple[AvroTree, Typed, bool]:
        """Return the tree to read with, the column's type, and whether that tree differs from the tree of a writer with the
        same id.

        Raises:
            ColumnsError: the schema is not valid, or no column can have its type.
        """
        try:
            tree = AvroTree(self.text)
            if self.fields:
                tree.prune(self.fields)
            types = Types(tree)
            typed = types.of(tree.top)
        except ColumnsError as fault:
            raise ColumnsError(f"{self.subject} (id {self.schema_id}): {fault}") from None
        tree.strip()
        tree.set_defaults(types.marks)
        return tree, typed, bool(self.fields or types.marks)


def text_of(schema: Schema) -> str:
    """Return the JSON of a registered schema with the definitions of its references.

    Raises ColumnsError if it is no Avro schema.
    """
    if schema.kind != AVRO:
        raise ColumnsError(f"the schema is of {schema.kind}, where Avro is read")
    try:
        return json.dumps(resolved(schema.text, schema.dependencies))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as fault:
        raise ColumnsError(f"the schema is not valid: {fault or type(fault).__name__}") from None
