"""The commands of `ottla quota`: list, set, unset."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, ListingOptions, connect, run
from ottla.cli.commands.topic import split_setting
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.client.cluster import ClusterClient
from ottla.client.errors import did_you_mean
from ottla.client.logins import alter_quotas, describe_quotas
from ottla.server.quotas.clients import CLIENT_ID, CLIENT_QUOTAS, CONNECTION_CREATION_RATE, IP, USER

app = App(name="quota", version_flags=[], help="Quotas of users, client ids and addresses: list, set, unset.")

COLUMNS = ("user", "client_id", "ip", "quota", "value")
#: The name of a type's default, as in Kafka's own tools.
DEFAULT = "<default>"
Name = Annotated[str | None, Parameter(help=f"A name, or {DEFAULT} for all that have no quota of their own.")]

main = partial(run, app)


@app.command(name="list")
async def list_(
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show quotas: all, or those of the named entities."""
    async with connect(connection) as cluster:
        entries = await describe_quotas(cluster, _entity(user, client_id, ip))
    rows = []
    for entry in entries:
        names = {part.entity_type.replace("-", "_"): part.entity_name or DEFAULT for part in entry.entity}
        rows += [{**names, "quota": value.key, "value": _shown(value.value)} for value in entry.values]
    print_rows(sorted(rows, key=lambda row: [str(row.get(column, "")) for column in COLUMNS]), COLUMNS, listing.output)


@app.command(name="set")
async def set_(
    quotas: Annotated[list[str], Parameter(consume_multiple=True, help="QUOTA=VALUE ...")],
    /,
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
    dry_run: Annotated[bool, Parameter(negative="", help="Only let the cluster check the values.")] = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Set quotas: QUOTA=VALUE ... (producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate;
    connection_creation_rate of an --ip)"""
    changes = {key: _number(key, value) for key, value in map(split_setting, quotas)}
    await _change(changes, user, client_id, ip, dry_run, connection)


@app.command
async def unset(
    quotas: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    user: Name = None,
    client_id: Name = None,
    ip: Name = None,
    dry_run: Annotated[bool, Parameter(negative="", help="Only let the cluster check the names.")] = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Remove quotas."""
    await _change(dict.fromkeys(quotas), user, client_id, ip, dry_run, connection)


async def _change(
    changes: dict[str, float] | dict[str, None],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    dry_run: bool,
    connection: ConnectionOptions,
) -> None:
    entity = _entity(user, client_id, ip)
    if not entity:
        raise CommandFailed("whose quota?", f"name a --user, a --client-id or an --ip, {DEFAULT} for the others", USAGE)
    known = (*CLIENT_QUOTAS, CONNECTION_CREATION_RATE)
    for key in changes:
        if key not in known:
            raise CommandFailed(
                f"there is no quota {key!r}", did_you_mean(key, known) or f"one of {', '.join(known)}", USAGE
            )
    async with connect(connection) as cluster:
        before = await _present(cluster, entity)
        await alter_quotas(cluster, entity, changes, validate_only=dry_run)
    who = ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity.items())
    for key, value in changes.items():
        note(f"{who}: {key} {_text(before.get(key))} -> {_text(value)}")
    if dry_run:
        note("nothing was changed (--dry-run)")


async def _present(cluster: ClusterClient, entity: dict[str, str | None]) -> dict[str, float]:
    """Return the quotas of this entity; those with further parts are entities of their own."""
    for entry in await describe_quotas(cluster, entity):
        if len(entry.entity) == len(entity):
            return {value.key: value.value for value in entry.values}
    return {}


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    names = {USER: user, CLIENT_ID: client_id, IP: ip}
    return {kind: None if name == DEFAULT else name for kind, name in names.items() if name is not None}


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandFailed(f"{key}={text} is not a number", "byte rates are bytes a second", USAGE) from None


def _text(value: float | None) -> str:
    return "none" if value is None else str(_shown(value))


def _shown(value: float) -> int | float:
    return int(value) if value.is_integer() else value
