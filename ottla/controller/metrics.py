"""Metrics of the whole cluster, reported by each controller as in Kafka, of a controller's work, and of each node's raft replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from ottla.controller.controller_node import MetadataNode
from ottla.controller.metadata.cluster import BrokerRegistration
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.topics import RECOVERED, RECOVERING, TopicImage
from ottla.controller.raft.driver import RaftNode
from ottla.controller.runtime import MS_PER_UNIT, Controller
from ottla.protocol.slotted import mutable
from ottla.server.clock import Clock
from ottla.server.metrics import GAUGE, Family, Histogram, Sample, counter, gauge, histograms

CONTROLLER = "kafka_controller_kafkacontroller"
QUEUE = "kafka_controller_controllereventmanager"
RAFT = "kafka_server_raftmetrics"
OFFLINE = "Partitions without a leader"
TOPICS_A_TURN = 100


class Faults(NamedTuple):
    """Partitions of a topic without a leader, and those led by another than their first replica."""

    topic: TopicImage
    offline: int
    imbalanced: int


class ControllerMetrics:
    """A publisher, which counts leader elections when they are published, and a source of metrics."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._unclean_elections = 0
        self._elections = 0
        self._elections_from_elr = 0
        #: The counts of a standby, by topic id.
        self._faults: dict[bytes, Faults] = {}

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._controller.is_active:
            return
        for changed in delta.changed_topics.values():
            for index, after in changed.partition_changes.items():
                before = changed.image.partitions.get(index)
                if before is None or before.leader == after.leader or not after.has_leader:
                    continue
                self._elections += 1
                self._elections_from_elr += after.leader in before.elr
                unclean = after.leader_recovery_state == RECOVERING and before.leader_recovery_state == RECOVERED
                self._unclean_elections += unclean or after.leader not in (*before.isr, *before.elr)

    def __call__(self) -> Iterator[Family]:
        controller = self._controller
        active = controller.is_active
        yield gauge(f"{CONTROLLER}_activecontrollercount", "1 on the active controller", int(active))
        stats = "kafka_controller_controllerstats"
        yield counter(f"{stats}_uncleanleaderelections", "Unclean leader elections", self._unclean_elections)
        yield counter(f"{stats}_leaderelections", "Changes of leaders", self._elections)
        doc = "Elections of an eligible leader replica"
        yield counter(f"{stats}_electionfromeligibleleaderreplicas", doc, self._elections_from_elr)
        if active:
            index = controller.state.index
            self._faults.clear()
            yield from self._of_cluster(controller.state.image, len(index.leaderless_partitions), len(index.imbalanced))
            yield from self._for_exporters(controller.state.image)
        else:
            image = controller.loader.image
            yield from self._count_faults(image)
            counted = self._faults.values()
            yield from self._of_cluster(image, sum(of.offline for of in counted), sum(of.imbalanced for of in counted))

    def _count_faults(self, image: MetadataImage) -> Iterator[Family]:
        """Count the partitions of a standby, which has no index of them, by topic. Only changed topics are counted again.

        It yields families without samples, because a scrape may end its turn at each family.
        """
        before, self._faults = self._faults, {}
        for number, topic in enumerate(image.topics):
            known = before.get(topic.id)
            if known is None or known.topic is not topic:
                partitions = topic.partitions.values()
                offline = sum(not partition.has_leader for partition in partitions)
                known = Faults(topic, offline, sum(not partition.has_preferred_leader for partition in partitions))
            self._faults[topic.id] = known
            if number % TOPICS_A_TURN == 0:
                yield Family(f"{CONTROLLER}_offlinepartitionscount", GAUGE, OFFLINE, [])

    def _of_cluster(self, image: MetadataImage, offline: int, imbalanced: int) -> Iterator[Family]:
        brokers = image.cluster.brokers.values()
        fenced = sum(broker.fenced for broker in brokers)
        gauges = (
            ("offlinepartitionscount", OFFLINE, offline),
            ("preferredreplicaimbalancecount", "Partitions led by another than their first replica", imbalanced),
            ("globaltopiccount", "Topics", len(image.topics)),
            ("globalpartitioncount", "Partitions", sum(len(topic.partitions) for topic in image.topics)),
            ("activebrokercount", "Brokers that take part", len(image.cluster.brokers) - fenced),
            (
                "controlledshutdownbrokercount",
                "Brokers that are about to stop",
                sum(broker.in_controlled_shutdown for broker in brokers),
            ),
            ("fencedbrokercount", "Brokers that are registered and silent", fenced),
            # A node with such an error stops, because its state would differ from the log (raft/delivery.py).
            ("metadataerrorcount", "Records that could not be replayed by this running node: none", 0),
        )
        for name, doc, value in gauges:
            yield gauge(f"{CONTROLLER}_{name}", doc, value)
        doc = "State of the broker: 10 fenced, 20 about to stop, 30 active"
        states = [Sample({"broker": str(broker.id)}, _registration_state(broker)) for broker in brokers]
        yield Family(f"{CONTROLLER}_brokerregistrationstate", GAUGE, doc, states)

    def _for_exporters(self, image: MetadataImage) -> Iterator[Family]:
        """Yield the names of kafka_exporter, which asks the cluster: one node of it reports them, because dashboards add them up."""
        brokers = image.cluster.brokers.values()
        fenced = sum(broker.fenced for broker in brokers)
        yield gauge("kafka_brokers", "Brokers that take part", len(image.cluster.brokers) - fenced)
        first = [
            (broker.id, next(iter(broker.endpoints.values())))
            for broker in brokers
            if broker.endpoints and not broker.fenced
        ]
        info = [Sample({"id": str(node_id), "address": f"{e.host}:{e.port}"}, 1) for node_id, e in first]
        yield Family("kafka_broker_info", GAUGE, "One per broker", info)
        counts = [Sample({"topic": topic.name}, len(topic.partitions)) for topic in image.topics]
        yield Family("kafka_topic_partitions", GAUGE, "Partitions of the topic", counts)


