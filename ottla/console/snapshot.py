"""The cluster at one moment. The differences between two moments are the events of the timeline."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.failures import counted
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.console.window import Event
from ottla.protocol.messages.describe_cluster import DescribeClusterResponse
from ottla.protocol.messages.describe_quorum import PartitionDataResponse
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.replica_sets import missing_replicas, original_replicas

#: More events of one kind become one line: when a broker dies, each of its partitions changes.
SINGLE_EVENTS_MAX = 8


class PartitionRow(NamedTuple):
    """A partition in the metadata."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: The replicas that a reassignment is adding: they still have to copy the records.
    adding: tuple[int, ...] = ()

    @property
    def original_replicas(self) -> tuple[int, ...]:
        return original_replicas(self.replicas, self.adding)

    @property
    def is_under_replicated(self) -> bool:
        return bool(missing_replicas(self.replicas, self.adding, self.isr))

    @property
    def is_offline(self) -> bool:
        return self.leader == NO_LEADER


class Broker(NamedTuple):
    """A registered broker."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class VoterRow(NamedTuple):
    """A replica of the metadata log.

    Its lag is in records, and `silent_ms` is the time since its last Fetch. -1 means not known.
    """

    id: int
    is_voter: bool
    lag: int
    silent_ms: int


class QuorumRow(NamedTuple):
    """The metadata quorum. A `leader` of -1 means that there is none."""

    leader: int
    epoch: int
    high_watermark: int
    replicas: tuple[VoterRow, ...]


@dataclass(frozen=True)
class ConsoleSnapshot:
    """Brokers, topics and the quorum at one time, in milliseconds since the epoch."""

    at_ms: int
    cluster_id: str
    brokers: Mapping[int, Broker]
    topics: Mapping[str, tuple[PartitionRow, ...]]
    internal: frozenset[str] = frozenset()
    quorum: QuorumRow | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def partitions(self) -> Iterator[tuple[str, int, PartitionRow]]:
        for name, partitions in self.topics.items():
            for index, part in enumerate(partitions):
                yield name, index, part

    def led_by(self) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leader."""
        found: dict[int, list[TopicPartition]] = {}
        for name, index, part in self.partitions():
            if not part.is_offline:
                found.setdefault(part.leader, []).append((name, index))
        return found


def snapshot_of(
    at_ms: int,
    metadata: MetadataResponse,
    adding: Mapping[TopicPartition, Collection[int]],
    described: DescribeClusterResponse,
    quorum: PartitionDataResponse | None,
) -> ConsoleSnapshot:
    """Make a snapshot from the responses to four requests."""
    topics = {}
    for topic in metadata.topics:
        rows = sorted(topic.partitions, key=lambda row: row.partition_index)
        topics[str(topic.name)] = tuple(
            PartitionRow(
                row.leader_id,
                row.leader_epoch,
                tuple(row.replica_nodes),
                tuple(sorted(row.isr_nodes)),
                tuple(adding.get((str(topic.name), row.partition_index), ())),
            )
            for row in rows
        )
    brokers = {
        row.broker_id: Broker(row.broker_id, row.host, row.port, row.rack, row.is_fenced) for row in described.brokers
    }
    internal = frozenset(str(topic.name) for topic in metadata.topics if topic.is_internal)
    cluster_id = described.cluster_id or metadata.cluster_id or ""
    return ConsoleSnapshot(
        at_ms, cluster_id, brokers, topics, internal, None if quorum is None else quorum_of(at_ms, quorum)
    )


def quorum_of(at_ms: int, found: PartitionDataResponse) -> QuorumRow:
    rows = [(True, row) for row in found.current_voters] + [(False, row) for row in found.observers]
    ends = {row.replica_id: row.log_end_offset for _, row in rows}
    end = ends.get(found.leader_id, found.high_watermark)
    replicas = tuple(
        VoterRow(
            row.replica_id,
            is_voter,
            -1 if row.log_end_offset < 0 else max(0, end - row.log_end_offset),
            -1 if row.last_fetch_timestamp < 0 else max(0, at_ms - row.last_fetch_timestamp),
        )
        for is_voter, row in sorted(rows, key=lambda each: (not each[0], each[1].replica_id))
    )
    return QuorumRow(found.leader_id, found.leader_epoch, found.high_watermark, replicas)


