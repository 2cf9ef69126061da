"""Requests to the schema registry for readers' schemas, on the driver, once for each query."""

from __future__ import annotations

import ssl

from ottla.columns.avro.schemas import ReaderSchema, text_of
from ottla.columns.batches import ColumnsError
from ottla.columns.wire import MISSING, context_of
from ottla.registry.client import RegistryClient, RegistryFailed
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.schema.options import CONFIG, SchemaOptions

#: The remedy for a schema that no column can have.
DECODE_IT_YOURSELF = (
    "read table=records, and decode in a function of your own (from_json or from_protobuf behind the first five bytes)"
)


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
    """Return the schemas of the selected columns.

    Raises ConnectorError if a schema does not exist, is not Avro, or the registry cannot be reached.
    """
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
            except ColumnsError as fault:
                raise ConnectorError(f"{subject}: {fault}", DECODE_IT_YOURSELF) from None
            found.append(ReaderSchema(column, subject, schema_id, text, options.fields.get(column, ())))
    return tuple(found)
