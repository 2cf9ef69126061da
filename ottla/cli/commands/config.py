"""The commands of `ottla config`: get, set, unset, diff."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, ListingOptions, Output, connect, run
from ottla.cli.commands.topic import split_settings
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.cli.shared_options import CheckOnly
from ottla.cli.units import setting_text
from ottla.client import configs
from ottla.client.cluster import RETRY_BACKOFF_MS, ClusterClient
from ottla.client.failures import did_you_mean
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult

app = App(
    "config",
    "Settings of topics, brokers, groups and client metrics: get, set, unset, diff.",
)

Kind = Literal["topic", "broker", "group", "client-metrics"]
TRIES = 10
GET_COLUMNS = ("name", "value", "source")

main = partial(run, app)


@app.command
async def get(
    kind: Kind,
    name: str,
    keys: list[str] | None = None,
    /,
    *,
    changed: Annotated[bool, Parameter(help="Only settings that are not at their default.")] = False,
    docs: Annotated[bool, Parameter(help="With the documentation of each setting.")] = False,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show settings. `all` as the name of a broker means the defaults of the cluster, for all brokers."""
    async with connect(connection) as cluster:
        entries = await configs.describe_configs(cluster, kind, _resource(kind, name), keys, docs)
        if keys and (missing := set(keys) - {entry.name for entry in entries}):
            await _refuse_unknown(cluster, kind, name, sorted(missing)[0])
    rows = [_row(entry, docs) for entry in entries if not (changed and entry.config_source == configs.DEFAULT_SOURCE)]
    if listing.output == "table":
        rows = [row | {"value": setting_text(str(row["name"]), row["value"])} for row in rows]
    print_rows(rows, (*GET_COLUMNS, "documentation") if docs else GET_COLUMNS, listing.output)


@app.named("set")
async def set_(
    kind: Kind,
    name: str,
    settings: Annotated[list[str], Parameter(help="KEY=VALUE ...")],
    /,
    *,
    dry_run: CheckOnly = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Change settings: `ottla config set topic orders retention.ms=3600000`."""
    changes = split_settings(settings, "retention.ms=3600000")
    await _change(kind, name, changes, dry_run, connection)


@app.command
async def unset(
    kind: Kind,
    name: str,
    keys: list[str],
    /,
    *,
    dry_run: CheckOnly = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Give settings back to their default."""
    await _change(kind, name, dict.fromkeys(keys), dry_run, connection)


@app.command
async def diff(
    kind: Kind, one: str, other: str, /, *, output: Output = "table", connection: ConnectionOptions = CONNECTION
) -> int:
    """Show the settings in which two topics, brokers or groups differ. Exit code 1: they do."""
    async with connect(connection) as cluster:
        left = await configs.describe_configs(cluster, kind, _resource(kind, one), None)
        right = await configs.describe_configs(cluster, kind, _resource(kind, other), None)
    found = configs.differing(left, right)
    print_rows([{"name": name, one: a, other: b} for name, (a, b) in found.items()], ("name", one, other), output)
    return FAILED if found else OK


async def _change(
    kind: str, name: str, changes: dict[str, str | None] | dict[str, str], dry_run: bool, connection: ConnectionOptions
) -> None:
    resource = _resource(kind, name)
    async with connect(connection) as cluster:
        entries = await configs.describe_configs(cluster, kind, resource, sorted(changes))
        before = {entry.name: entry for entry in entries}
        if kind == "topic" and (unknown := changes.keys() - before.keys()):
            # Kafka refuses an unknown key without saying which one was meant.
            await _refuse_unknown(cluster, kind, name, min(unknown))
        await configs.alter_configs(cluster, kind, resource, changes, dry_run)
        removed = [key for key, value in changes.items() if value is None and key in before and not dry_run]
        defaults = await _defaults(cluster, kind, resource, [before[key] for key in removed])
    for key, value in changes.items():
        note(f"{kind} {name}: {key} {_change_text(before.get(key), value, defaults.get(key))}")
    if dry_run:
        note("nothing was changed (--dry-run)")


async def _defaults(
    cluster: ClusterClient, kind: str, resource: str, removed: list[DescribeConfigsResourceResult]
) -> dict[str, str | None]:
    """Return the values that settings have after they were removed.

    It waits up to a second until the broker has applied the change.
    """
    sources = {entry.name: entry.config_source for entry in removed}
    found: dict[str, str | None] = {}
    for _ in range(TRIES if sources else 0):
        entries = await configs.describe_configs(cluster, kind, resource, sorted(sources))
        found = {entry.name: entry.value for entry in entries if entry.config_source != sources[entry.name]}
        if len(found) == len(sources):
            break
        await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
    return found


def _change_text(entry: DescribeConfigsResourceResult | None, value: str | None, default: str | None) -> str:
    """Return a text with the old and the new value of a setting, without secrets. `entry` is the setting before."""
    if entry is not None and entry.is_sensitive:
        return "changed"
    old = None if entry is None else entry.value
    if value is not None:
        return f"{_shown(old)} -> {value}"
    return f"{_shown(old)} -> {'the default' if default is None else f'{_shown(default)} (default)'}"


def _shown(value: str | None) -> str:
    return "-" if value is None else value or '""'


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


def _row(entry: DescribeConfigsResourceResult, docs: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": configs.SOURCES.get(entry.config_source, str(entry.config_source)),
        "read_only": entry.read_only,
        "synonyms": [synonym.name for synonym in entry.synonyms],
    }
    if docs:
        row["documentation"] = entry.documentation
    return row