def changes(before: ConsoleSnapshot, after: ConsoleSnapshot) -> list[Event]:
    """Return the changes: of the controller, brokers, topics, leaders and ISRs."""
    events = [*_quorum_changes(before, after), *_broker_changes(before, after), *_topic_changes(before, after)]
    leaders: list[tuple[str, str]] = []
    isrs: list[tuple[str, str]] = []
    for name in sorted(before.topics.keys() & after.topics.keys()):
        for index, (old, new) in enumerate(zip(before.topics[name], after.topics[name], strict=False)):
            place = f"{name}-{index}"
            if old.leader != new.leader:
                leaders.append((place, f"leader {_node(old.leader)} → {_node(new.leader)}, epoch {new.epoch}"))
            elif old.epoch != new.epoch:
                leaders.append((place, f"leader {_node(new.leader)} elected again, epoch {new.epoch}"))
            if old.isr != new.isr:
                verb = (
                    "shrank" if len(new.isr) < len(old.isr) else "changed" if len(new.isr) == len(old.isr) else "grew"
                )
                isrs.append((place, f"ISR {verb}: {_nodes(old.isr)} → {_nodes(new.isr)}"))
    return [
        *events,
        *_grouped(after.at_ms, "election", leaders, "leaders changed"),
        *_grouped(after.at_ms, "isr", isrs, "ISRs changed"),
    ]


def setting_changes(
    at_ms: int, place: str, before: Mapping[str, str] | None, after: Mapping[str, str]
) -> Iterator[Event]:
    """Return the differences between two readings of the settings of a topic or broker, or None if the first reading is
    missing.
    """
    if before is None:
        return
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            text = f"{name}: {'(default)' if old is None else old} → {'(default)' if new is None else new}"
            yield Event(at_ms, "setting", place, text)


def _quorum_changes(before: ConsoleSnapshot, after: ConsoleSnapshot) -> Iterator[Event]:
    if before.quorum is None or after.quorum is None:
        return
    if before.quorum.leader != after.quorum.leader or before.quorum.epoch != after.quorum.epoch:
        text = f"active controller {_node(before.quorum.leader)} → {_node(after.quorum.leader)}, epoch {after.quorum.epoch}"
        yield Event(after.at_ms, "controller", "quorum", text)


def _broker_changes(before: ConsoleSnapshot, after: ConsoleSnapshot) -> Iterator[Event]:
    for node in sorted(before.brokers.keys() | after.brokers.keys()):
        old, new = before.brokers.get(node), after.brokers.get(node)
        place = f"broker {node}"
        if old is None:
            yield Event(after.at_ms, "broker", place, "registered")
        elif new is None:
            yield Event(after.at_ms, "broker", place, "registration removed")
        elif old.fenced != new.fenced:
            yield Event(after.at_ms, "fencing", place, "fenced" if new.fenced else "unfenced")
        elif old.address != new.address:
            yield Event(after.at_ms, "broker", place, f"moved from {old.address} to {new.address}")


def _topic_changes(before: ConsoleSnapshot, after: ConsoleSnapshot) -> Iterator[Event]:
    for name in sorted(after.topics.keys() - before.topics.keys()):
        yield Event(after.at_ms, "topic", name, f"created with {counted(len(after.topics[name]), 'partition')}")
    for name in sorted(before.topics.keys() - after.topics.keys()):
        yield Event(after.at_ms, "topic", name, "deleted")
    for name in sorted(before.topics.keys() & after.topics.keys()):
        old, new = len(before.topics[name]), len(after.topics[name])
        if old != new:
            yield Event(after.at_ms, "topic", name, f"partitions {old} → {new}")


def _grouped(at_ms: int, kind: str, found: list[tuple[str, str]], many: str) -> list[Event]:
    if len(found) <= SINGLE_EVENTS_MAX:
        return [Event(at_ms, kind, place, text) for place, text in found]
    names = ", ".join(place for place, _ in found[:SINGLE_EVENTS_MAX])
    return [Event(at_ms, kind, counted(len(found), "partition"), f"{many}: {names}, ...")]


def _node(node: int) -> str:
    return "none" if node < 0 else str(node)


def _nodes(nodes: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, nodes))}]"
