"""Brokers' admin listeners (`ottla.admin.listener`): what Kafka's protocol does not have, the numbers of /metrics, stories, tables and tiers.

A story is the last decisions about a group, a partition or a transactional id; each broker remembers those that it made
(`/story`). Each broker knows the states of tables (`/tables`) and of remote storage (`/tiers`) for the partitions that it
leads.

Brokers do not describe this property to clients, so a client has to be given the address.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from ottla.client.errors import ClusterError
from ottla.client.failures import Failure, Kind
from ottla.server.address import NoAddress, parse_address
from ottla.server.story import StoryLine

T = TypeVar("T")

ADMIN_LISTENER = "ottla.admin.listener"
#: A longer page is not read further: a peer that is no admin listener may send without end.
SCRAPE_BYTES_MAX = 16 * 1024 * 1024
#: An error's text is cut to this many bytes.
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


def _none_here(cluster_id: str | None) -> Mapping[int, str]:
    return {}


@dataclass(frozen=True)
class AdminAddresses:
    """Addresses of admin listeners, as far as they are known before a broker has responded."""

    #: The address of each broker that the command line names.
    named: Mapping[int, str] = field(default_factory=dict)
    #: The port of the admin listeners on the hosts of all brokers.
    port: int | None = None
    #: Returns, for a cluster's id, the addresses that a cluster of this machine has written to a file.
    here: Callable[[str | None], Mapping[int, str]] = _none_here

    def of(self, cluster_id: str | None, hosts: Mapping[int, str]) -> dict[int, str]:
        """Return the address by broker, for a cluster with brokers at these hosts.

        A named address wins over the port, and the port over an address from a file. A broker that is named is in the result
        although the cluster does not list it.
        """
        here = {node: address for node, address in self.here(cluster_id).items() if node in hosts}
        everywhere = {} if self.port is None else {node: f"{host}:{self.port}" for node, host in hosts.items()}
        return {**here, **everywhere, **self.named}


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
    from urllib.error import HTTPError, URLError  # Imported late: this is half of what `ottla topic list` would import.
    from urllib.request import urlopen

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
    """Return all samples of a text of Prometheus; the text of a large node takes seconds. `metrics_of` is faster.

    Raises:
        ClusterError: the text is not in this format.
    """
    from prometheus_client.parser import text_string_to_metric_families  # Imported late: one command alone needs it.

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


TIMEOUT_S = 10.0


class StoryEntry(NamedTuple):
    """One decision at one node. Times are wall-clock time of the node."""

    node: int
    line: StoryLine

    @property
    def asker(self) -> str | None:
        """The client whose request caused the decision."""
        return f"{self.line.client_id} {self.line.host}".strip() or None

    @property
    def decision(self) -> str:
        return f"{self.line.text} ({self.line.times} times)" if self.line.times > 1 else self.line.text


class Story(NamedTuple):
    """The entries of all nodes in the order of time, and for each node that gave none the reason."""

    entries: list[StoryEntry]
    failures: dict[int, Failure]


async def story_of_group(listeners: Mapping[int, str], group: str) -> Story:
    """Ask the admin listeners for the group's story. `listeners` has their addresses by node."""
    return await _story(listeners, {"group": group})


async def story_of_transaction(listeners: Mapping[int, str], transactional_id: str) -> Story:
    return await _story(listeners, {"transactional_id": transactional_id})


async def story_of_partition(listeners: Mapping[int, str], topic: str, partition: int) -> Story:
    return await _story(listeners, {"topic": topic, "partition": str(partition)})


async def _story(listeners: Mapping[int, str], asked: Mapping[str, str]) -> Story:
    entries, failures = await _lines_of_all(listeners, f"/story?{urlencode(asked)}", _entry, "story")
    return Story(sorted(entries, key=lambda entry: entry.line.time_ms), failures)


def _entry(text: str) -> StoryEntry:
    """Return the entry in a line. Raises ValueError or TypeError if the line is no entry."""
    fields = json.loads(text)
    try:
        time_ms, first_ms, times = (int(fields[name]) for name in StoryLine._fields[:3])
        line = StoryLine(time_ms, first_ms, times, *(str(fields[name]) for name in StoryLine._fields[3:]))
        return StoryEntry(int(fields["node"]), line)
    except KeyError as missing:
        raise ValueError(f"no field {missing}") from None


async def table_states(listeners: Mapping[int, str], topic: str | None = None) -> list[dict[str, Any]]:
    """Ask the admin listeners for the states of all tables, or of one topic's table.

    `listeners` has their addresses by node. A listener that does not answer adds no state.

    Each state has `node`, `topic`, `format`, `location`, `partitions`, `waits` (why the table waits, or None) and counts:
    `broker/tables/table_report.py`.
    """
    page = "/tables" if topic is None else f"/tables?{urlencode({'topic': topic})}"
    states, _ = await _lines_of_all(listeners, page, _object, "tables")
    return states


async def tier_states(
    listeners: Mapping[int, str], topic: str | None = None
) -> tuple[list[dict[str, Any]], dict[int, Failure]]:
    """Ask the admin listeners for the states of remote storage.

    `listeners` has their addresses by node. Return the states, and for each node that gave none the reason.

    Each state has `node`, `topic`, `partition`, both ends of the log and what is copied: `broker/tiers/tier_report.py`. A broker without
    remote storage names topics that have some, and why it copies nothing.
    """
    page = "/tiers" if topic is None else f"/tiers?{urlencode({'topic': topic})}"
    return await _lines_of_all(listeners, page, _object, "tiers")


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in a line. Raises ValueError or TypeError if the line has none."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(f"no object: {type(found).__name__}")
    return found


async def _lines_of_all(
    listeners: Mapping[int, str], page: str, read: Callable[[str], T], what: str
) -> tuple[list[T], dict[int, Failure]]:
    """Return the lines of a page as `read` gives them, from all listeners in the order of nodes, and for each node that gave
    none the reason.
    """
    nodes = sorted(listeners)
    answers = await asyncio.gather(*(_lines_of(listeners[node], page, read, what) for node in nodes))
    found: list[T] = []
    failures = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, Failure):
            failures[node] = answer
        else:
            found += answer
    return found, failures


async def _lines_of(address: str, page: str, read: Callable[[str], T], what: str) -> list[T] | Failure:
    try:
        return [read(line) for line in (await page_of(address, page, TIMEOUT_S)).splitlines()]
    except Failure as fault:
        return fault
    except (ValueError, TypeError, RecursionError):
        return ClusterError(f"{address} answers with no {what}", "an older node has none", Kind.WRONG)
