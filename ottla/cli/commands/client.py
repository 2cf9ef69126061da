"""The command `ottla client list`. It reads the admin listeners, because Kafka has no API for the clients that push metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import ADMIN, CONNECTION, LISTING, Admin, ConnectionOptions, ListingOptions, connect, run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import print_rows
from ottla.client.admin_listeners import AdminSample, read_admin, samples_of

app = App("client", "Clients that push metrics to the brokers (KIP-714): list.")

TIMEOUT_S = 30
COLUMNS = ("broker", "client_id", "client_instance_id", "software", "series")

main = partial(run, app)


@app.named("list")
async def list_(
    addresses: Annotated[list[str] | None, Parameter(help="HOST:PORT of brokers' admin listeners.")] = None,
    /,
    *,
    admin: Admin = ADMIN,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show the clients that have pushed metrics, as the admin listeners (ottla.admin.listener) show them."""
    asked = list(addresses or ())
    if not asked:
        async with connect(connection) as cluster:
            await cluster.metadata([])
            asked = list(admin.addresses(cluster).values())
        if not asked:
            raise CommandFailed("no admin listener is known", "--admin-port PORT, or --admin ID@HOST:PORT", USAGE)
    texts = await asyncio.gather(*(asyncio.to_thread(read_admin, each, "/metrics", TIMEOUT_S) for each in asked))
    rows = [row for each, text in zip(asked, texts, strict=True) for row in clients(each, samples_of(text))]
    print_rows(rows, COLUMNS, listing.output)


def clients(broker: str, samples: Iterable[AdminSample]) -> list[dict[str, object]]:
    """Return a row for each client in one broker's metrics."""
    counts: dict[tuple[str, str, str], int] = {}
    for sample in samples:
        if "client_instance_id" in sample.labels:
            names = ("client_id", "client_instance_id", "client_software_name")
            client_id, instance_id, software = (sample.labels.get(name, "") for name in names)
            counts[client_id, instance_id, software] = counts.get((client_id, instance_id, software), 0) + 1
    return [
        {"broker": broker, "client_id": client_id, "client_instance_id": instance_id, "software": software, "series": n}
        for (client_id, instance_id, software), n in sorted(counts.items())
    ]
