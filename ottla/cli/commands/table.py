"""The commands of `ottla table`: they make a topic's records rows of Iceberg, Delta or Parquet, without a broker's help."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal
from uuid import uuid4

from ottla.cli.app import App, Parameter
from ottla.cli.application import Output, run
from ottla.cli.commands.table_maintain import PARTITIONS, maintain, partition_row, rebuild, status, table_failures
from ottla.cli.commands.table_serve import serve
from ottla.cli.errors import need_extra
from ottla.cli.output import note, print_rows
from ottla.cli.table_options import store_options
from ottla.server.table_work import TableSettings

app = App(
    "table",
    "Topics as tables: export one into Iceberg, Delta or Parquet, see how far a table is, keep it in order.\n\n"
    "A row is a committed record, and each is there once. An export that is run again goes on where the last one ended.",
)

main = partial(run, app)
for command in (serve, status, maintain, rebuild):
    app.command(command)

Location = Annotated[
    str, Parameter(name="--to", help="Where tables lie: a folder, s3://BUCKET/PREFIX, gs:// or az://.")
]
LogDirs = Annotated[
    list[str],
    Parameter(name="--log-dir", help="A log directory of a broker, which may run; several times for several."),
]
Format = Annotated[Literal["iceberg", "delta", "parquet"], Parameter(name="--format", help="The table's format.")]
Form = Annotated[
    Literal["bytes", "string", "json", "registry"],
    Parameter(help="How it becomes columns: as it is, as text, or by a schema."),
]
Partition = Annotated[
    Literal["none", "day", "hour"],
    Parameter(name="--partition", help="Of what times a file's records are; a table that is there stays what it is."),
]
Registry = Annotated[
    str,
    Parameter(
        name="--registry",
        env_var="OTTLA_REGISTRY",
        help="Address of the schema registry (http://localhost:8081), for the forms json and registry.",
    ),
]
RegistryConfig = Annotated[
    str | None,
    Parameter(help="A file with the registry's login: basic.auth.user.info=NAME:PASSWORD, ssl.ca.location=FILE."),
]
JsonSchema = Annotated[str, Parameter(help="A file with the JSON Schema of values that are `json`.")]
Catalog = Annotated[
    str,
    Parameter(
        help="Of Iceberg: `files` for none, the address of a REST catalog, or of a database (sqlite:///PATH, postgresql://...)."
    ),
]
Options = Annotated[
    list[str],
    Parameter(
        name="--option",
        help="NAME=VALUE of the store (endpoint, region, access_key_id, secret_access_key ...) or of the catalog (credential ...).",
    ),
]


@app.command
def export(
    topic: str,
    /,
    *,
    log_dir: LogDirs,
    to: Location,
    format: Format = "iceberg",
    key: Form = "bytes",
    value: Form = "bytes",
    catalog: Catalog = "files",
    partition: Partition = "none",
    registry: Registry = "",
    registry_config: RegistryConfig = None,
    json_schema: JsonSchema | None = None,
    option: Options | None = None,
    output: Output = "table",
) -> None:
    """Write the committed records of a topic as rows, from the segment files of a broker that runs or not.

    Records that do not fit the columns become rows of a table of their own, TOPIC__dlq, with the reason.
    """
    need_extra("tables", "a table")
    from ottla.tables.exporting import export as run_export

    with table_failures():
        schema = Path(json_schema).read_text() if json_schema else ""
        by_schema = (registry, registry_config, schema)
        settings = TableSettings(
            format, to, catalog, key, value, store_options(option), *by_schema, partition=partition
        )
        done = run_export(log_dir, topic, settings, lambda: uuid4().hex)
    rejected = f", {done.rejected} rejected" if done.rejected else ""
    note(f"{done.rows} rows{rejected} to {done.url}")
    print_rows(
        [
            partition_row(topic, number, each.span, done.positions.get(number))
            for number, each in sorted(done.topic.partitions.items())
        ],
        PARTITIONS,
        output,
    )
