"""The commands of `ottla config`: get, set, unset."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, Connection, Output, connect, run
from ottla.cli.client import configs
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.commands.topic import split_setting
from ottla.cli.errors import USAGE, CommandFailed, did_you_mean
from ottla.cli.output import note, print_rows
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult

app = App(
    name="config", version_flags=[], help="Settings of topics, brokers, groups and client metrics: get, set, unset."
)

Kind = Literal["topic", "broker", "group", "client-metrics"]
GET_COLUMNS = ("name", "value", "source")

main = partial(run, app)


@app.command
async def get(
    kind: Kind,
    name: str,
    keys: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    changed: Annotated[bool, Parameter(negative="", help="Only settings that are not at their default.")] = False,
    docs: Annotated[bool, Parameter(negative="", help="With the documentation of each setting.")] = False,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """Show settings. `all` as the name of a broker means the settings of all brokers."""
    async with connect(connection) as cluster:
        entries = await configs.describe_configs(cluster, kind, _resource(kind, name), keys, docs)
        if keys and (missing := set(keys) - {entry.name for entry in entries}):
            await _refuse_unknown(cluster, kind, name, sorted(missing)[0])
    rows = [_row(entry, docs) for entry in entries if not (changed and entry.config_source == configs.DEFAULT_SOURCE)]
    print_rows(rows, (*GET_COLUMNS, "documentation") if docs else GET_COLUMNS, output)


@app.command(name="set")
async def set_(
    kind: Kind,
    name: str,
    settings: Annotated[list[str], Parameter(consume_multiple=True, help="KEY=VALUE ...")],
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Only let the broker check the values.")] = False,
    connection: Connection = CONNECTION,
) -> None:
    """Change settings: KEY=VALUE ..."""
    changes = dict(split_setting(item) for item in settings)
    await _change(kind, name, changes, dry_run, connection)


@app.command
async def unset(
    kind: Kind,
    name: str,
    keys: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Only let the broker check the names.")] = False,
    connection: Connection = CONNECTION,
) -> None:
    """Give settings back to their default."""
    await _change(kind, name, dict.fromkeys(keys), dry_run, connection)


async def _change(
    kind: str, name: str, changes: dict[str, str | None] | dict[str, str], dry_run: bool, connection: Connection
) -> None:
    resource = _resource(kind, name)
    async with connect(connection) as cluster:
        if kind == "topic":
            # Kafka refuses an unknown key without saying which one was meant.
            entries = await configs.describe_configs(cluster, kind, resource, None)
            if unknown := changes.keys() - {entry.name for entry in entries}:
                await _refuse_unknown(cluster, kind, name, sorted(unknown)[0])
        await configs.alter_configs(cluster, kind, resource, changes, dry_run)
    note("nothing was changed (--dry-run)" if dry_run else f"{kind} {name}: {', '.join(changes)} changed")


async def _refuse_unknown(cluster: ClusterClient, kind: str, name: str, key: str) -> None:
    entries = await configs.describe_configs(cluster, kind, _resource(kind, name), None)
    hint = did_you_mean(key, [entry.name for entry in entries]) or f"`ottla config get {kind} {name}` shows all names"
    raise CommandFailed(f"{kind} {name} has no setting {key!r}", hint)


def _resource(kind: str, name: str) -> str:
    if kind != "broker":
        return name
    if name == "all":
        return ""
    if not name.isdecimal():
        raise CommandFailed(f"broker {name!r} is not a number", "write its id, or `all`", USAGE)
    return name


def _row(entry: DescribeConfigsResourceResult, docs: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": configs.SOURCES.get(entry.config_source, str(entry.config_source)),
        "read_only": entry.read_only,
        "synonyms": [synonym.name for synonym in entry.synonyms],
    }
    if docs:
        row["documentation"] = entry.documentation
    return row
