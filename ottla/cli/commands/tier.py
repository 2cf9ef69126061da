"""The command `ottla tier`: it shows how far the copies to remote storage are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from ottla.cli.app import App, Parameter
from ottla.cli.application import ADMIN, CONNECTION, LISTING, Admin, ConnectionOptions, ListingOptions, connect, run
from ottla.cli.output import Row, note, print_rows
from ottla.cli.stories import listeners_of
from ottla.client.admin_listeners import tier_states

app = App(
    "tier",
    "Remote storage of topics (KIP-405): how far the copies are, and why they wait.\n\n"
    "The admin listeners of the brokers know it, each of the partitions that it leads.",
)

COLUMNS = (
    "topic", "partition", "leader", "log_start", "local_start", "copied_to", "remote_segments", "remote_bytes",
    "lag_segments", "lag_bytes", "lag_seconds", "waits",
)  # fmt: skip

main = partial(run, app)


@app.command
async def status(
    topic: Annotated[str | None, Parameter(help="Only this one.")] = None,
    /,
    *,
    admin: Admin = ADMIN,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show what is copied of each partition with remote storage, and by how much the copies are behind."""
    async with connect(connection) as cluster:
        listeners = await listeners_of(cluster, admin)
        states, failures = await tier_states(listeners, topic)
    if len(failures) == len(listeners):
        raise next(iter(failures.values()))
    for node, fault in failures.items():
        note(f"node {node}: {fault.text()}")
    if not states:
        note("no partition that these nodes lead has remote storage")
    rows = sorted(map(_row, states), key=lambda row: (str(row["topic"]), row["partition"] or 0))
    print_rows(rows, COLUMNS, listing.output)


def _row(state: Mapping[str, Any]) -> Row:
    lag = state.get("lag_seconds")
    return {
        **{name: state.get(name) for name in COLUMNS},
        **state,
        "leader": state.get("node"),
        "lag_seconds": None if lag is None else round(lag),
    }
