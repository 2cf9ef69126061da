"""Brokers' admin listeners (`ottla.admin.listener`): the numbers of their /metrics that Kafka's protocol does not have.

Brokers do not describe this property to clients: who asks has to know the address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from ottla.client.errors import ClusterError, Kind
from ottla.server.address import NoAddress, parse_address

ADMIN_LISTENER = "ottla.admin.listener"
#: More of a scrape is not read: whatever answers there may never end.
SCRAPE_BYTES_MAX = 16 * 1024 * 1024
#: Bytes of the text of an error.
LINE_BYTES_MAX = 1024
_SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

#: A metric's name and its labels.
Metric = tuple[str, tuple[tuple[str, str], ...]]


class AdminSample(NamedTuple):
    """A sample of a scrape: a metric's name, its labels and its value."""

    name: str
    labels: dict[str, str]
    value: float


def parse_admin(text: str) -> tuple[int, str]:
    """Return the broker and the address of "1@HOST:PORT".

    Raises:
        ClusterError: it has another form.
    """
    node, at, address = text.partition("@")
    try:
        if not at or not node.isdecimal():
            raise NoAddress(text)
        return int(node), str(parse_address(address))
    except NoAddress:
        raise ClusterError(f"{text!r} is not ID@HOST:PORT", kind=Kind.NOT_ADMIN_LISTENER) from None


def read_admin(address: str, page: str, timeout_s: float) -> str:
    """Return a page of an admin listener. It blocks.

    Raises:
        ClusterError: it cannot be reached, or answers with an error.
    """
    try:
        with urlopen(f"http://{address}{page}", timeout=timeout_s) as answer:
            text: bytes = answer.read(SCRAPE_BYTES_MAX)
            return text.decode(errors="replace")
    except HTTPError as error:
        said = error.read(LINE_BYTES_MAX).decode(errors="replace").strip().partition("\n")[0]
        raise ClusterError(f"{address} answers {error.code}: {said or error.reason}", None, Kind.WRONG) from None
    except (URLError, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise ClusterError(
            f"no answer of {address}: {getattr(reason, 'strerror', None) or reason}",
            f"is it the address of {ADMIN_LISTENER} in a running broker's file, and not the clients' port?",
            Kind.WRONG,
        ) from None


def metrics_of(text: str, names: Collection[str]) -> dict[Metric, float]:
    """Return the samples of some metrics in a text of Prometheus; other lines cost nothing but their first word."""
    found: dict[Metric, float] = {}
    for line in text.splitlines():
        if line.partition("{")[0].partition(" ")[0] not in names:
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            found[match["name"], tuple(sorted(_LABEL.findall(match["labels"] or "")))] = float(match["value"])
        except ValueError:
            continue
    return found


def samples_of(text: str) -> list[AdminSample]:
    """Return all samples of a text of Prometheus; one of a large node takes seconds, and `metrics_of` does not.

    Raises:
        ClusterError: it is none.
    """
    from prometheus_client.parser import text_string_to_metric_families  # for one command only

    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as fault:
        raise ClusterError(f"these are no metrics: {fault}", None, Kind.WRONG) from None
    return [AdminSample(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


async def page_of(address: str, page: str, timeout_s: float) -> str:
    """Return a page of an admin listener, read on a thread.

    Raises:
        ClusterError: it does not answer, or with an error.
    """
    return await asyncio.to_thread(read_admin, address, page, timeout_s)


async def scrape(address: str, names: Collection[str], timeout_s: float) -> list[AdminSample]:
    """Return the samples of some metrics of an admin listener.

    Raises:
        ClusterError: it does not answer.
    """
    text = await page_of(address, "/metrics", timeout_s)
    return [AdminSample(name, dict(labels), value) for (name, labels), value in metrics_of(text, names).items()]
