"""The traffic of a broker's partitions, by topic: messages, bytes and requests, and Kafka's moving averages of bytes.

Partitions count in plain ints. The counts of a removed partition are lost with it, so the sums over all topics, which must
never decrease, keep its last values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.server.clock import Clock
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample

#: Name after kafka_server_brokertopicmetrics_, what it says, the partition's count.
TRAFFIC: tuple[tuple[str, str, str], ...] = (
    ("messagesin", "Messages appended", "messages_in"),
    ("bytesin", "Bytes appended", "bytes_in"),
    ("bytesout", "Bytes given to consumers", "bytes_out"),
    ("replicationbytesout", "Bytes given to followers", "replication_bytes_out"),
    ("totalproducerequests", "Appends to partitions", "appends"),
    ("totalfetchrequests", "Reads of partitions that found something", "reads"),
    ("failedproducerequests", "Appends that were refused", "failed_appends"),
    ("failedfetchrequests", "Reads that were refused", "failed_reads"),
)
COUNTS = tuple(attribute for _, _, attribute in TRAFFIC)
#: Followers' reads are shown for all topics only, as in Kafka.
WITHOUT_TOPICS = frozenset({"replicationbytesout"})
#: kafka-ui reads these; the label is the name of Kafka's meter.
RATES = (("BytesInPerSec", "bytes_in"), ("BytesOutPerSec", "bytes_out"))
RATE_WINDOW_S = 15 * 60.0

Counts = list[int]


@dataclass(slots=True)
class _Rate:
    """An exponential moving average over the window, moved on at every scrape."""

    value: float = 0.0
    count: int = 0
    started: bool = False

    def update(self, count: int, seconds: float) -> None:
        if seconds <= 0:
            self.count = count
            return
        now = max(0, count - self.count) / seconds
        # The average starts with the first value: from zero it would need half an hour to be right.
        weight = 1 - math.exp(-seconds / RATE_WINDOW_S) if self.started else 1.0
        self.value += weight * (now - self.value)
        self.count, self.started = count, True


@dataclass(slots=True)
class Traffic:
    """A source of metrics."""

    replicas: Replicas
    clock: Clock
    _seen: dict[int, tuple[Partition, Counts]] = field(default_factory=dict)
    _gone: Counts = field(default_factory=lambda: [0] * len(COUNTS))
    _rates: dict[tuple[str, str], _Rate] = field(default_factory=lambda: defaultdict(_Rate))
    _last_ms: int = -1

    def __call__(self) -> Iterator[Family]:
        topics = self._sum_up()
        total = list(self._gone)
        for counts in topics.values():
            total = [a + b for a, b in zip(total, counts, strict=True)]
        for position, (name, doc, _) in enumerate(TRAFFIC):
            samples = [Sample({}, total[position])]
            if name not in WITHOUT_TOPICS:
                samples += [Sample({"topic": topic}, counts[position]) for topic, counts in topics.items()]
            yield Family(f"kafka_server_brokertopicmetrics_{name}", COUNTER, doc, samples)
        yield self._fifteen_minute_rates(topics, total)

    def _sum_up(self) -> dict[str, Counts]:
        seen: dict[int, tuple[Partition, Counts]] = {}
        topics: dict[str, Counts] = {}
        for partition in self.replicas:
            counts = [getattr(partition, attribute) for attribute in COUNTS]
            # The object is kept with its id, which could be another's once it is freed.
            seen[id(partition)] = (partition, counts)
            if any(counts):
                known = topics.setdefault(partition.topic, [0] * len(COUNTS))
                for position, count in enumerate(counts):
                    known[position] += count
        for key, (_, counts) in self._seen.items():
            if key not in seen:
                self._gone = [a + b for a, b in zip(self._gone, counts, strict=True)]
        self._seen = seen
        return topics

    def _fifteen_minute_rates(self, topics: dict[str, Counts], total: Counts) -> Family:
        now_ms = self.clock.mono_ms()
        seconds = (now_ms - self._last_ms) / 1000 if self._last_ms >= 0 else 0.0
        self._last_ms = now_ms
        samples = []
        for gone in [key for key in self._rates if key[1] and key[1] not in topics]:
            del self._rates[gone]
        for name, attribute in RATES:
            position = COUNTS.index(attribute)
            for topic, counts in [("", total), *topics.items()]:
                rate = self._rates[name, topic]
                rate.update(counts[position], seconds)
                labels = {"name": name, "topic": topic} if topic else {"name": name}
                samples.append(Sample(labels, rate.value))
        doc = "Bytes a second, averaged over a quarter of an hour"
        return Family("kafka_server_BrokerTopicMetrics_FifteenMinuteRate", GAUGE, doc, samples)
