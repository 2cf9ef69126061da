"""The command `ottla client`: list. It reads the admin listeners, because Kafka has no API for the clients that push metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated
from urllib.error import URLError
from urllib.request import urlopen

from cyclopts import App, Parameter
from prometheus_client.parser import text_string_to_metric_families

from ottla.cli.application import CONNECTION, LISTING, Connection, Listing, connect, run
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.configs import describe_configs
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import print_rows

app = App(name="client", version_flags=[], help="Clients that push metrics to the brokers (KIP-714): list.")

COLUMNS = ("broker", "client_id", "client_instance_id", "software", "series")
TIMEOUT_S = 30
ADMIN_LISTENER = "ottla.admin.listener"
#: A listener of all addresses is reached at the broker's own.
ANY_HOST = ("", "0.0.0.0", "[::]")

main = partial(run, app)


@app.command(name="list")
async def list_(
    admin: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True, help="HOST:PORT of brokers' admin listeners; default: what the brokers have set."
        ),
    ] = None,
    /,
    *,
    listing: Listing = LISTING,
    connection: Connection = CONNECTION,
) -> None:
    """Show the clients that have pushed metrics, as the admin listeners (ottla.admin.listener) show them."""
    if not admin:
        async with connect(connection) as cluster:
            admin = await _admin_listeners(cluster)
    texts = await asyncio.gather(*(asyncio.to_thread(_scrape, address) for address in admin))
    print_rows(
        [row for address, text in zip(admin, texts, strict=True) for row in clients(address, text)],
        COLUMNS,
        listing.output,
    )


def clients(broker: str, text: str) -> list[dict[str, object]]:
    """Returns a row for each client in one broker's metrics."""
    counts: dict[tuple[str, str, str], int] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "client_instance_id" in sample.labels:
                names = ("client_id", "client_instance_id", "client_software_name")
                client_id, instance_id, software = (sample.labels.get(name, "") for name in names)
                counts[client_id, instance_id, software] = counts.get((client_id, instance_id, software), 0) + 1
    return [
        {"broker": broker, "client_id": client_id, "client_instance_id": instance_id, "software": software, "series": n}
        for (client_id, instance_id, software), n in sorted(counts.items())
    ]


def _scrape(address: str) -> str:
    try:
        with urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
            text: str = answer.read().decode()
            return text
    except (URLError, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise CommandFailed(
            f"no metrics from {address}: {getattr(reason, 'strerror', None) or reason}",
            "is it the address of ottla.admin.listener in a running broker's file, and not the clients' port?",
            USAGE,
        ) from None


async def _admin_listeners(cluster: ClusterClient) -> list[str]:
    """Return the admin listeners of the brokers that have one.

    Raises:
        CommandFailed: none has.
    """
    found = []
    for broker in sorted((await cluster.metadata([])).brokers, key=lambda row: row.node_id):
        entries = await describe_configs(cluster, "broker", str(broker.node_id), [ADMIN_LISTENER])
        for entry in entries:
            if entry.value:
                host, _, port = entry.value.rpartition(":")
                found.append(f"{broker.host if host in ANY_HOST else host}:{port}")
    if not found:
        raise CommandFailed("no broker has an admin listener", f"set {ADMIN_LISTENER} in their files", USAGE)
    return found