def _registration_state(broker: BrokerRegistration) -> int:
    """Return Kafka's number of the state (BrokerRegistrationState)."""
    if broker.fenced:
        return 10
    return 20 if broker.in_controlled_shutdown else 30


@mutable
class ControllerWorkMetrics:
    """A source of the controller's work, under the names of Kafka's QuorumControllerMetrics: applied records, durations of
    decisions.

    Kafka's controller has a queue of events, and an event that has waited in it for too long times out. Here a decision begins
    in the turn of the loop in which its request is read: nothing waits, nothing times out, and those metrics are 0.
    """

    controller: Controller
    metadata: MetadataNode

    def __call__(self) -> Iterator[Family]:
        controller, operations = self.controller, self.controller.operations
        applied_ms = self._applied_ms()
        gauges = (
            ("lastappliedrecordoffset", "Offset of the newest record applied here", controller.last_applied_offset),
            ("lastcommittedrecordoffset", "Offset of the newest committed record", controller.loader.last_offset),
            ("lastappliedrecordtimestamp", "Time of the append of the newest record applied here", applied_ms),
            (
                "lastappliedrecordlagms",
                "Milliseconds since the newest record was appended",
                controller.clock.wall_ms() - applied_ms,
            ),
            ("newactivecontrollerscount", "Active controllers that this node has seen", controller.leaders),
            ("timedoutbrokerheartbeatcount", "Heartbeats that waited for too long: none", 0),
            ("eventqueueoperationsstartedcount", "Decisions begun", operations.started),
            ("eventqueueoperationstimedoutcount", "Decisions that waited for too long: none", 0),
        )
        for name, doc, value in gauges:
            yield gauge(f"{CONTROLLER}_{name}", doc, value)
        times: list[tuple[dict[str, str], Histogram]] = [({}, operations.times)]
        yield from histograms(f"{QUEUE}_eventqueuetimems", "Milliseconds that decisions waited: none", times, 0)
        doc = "Milliseconds that decisions took"
        yield from histograms(f"{QUEUE}_eventqueueprocessingtimems", doc, times, MS_PER_UNIT)
        yield self._since_contact()

    def _applied_ms(self) -> int:
        """Return the time of the newest record of `image`: the append of an uncommitted one was this controller's own."""
        controller = self.controller
        if controller.last_applied_offset == controller.loader.last_offset:
            return self.metadata.last_append_time_ms
        clock = controller.clock
        return clock.wall_ms() - (clock.mono_ms() - controller.last_append_ms)

    def _since_contact(self) -> Family:
        """Return the time since each broker's last heartbeat. The active controller alone has sessions."""
        since: dict[int, int] = {}
        if self.controller.is_active:
            since = self.controller.heartbeats.since_contact_ms(self.controller.clock.mono_ms())
        samples = [Sample({"broker": str(broker_id)}, ms) for broker_id, ms in since.items()]
        doc = "Milliseconds since the broker's last heartbeat, at most a session's"
        return Family(f"{CONTROLLER}_timesincelastheartbeatreceivedms", GAUGE, doc, samples)


@mutable
class RaftMetrics:
    """A source of metrics. Rates are computed between scrapes."""

    raft: RaftNode
    clock: Clock
    _last_end_offset: int = -1
    _last_ms: int = -1
    _rates: dict[str, float] = field(default_factory=lambda: {"append": 0.0, "fetch": 0.0})

    def __call__(self) -> Iterator[Family]:
        raft = self.raft
        self._update_rates()
        role, voted = type(raft.state.role).__name__.lower(), raft.state.role.election.voted
        if role == "follower" and not raft.state.is_voter:
            role = "observer"
        yield gauge(f"{RAFT}_current_state", "The replica's role in the quorum", 1, current_state=role)
        gauges = (
            ("current_leader", "Node id of the quorum's leader", raft.state.leader_id),
            ("current_epoch", "Epoch of the quorum", raft.state.epoch),
            ("current_vote", "Node id that this replica voted for", -1 if voted is None else voted.id),
            ("high_watermark", "Everything below is committed", raft.state.high_watermark),
            ("log_end_offset", "End of this replica's metadata log", raft.log_end_offset),
            ("number_of_voters", "Voters of the quorum", len(raft.state.voters.last.ids)),
            ("append_records_rate", "Records that this leader appends a second", self._rates["append"]),
            ("fetch_records_rate", "Records that this follower fetches a second", self._rates["fetch"]),
        )
        for name, doc, value in gauges:
            yield gauge(f"{RAFT}_{name}", doc, value)
        doc = "1 while the metadata log has no room on its disk, or no descriptor: changes of metadata are refused"
        yield gauge("ottla_metadata_log_short_of_room", doc, int(raft.shortage is not None))
        doc = "1 if controller.quorum.voters is set and the voters of the log are used in its place (KIP-853)"
        yield gauge(f"{CONTROLLER}_ignoredstaticvoters", doc, int(raft.state.ignores_static_voters))

    def _update_rates(self) -> None:
        now_ms, end = self.clock.mono_ms(), self.raft.log_end_offset
        if self._last_ms >= 0 and now_ms > self._last_ms:
            rate = max(0, end - self._last_end_offset) * 1000 / (now_ms - self._last_ms)
            leads = self.raft.is_leader
            self._rates = {"append": rate if leads else 0.0, "fetch": 0.0 if leads else rate}
        self._last_ms, self._last_end_offset = now_ms, end
