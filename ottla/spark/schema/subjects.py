"""Requests to the schema registry: readers' schemas on the driver, once for a query, and writers' on executors, by id."""

from __future__ import annotations

import json
import ssl
from typing import NamedTuple

from ottla.registry.client import AVRO, RegistryClient, RegistryFailed, Schema
from ottla.registry.formats.avro_text import resolved
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.schema.options import CONFIG, SchemaOptions
from ottla.spark.schema.tree import AvroTree
from ottla.spark.schema.types import Typed, Types

ID_MISSING = 40403
#: No such subject, version, id.
MISSING = (40401, 40402, ID_MISSING)
#: Subjects of a context that is not the default one, in which ids mean other schemas, begin with it.
CONTEXT = ":."


class ReaderSchema(NamedTuple):
    """The schema that a column is read with. It is pickled: `text` is the JSON with all definitions, `fields` those that are read, or none."""

    column: str
    subject: str
    schema_id: int
    text: str
    fields: tuple[str, ...] = ()

    def prepared(self) -> tuple[AvroTree, Typed, bool]:
        """Return the tree to read with, the column's type, and whether a writer's tree of the same id would be another one.

        Raises:
            ConnectorError: the schema is not valid, or Spark has no such type.
        """
        try:
            tree = AvroTree(self.text)
            if self.fields:
                tree.prune(self.fields)
            types = Types(tree)
            typed = types.of(tree.top)
        except ConnectorError as fault:
            raise ConnectorError(f"{self.subject} (id {self.schema_id}): {fault}") from None
        tree.strip()
        tree.set_defaults(types.marks)
        return tree, typed, bool(self.fields or types.marks)


def client_of(options: SchemaOptions) -> RegistryClient:
    """Return a client of the registry. Raises ConnectorError if the certificates or the file of the login cannot be read."""
    if options.config:
        try:
            return RegistryClient.of(options.url, options.config)
        except (OSError, ValueError) as fault:
            raise ConnectorError(f"option {CONFIG}: {fault}", "the file has to be there on executors as well") from None
    try:
        return RegistryClient(options.url, user=options.user, password=options.password, ca_file=options.ca_file)
    except (OSError, ssl.SSLError) as fault:
        raise ConnectorError(
            f"{options.ca_file} cannot be read: {fault}", "it is a file of certificates in PEM"
        ) from None


def reader_schemas(options: ConnectorOptions) -> tuple[ReaderSchema, ...]:
    """Return the schemas of the selected columns. Raises ConnectorError if one is not there, not Avro, or the registry is away."""
    wanted = SchemaOptions(options)
    client = client_of(wanted)
    found = []
    for column, (subject, version) in wanted.subjects.items():
        if column in options.columns:
            try:
                schema_id = int(client.version(subject, version)["id"])
                text = text_of(client.schema(schema_id, context_of(subject)))
            except RegistryFailed as fault:
                remedy = f"options {column}Subject and {column}Version say which schema is meant"
                raise ConnectorError(f"{subject}: {fault.message}", remedy if fault.code in MISSING else None) from None
            except ConnectorError as fault:
                raise ConnectorError(f"{subject}: {fault}") from None
            found.append(ReaderSchema(column, subject, schema_id, text, options.fields.get(column, ())))
    return tuple(found)


def context_of(subject: str) -> str:
    """Return what a request by id has to name, so that the id is that of the subject's context."""
    return subject if subject.startswith(CONTEXT) else ""


def text_of(schema: Schema) -> str:
    """Return the JSON of a registered schema with the definitions of its references. Raises ConnectorError if it is not Avro's."""
    if schema.kind != AVRO:
        raise ConnectorError(
            f"the schema is of {schema.kind}, and the table schema reads Avro",
            "read table=records, and decode with from_json or from_protobuf behind the first five bytes",
        )
    try:
        return json.dumps(resolved(schema.text, schema.dependencies))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as fault:
        raise ConnectorError(f"the schema is not valid: {fault or type(fault).__name__}") from None
