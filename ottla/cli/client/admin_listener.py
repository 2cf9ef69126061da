"""The brokers' admin listeners: where they are, and the metrics that they serve. Apache Kafka has none, and says so by having none.

What a listener serves is taken as it comes: it is bounded, and a line that is no sample is an error of that broker alone.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.configs import describe_configs
from ottla.cli.errors import USAGE, CommandFailed

TIMEOUT_S = 30
#: A node with 10,000 partitions serves 20 MB.
METRICS_BYTES_MAX = 128 * 1024 * 1024
ADMIN_LISTENER = "ottla.admin.listener"
#: A listener of all addresses is reached at the broker's own.
ANY_HOST = ("", "0.0.0.0", "[::]")


class Sample(NamedTuple):
    """A sample of a scrape: a metric's name, its labels and its value."""

    name: str
    labels: dict[str, str]
    value: float


async def admin_listeners(cluster: ClusterClient) -> dict[int, str]:
    """Return the addresses of the admin listeners of the brokers that have one; Apache Kafka's brokers have none.

    Raises:
        CommandFailed: this user may not read the settings of brokers.
    """
    found: dict[int, str] = {}
    for broker in sorted((await cluster.metadata([])).brokers, key=lambda row: row.node_id):
        for entry in await describe_configs(cluster, "broker", str(broker.node_id), [ADMIN_LISTENER]):
            if entry.name == ADMIN_LISTENER and entry.value:
                host, _, port = entry.value.rpartition(":")
                found[broker.node_id] = f"{broker.host if host in ANY_HOST else host}:{port}"
    return found


async def scrape(address: str, timeout_s: float = TIMEOUT_S) -> list[Sample]:
    """Return the samples of an admin listener.

    Raises:
        CommandFailed: it does not answer, or not with metrics.
    """
    return await asyncio.to_thread(_scrape, address, timeout_s)


def samples_of(text: str) -> list[Sample]:
    """Return the samples of a text in Prometheus' format.

    Raises:
        ValueError: it is not in this format.
    """
    from prometheus_client.parser import text_string_to_metric_families  # for these commands only

    return [
        Sample(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def _scrape(address: str, timeout_s: float) -> list[Sample]:
    try:
        with urlopen(f"http://{address}/metrics", timeout=timeout_s) as answer:
            data = answer.read(METRICS_BYTES_MAX + 1)
            if len(data) > METRICS_BYTES_MAX:
                raise ValueError(f"more than {METRICS_BYTES_MAX} bytes")
            return samples_of(data.decode())
    except (URLError, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise CommandFailed(
            f"no metrics from {address}: {getattr(reason, 'strerror', None) or reason}",
            f"is it the address of {ADMIN_LISTENER} in a running broker's file, and not the clients' port?",
            USAGE,
        ) from None
