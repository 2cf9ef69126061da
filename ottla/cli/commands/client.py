"""The command `ottla client`: list. It reads the admin listeners, because Kafka has no API for the clients that push metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated
from urllib.error import URLError
from urllib.request import urlopen

from cyclopts import App, Parameter
from prometheus_client.parser import text_string_to_metric_families

from ottla.cli.application import Output, run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import print_rows

app = App(name="client", version_flags=[], help="Clients that push metrics to the brokers (KIP-714): list.")

COLUMNS = ("broker", "client_id", "client_instance_id", "software", "series")
TIMEOUT_S = 30

main = partial(run, app)


@app.command(name="list")
async def list_(
    admin: Annotated[list[str], Parameter(consume_multiple=True, help="HOST:PORT of brokers' admin listeners.")],
    /,
    *,
    output: Output = "table",
) -> None:
    """Show the clients that have pushed metrics, as the admin listeners (ottla.admin.listener) HOST:PORT ... show them."""
    texts = await asyncio.gather(*(asyncio.to_thread(_scrape, address) for address in admin))
    print_rows(
        [row for address, text in zip(admin, texts, strict=True) for row in clients(address, text)], COLUMNS, output
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
        raise CommandFailed(f"no metrics from {address}: {error}", "set ottla.admin.listener", USAGE) from None
