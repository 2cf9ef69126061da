"""The commands of `ottla quota`: list, set, unset."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, ListingOptions, connect, run
from ottla.cli.commands.topic import split_settings
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.cli.shared_options import CheckOnly
from ottla.cli.units import setting_text
from ottla.client.access import alter_quotas, describe_quotas
from ottla.client.cluster import ClusterClient
from ottla.client.failures import did_you_mean
from ottla.server.quotas.clients import CLIENT_ID, CLIENT_QUOTAS, CONNECTION_CREATION_RATE, IP, USER

app = App("quota", "Quotas of users, client ids and addresses: list, set, unset.")

COLUMNS = ("user", "client_id", "ip", "quota", "value")
#: This stands for a type's default, as in Kafka's own tools.
DEFAULT = "<default>"
EXAMPLES = {
    USER: "producer_byte_rate=1048576",
    CLIENT_ID: "consumer_byte_rate=1048576",
    IP: f"{CONNECTION_CREATION_RATE}=50",
}
Kind = Annotated[Literal["user", "client-id", "ip"], Parameter(help="Whose quotas.")]
Name = Annotated[str, Parameter(help=f"A name, or {DEFAULT} for all that have no quota of their own.")]
OfClient = Annotated[
    str | None, Parameter(name="--client-id", help="Of a user: only the connections with this client id.")
]

main = partial(run, app)


@app.named("list")
async def list_(
    kind: Annotated[Literal["user", "client-id", "ip"] | None, Parameter(help="Whose quotas; default: all.")] = None,
    name: Annotated[str | None, Parameter(help=f"A name, or {DEFAULT}.")] = None,
    /,
    *,
    client_id: OfClient = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show quotas: all, or those of one user, client id or address."""
    async with connect(connection) as cluster:
        entries = await describe_quotas(cluster, _entity(kind, name, client_id) if kind and name else {})
    rows: list[dict[str, Any]] = []
    for entry in entries:
        names = {part.entity_type.replace("-", "_"): part.entity_name or DEFAULT for part in entry.entity}
        if kind in (None, *(part.entity_type for part in entry.entity)):
            rows += [{**names, "quota": value.key, "value": _shown(value.value)} for value in entry.values]
    if listing.output == "table":
        rows = [row | {"value": setting_text(row["quota"], str(row["value"]))} for row in rows]
    print_rows(sorted(rows, key=lambda row: [str(row.get(column, "")) for column in COLUMNS]), COLUMNS, listing.output)


@app.named("set")
async def set_(
    kind: Kind,
    name: Name,
    quotas: Annotated[list[str], Parameter(help="QUOTA=VALUE ...")],
    /,
    *,
    client_id: OfClient = None,
    dry_run: CheckOnly = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Set quotas: `ottla quota set user alice producer_byte_rate=1048576`.

    Of users and client ids: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate. Of an ip:
    connection_creation_rate.
    """
    changes = {key: _number(key, value) for key, value in split_settings(quotas, EXAMPLES[kind]).items()}
    await _change(changes, _entity(kind, name, client_id), dry_run, connection)


@app.command
async def unset(
    kind: Kind,
    name: Name,
    quotas: list[str],
    /,
    *,
    client_id: OfClient = None,
    dry_run: CheckOnly = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Remove quotas: `ottla quota unset user alice producer_byte_rate`."""
    await _change(dict.fromkeys(quotas), _entity(kind, name, client_id), dry_run, connection)


async def _change(
    changes: dict[str, float] | dict[str, None],
    entity: dict[str, str | None],
    dry_run: bool,
    connection: ConnectionOptions,
) -> None:
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
    """Return the quotas of exactly this entity: one with further parts is another entity."""
    for entry in await describe_quotas(cluster, entity):
        if len(entry.entity) == len(entity):
            return {value.key: value.value for value in entry.values}
    return {}


def _entity(kind: str, name: str, client_id: str | None) -> dict[str, str | None]:
    names = {kind: name}
    if client_id is not None:
        if kind != USER:
            raise CommandFailed(
                "--client-id is for the quotas of a user", f"`ottla quota set client-id {client_id} ...`", USAGE
            )
        names[CLIENT_ID] = client_id
    return {each: None if name == DEFAULT else name for each, name in names.items()}


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandFailed(f"{key}={text} is not a number", "byte rates are bytes a second", USAGE) from None


def _text(value: float | None) -> str:
    return "none" if value is None else str(_shown(value))


def _shown(value: float) -> int | float:
    return int(value) if value.is_integer() else value
