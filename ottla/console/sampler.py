"""The sampler: it asks the cluster at an interval, and keeps rates, lags and events in the window.

One sample is some requests to each broker, whatever the number of topics and groups. Settings are read in turns, for some
topics in each sample, because a response has 35 settings for each topic.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from ottla.client import configs
from ottla.client.admin_listeners import AdminAddresses
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import describe_cluster, describe_log_dirs, describe_quorum
from ottla.client.failures import Failure
from ottla.client.group_offsets import committed_of_groups, groups_by_broker, offsets_by_leader
from ottla.client.partitions import TopicPartition
from ottla.client.topics import LATEST, adding_replicas
from ottla.console.admin_numbers import Numbers, scrape
from ottla.console.snapshot import ConsoleSnapshot, changes, setting_changes, snapshot_of
from ottla.console.window import Window

log = logging.getLogger(__name__)

#: One sample reads the settings of this many topics.
TOPICS_A_SAMPLE = 25
#: Every third sample reads sizes on disk, groups and admin listeners.
SLOWER = 3
#: A sample that takes longer is cancelled, and the next one begins.
SAMPLE_TIMEOUT_S = 20.0
#: The time between the end of a sample and the next one, if a page waits for it.
SOONEST_S = 0.5
#: The numbers of this many groups and topics are kept; the page says when there are more.
GROUPS_MAX = 1_000


class Sampler:
    """The newest sample is in its fields, earlier ones are in the window."""

    def __init__(self, cluster: ClusterClient, interval_s: float, admin: AdminAddresses) -> None:
        self._cluster = cluster
        self.interval_s = interval_s
        self._admin = admin
        self.window = Window()
        self.snapshot: ConsoleSnapshot | None = None
        #: The reason why the last sample failed, or None.
        self.problem: str | None = None
        self.sampled_s: float | None = None
        self.ends: dict[TopicPartition, int] = {}
        self.sizes: dict[tuple[int, str, int], int] = {}
        self.directories: dict[int, list[tuple[str, int, int, int]]] = {}
        self.lags: dict[str, int] = {}
        self.topic_lags: dict[str, dict[str, int]] = {}
        self.numbers: dict[int, Numbers] = {}
        #: The known addresses of the admin listeners, by broker.
        self.listeners: dict[int, str] = {}
        #: The reason for each broker whose admin listener does not answer.
        self.no_numbers: dict[int, str] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._rotation: list[str] = []
        self._samples = 0
        self._wanted, self._sampled = asyncio.Event(), asyncio.Event()
        #: The numbers of the last sample that has begun, and of the sample that the snapshot comes from.
        self._begun = self._shown = 0
        self._of_brokers: dict[str, float] = {}
        self._record_rates, self._broker_rates = Rates(), Rates()

    async def run(self) -> None:
        """Sample until it is cancelled."""
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(SAMPLE_TIMEOUT_S):
                    await self.sample()
            except Failure as fault:
                self.problem = fault.cause
            except TimeoutError:
                self.problem = f"no sample within {SAMPLE_TIMEOUT_S:g} s: {self._cluster.doing}"
            except Exception:  # the pages go on with the last sample
                log.exception("a sample failed")
                self.problem = "a sample failed: the log of the console says why"
            left_s = max(0.1, self.interval_s - (time.monotonic() - began))
            await asyncio.sleep(min(left_s, SOONEST_S))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), max(0.0, left_s - SOONEST_S))
            self._wanted.clear()

    async def newer(self, limit_s: float) -> None:
        """Wait, for a limited time, for the snapshot of a sample that begins after this call. Such a sample is begun soon."""
        number = self._begun + 1
        self._wanted.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._shown < number:
                    await self._sampled.wait()

    async def sample(self) -> None:
        """Take one sample.

        Raises:
            Failure: the cluster does not answer.
        """
        cluster, now_ms = self._cluster, time.time_ns() // 1_000_000
        self._begun += 1
        described = await describe_cluster(cluster)
        metadata = await cluster.metadata(None)
        adding = await adding_replicas(cluster, metadata.topics)
        try:
            quorum = await describe_quorum(cluster)
        except Failure:  # no permission, or there is no quorum: the rest of the sample is shown
            quorum = None
        snapshot = snapshot_of(now_ms, metadata, adding, described, quorum)
        if self.snapshot is not None:
            self.window.record(changes(self.snapshot, snapshot))
        hosts = {node: broker.host for node, broker in snapshot.brokers.items()}
        found = self._admin.of(snapshot.cluster_id or None, hosts)
        self.listeners = {node: address for node, address in found.items() if node in hosts}
        self.snapshot, self.problem, self.sampled_s = snapshot, None, time.monotonic()
        self._shown = self._begun
        self._sampled.set()
        self._sampled.clear()  # all waiting pages have been woken
        led = snapshot.led_by()
        # Offsets of partitions without an answer are kept: their leader may answer the next sample.
        ends = await offsets_by_leader(cluster, led, LATEST)
        present = {(name, index) for name, index, _ in snapshot.partitions()}
        self.ends = {place: end for place, end in {**self.ends, **ends}.items() if place in present}
        if self._samples % SLOWER == 0:
            await self._sample_sizes(snapshot)
            await self._sample_groups(snapshot)
            await self._sample_numbers()
        await self._sample_settings(snapshot)
        self._samples += 1
        self.window.add(now_ms / 1000, self._values(snapshot))

    # -- What a sample has -----------------------------------------------------------------------------------------------

    def _values(self, snapshot: ConsoleSnapshot) -> dict[str, float]:
        """Return the numbers of this sample by series."""
        records = dict.fromkeys((f"topic/{name}/records" for name in snapshot.topics), 0.0)
        for (name, _), end in self.ends.items():
            records[f"topic/{name}/records"] += end
        rates = self._record_rates.update(time.monotonic(), records)
        parts = [part for _, _, part in snapshot.partitions()]
        values: dict[str, float] = {
            "cluster/under_replicated": sum(part.is_under_replicated for part in parts),
            "cluster/offline": sum(part.is_offline for part in parts),
        }
        if rates:
            values["cluster/records"] = sum(rates.values())
        return values | self._of_brokers | {f"group/{name}/lag": lag for name, lag in self.lags.items()} | rates

    async def _sample_sizes(self, snapshot: ConsoleSnapshot) -> None:
        async def ask(node: int) -> None:
            try:
                rows = await describe_log_dirs(self._cluster, node)
            except Failure:
                return
            sizes = {key: size for key, size in self.sizes.items() if key[0] != node}
            for row in rows:
                for topic in row.topics:
                    sizes.update(
                        ((node, topic.name, part.partition_index), part.partition_size) for part in topic.partitions
                    )
            self.sizes = sizes
            self.directories[node] = [(row.log_dir, row.error_code, row.total_bytes, row.usable_bytes) for row in rows]

        await _each(ask, (node for node, broker in snapshot.brokers.items() if not broker.fenced))

    async def _sample_groups(self, snapshot: ConsoleSnapshot) -> None:
        lags: dict[str, int] = {}
        topic_lags: dict[str, dict[str, int]] = {}
        alive = [node for node, broker in snapshot.brokers.items() if not broker.fenced]
        for node, groups in (await groups_by_broker(self._cluster, alive)).items():
            names = [group.group_id for group in groups if group.group_type.lower() != "share"]
            room = max(0, GROUPS_MAX - len(lags))
            for name, committed in (await committed_of_groups(self._cluster, node, names[:room])).items():
                by_topic = topic_lags[name] = {}
                for place, offset in committed.items():
                    by_topic[place[0]] = by_topic.get(place[0], 0) + max(0, self.ends.get(place, offset) - offset)
                lags[name] = sum(by_topic.values())
        self.lags, self.topic_lags = lags, topic_lags

    async def _sample_numbers(self) -> None:
        listeners = self.listeners
        found = dict(zip(listeners, await asyncio.gather(*map(scrape, listeners.values())), strict=True))
        self.numbers = {node: row for node, row in found.items() if isinstance(row, Numbers)}
        self.no_numbers = {node: str(row) for node, row in found.items() if isinstance(row, Failure)}
        counters: dict[str, float] = {}
        self._of_brokers = {}
        for node, row in self.numbers.items():
            for name, count in (("in", row.bytes_in), ("out", row.bytes_out), ("cpu", row.cpu_s)):
                if count is not None:
                    counters[f"broker/{node}/{name}"] = count
            if row.loop_delay_ms is not None:
                self._of_brokers[f"broker/{node}/delay"] = row.loop_delay_ms
        self._of_brokers |= self._broker_rates.update(time.monotonic(), counters)

    async def _sample_settings(self, snapshot: ConsoleSnapshot) -> None:
        """Compare the settings of some topics, and of all brokers, with those of an earlier sample."""
        if not self._rotation:
            self._rotation = sorted(snapshot.topics)
        names, self._rotation = self._rotation[:TOPICS_A_SAMPLE], self._rotation[TOPICS_A_SAMPLE:]
        places = [("topic", name) for name in names if name in snapshot.topics]
        if self._samples % SLOWER == 0:
            places += [("broker", str(node)) for node, broker in snapshot.brokers.items() if not broker.fenced]
        for row in await configs.describe_many(self._cluster, places):
            kind = "topic" if row.resource_type == configs.RESOURCE_TYPES["topic"] else "broker"
            place = f"{kind} {row.resource_name}"
            now = {
                entry.name: str(entry.value)
                for entry in row.configs
                if entry.config_source not in configs.STATIC_SOURCES
            }
            self.window.record(setting_changes(snapshot.at_ms, place, self._settings.get(place), now))
            self._settings[place] = now
        gone = [place for place in self._settings if place.startswith("topic ") and place[6:] not in snapshot.topics]
        for place in gone:
            del self._settings[place]


class Rates:
    """The growth of counters in a second, between two updates."""

    def __init__(self) -> None:
        self._before: tuple[float, Mapping[str, float]] | None = None

    def update(self, now_s: float, counters: Mapping[str, float]) -> dict[str, float]:
        """Return the rates.

        A counter that is new has none. A counter that became smaller was reset, because its broker restarted, or its topic was
        created again.
        """
        before, self._before = self._before, (now_s, counters)
        if before is None or now_s <= before[0]:
            return {}
        seconds = now_s - before[0]
        return {
            name: max(0.0, (count - before[1][name]) / seconds) for name, count in counters.items() if name in before[1]
        }


class MoveRates:
    """The rate of moves of replicas.

    It is measured from the first look at each, because a throttled replica first fetches much at once and then waits.
    """

    def __init__(self) -> None:
        self._first: dict[TopicPartition, tuple[float, int]] = {}

    def update(self, now_s: float, moved: Mapping[TopicPartition, int]) -> float | None:
        """Return the bytes a second of all these moves together, or None at the first look."""
        self._first = {place: self._first.get(place, (now_s, count)) for place, count in moved.items()}
        rates = [
            max(0, moved[place] - count) / (now_s - seen_s)
            for place, (seen_s, count) in self._first.items()
            if seen_s < now_s
        ]
        return sum(rates) if rates else None


async def _each(ask: Callable[[int], Awaitable[None]], nodes: Iterable[int]) -> None:
    """Ask all nodes at the same time, so that a silent node does not delay the others."""
    await asyncio.gather(*map(ask, nodes))
