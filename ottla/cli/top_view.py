"""The tables of `ottla top`: rows of nodes, topics and groups, made of two looks at a cluster. They need no I/O.

An unknown number is None, and is shown as a dash. Without an admin listener, as with Apache Kafka, the unknown ones are bytes a
second, requests, the loop and memory. Rates are those between the two looks. A counter that has become smaller belongs to a
node that restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.cli.output import Row
from ottla.client.admin_listeners import AdminSample

NODE_COLUMNS = (
    "node", "leaders", "replicas", "replica_lag", "in_per_s", "out_per_s", "requests_per_s",
    "produce_p99_ms", "fetch_p99_ms", "loop_ms", "cpu", "memory",
)  # fmt: skip
TOPIC_COLUMNS = ("topic", "partitions", "behind", "records_per_s", "in_per_s", "out_per_s", "bytes")
GROUP_COLUMNS = ("group", "type", "state", "lag", "consumed_per_s", "time_left")
#: These columns are shown as sizes.
SIZES = ("in_per_s", "out_per_s", "memory", "bytes")

BYTES_IN, BYTES_OUT = "kafka_server_brokertopicmetrics_bytesin_total", "kafka_server_brokertopicmetrics_bytesout_total"
REQUESTS, TIMES = "kafka_network_requestmetrics_requests_total", "kafka_network_requestmetrics_totaltimems"
LOOP, CPU, MEMORY = "ottla_event_loop_lag_ms_max", "process_cpu_seconds_total", "process_resident_memory_bytes"
#: The names of metrics that are read.
WANTED = (BYTES_IN, BYTES_OUT, REQUESTS, TIMES, LOOP, CPU, MEMORY)


@dataclass(slots=True)
class TopicLook:
    """A topic at one time: its partitions, those with replicas out of sync or without a leader, and the offsets and bytes of
    all partitions.
    """

    partitions: int = 0
    behind: int = 0
    end: int = 0
    bytes: int = 0


@dataclass(slots=True)
class NodeLook:
    """A broker at one time. `metrics` is None if it has no admin listener, or if that does not respond."""

    leaders: int = 0
    replicas: int = 0
    replica_lag: int = 0
    metrics: list[AdminSample] | None = None

    def total(self, name: str) -> float | None:
        """Return the sum of a counter over its labels except topics: the sample without a topic is already their sum."""
        if self.metrics is None:
            return None
        found = [sample.value for sample in self.metrics if sample.name == name and "topic" not in sample.labels]
        return sum(found) if found else None

    def of_topic(self, name: str, topic: str) -> float:
        return sum(
            sample.value for sample in self.metrics or () if sample.name == name and sample.labels.get("topic") == topic
        )

    def p99_ms(self, request: str) -> float | None:
        """Return the 99th percentile of the requests of an API since the node's start."""
        for sample in self.metrics or ():
            if sample.name == TIMES and sample.labels == {"quantile": "0.99", "request": request}:
                return round(sample.value, 1)
        return None


@dataclass(slots=True)
class GroupLook:
    """A group at one time: committed offsets and lag of all its partitions."""

    type: str
    state: str
    committed: int = 0
    lag: int = 0


@dataclass(slots=True)
class TopLook:
    """The cluster at one time of a monotonic clock."""

    at_ms: int
    nodes: dict[int, NodeLook] = field(default_factory=dict)
    topics: dict[str, TopicLook] = field(default_factory=dict)
    groups: dict[str, GroupLook] = field(default_factory=dict)

    def rows(self, before: TopLook) -> dict[str, list[Row]]:
        """Return the rows of nodes, topics and groups. The busiest topics and the groups with the most lag come first."""
        seconds = max(1, self.at_ms - before.at_ms) / 1000
        return {
            "nodes": [
                _node_row(node, look, before.nodes.get(node), seconds) for node, look in sorted(self.nodes.items())
            ],
            "topics": sorted(
                (self._topic_row(name, before, seconds) for name in self.topics),
                key=lambda row: (-float(str(row["records_per_s"])), str(row["topic"])),
            ),
            "groups": sorted(
                (_group_row(name, look, before.groups.get(name), seconds) for name, look in self.groups.items()),
                key=lambda row: (-int(str(row["lag"])), str(row["group"])),
            ),
        }

    def _topic_row(self, name: str, before: TopLook, seconds: float) -> Row:
        look = self.topics[name]
        was = before.topics.get(name)
        return {
            "topic": name,
            "partitions": look.partitions,
            "behind": look.behind,
            "records_per_s": 0.0 if was is None else rate(look.end, was.end, seconds),
            "in_per_s": self._topic_rate(BYTES_IN, name, before, seconds),
            "out_per_s": self._topic_rate(BYTES_OUT, name, before, seconds),
            "bytes": look.bytes,
        }

    def _topic_rate(self, metric: str, topic: str, before: TopLook, seconds: float) -> float | None:
        known = [node for node, look in self.nodes.items() if look.metrics is not None]
        if not known:
            return None
        rates = [
            rate(self.nodes[node].of_topic(metric, topic), before.nodes[node].of_topic(metric, topic), seconds)
            for node in known
            if node in before.nodes and before.nodes[node].metrics is not None
        ]
        return round(sum(rates), 1)


def rate(now: float, before: float, seconds: float) -> float:
    """Return the growth of a counter in a second; 0 if it has been reset."""
    return round(max(0.0, now - before) / seconds, 1)


def _node_row(node: int, look: NodeLook, was: NodeLook | None, seconds: float) -> Row:
    def per_s(name: str) -> float | None:
        now, before = look.total(name), None if was is None else was.total(name)
        return None if now is None or before is None else rate(now, before, seconds)

    memory, loop = look.total(MEMORY), look.total(LOOP)
    return {
        "node": node,
        "leaders": look.leaders,
        "replicas": look.replicas,
        "replica_lag": look.replica_lag,
        "in_per_s": per_s(BYTES_IN),
        "out_per_s": per_s(BYTES_OUT),
        "requests_per_s": per_s(REQUESTS),
        "produce_p99_ms": look.p99_ms("Produce"),
        "fetch_p99_ms": look.p99_ms("Fetch"),
        "loop_ms": None if loop is None else round(loop, 1),
        "cpu": per_s(CPU),
        "memory": None if memory is None else int(memory),
    }


def _group_row(name: str, look: GroupLook, was: GroupLook | None, seconds: float) -> Row:
    consumed = 0.0 if was is None else rate(look.committed, was.committed, seconds)
    return {
        "group": name,
        "type": look.type,
        "state": look.state,
        "lag": look.lag,
        "consumed_per_s": consumed,
        "time_left": 0.0 if not look.lag else round(look.lag / consumed, 1) if consumed else None,
    }


def without_admin(nodes: Mapping[int, NodeLook]) -> Iterable[int]:
    """Return the nodes whose metrics are not known."""
    return sorted(node for node, look in nodes.items() if look.metrics is None)
