"""The invariants that hold at every moment, looked at from outside of all nodes. The numbers are in docs/dev/INVARIANTS.md.

Two kinds of memory make the checks cheap. `Committed` is one partition's log as anybody ever saw it below a high watermark:
each replica is read once from where it was looked at last. Everything else is a dictionary of what was seen once and may
never be seen differently.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinator.coordinator import partition_for
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import LOST_DIR, MIGRATING_DIR, UNASSIGNED_DIR, PartitionRegistration
from ottla.controller.raft.roles import Candidate, Leader
from ottla.storage.log.log import Log
from tests.controller.images import same_content
from tests.histories import Violation
from tests.sim.cluster import SimCluster, SimNode
from tests.sim.history import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition

METADATA = (b"__cluster_metadata", 0)
#: The places up to which a replica's log was checked, by node, life and directory (a log that has moved is read again).
Reader = tuple[int, int, str]


@dataclass(slots=True)
class Committed:
    """Batches that were below some replica's high watermark: base offset to last offset, leader epoch and checksum."""

    batches: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    end: int = 0

    def read(self, log: Log, start: int, end: int, *, adds: bool) -> int:
        """Compare the log with the known batches from `start`; with `adds` it is committed up to `end`.

        Return where the check ended.
        """
        at = max(start, log.log_start_offset)
        end = min(end, log.log_end_offset)
        if at >= end:
            return at
        for batch in log.batches(at, end):
            if batch.next_offset > end:
                break
            found = (batch.last_offset, batch.partition_leader_epoch, batch.crc)
            known = self.batches.get(batch.base_offset)
            if known is None:
                if not adds:
                    break
                if batch.base_offset < self.end:
                    self._check_gap(batch.base_offset, batch.last_offset)
                self.batches[batch.base_offset] = found
                self.end = max(self.end, batch.next_offset)
            elif known != found:
                raise Violation("3", f"at {batch.base_offset} was {known}, now is {found}")
            at = batch.next_offset
        return at

    def _check_gap(self, base: int, last: int) -> None:
        """A log that starts after the point at which others were last checked leaves a gap, which another log may fill later."""
        for other, (other_last, *_) in self.batches.items():
            if other <= last and other_last >= base:
                raise Violation("3", f"a batch {base}-{last} where others have {other}-{other_last}")


class Once:
    """Facts that never change after they were first seen."""

    def __init__(self) -> None:
        self._facts: dict[Hashable, Any] = {}

    def check(self, number: str, key: Hashable, value: Any) -> None:
        known = self._facts.setdefault(key, value)
        if known != value:
            raise Violation(number, f"{key} was {known}, now is {value}")

    def grows(self, number: str, key: Hashable, value: Any) -> None:
        known = self._facts.get(key)
        if known is not None and value < known:
            raise Violation(number, f"{key} went back from {known} to {value}")
        self._facts[key] = value


class Invariants:
    """One per run; `check` after every step."""

    def __init__(self, cluster: SimCluster, min_isr: int) -> None:
        self._cluster, self._min_isr = cluster, min_isr
        self._once = Once()
        self.committed: dict[tuple[bytes, int], Committed] = {}
        self._read_to: dict[tuple[Reader, tuple[bytes, int]], int] = {}
        self._in_sync_to: dict[tuple[Reader, tuple[bytes, int]], int] = {}
        self._images: dict[int, MetadataImage] = {}
        self._newest_epoch: dict[tuple[bytes, int], int] = {}
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        for node in self._cluster.nodes:
            if not node.is_up or node.server is None:
                continue
            if node.server.started_metadata:
                self._quorum(node)
                self._metadata(node, node.server.metadata.loader.image)
            for partition in node.partitions():
                self._partition(node, partition)
        self._in_sync()
        if self._cluster.unexpected.seen:
            text, failure = self._cluster.unexpected.seen[0]
            raise Violation("0", f"{text}: {failure!r}") from failure

    # -- The quorum --------------------------------------------------------------------------------------------------

    def _quorum(self, node: SimNode) -> None:
        assert node.server is not None
        raft = node.server.metadata.raft
        if raft.failure is not None:
            return
        core, log = raft.core, raft._log.log
        role = core.state.role
        if isinstance(role, Leader):
            self._once.check("18 one leader", ("leads the quorum in", role.epoch), (node.number, node.life))
        voted = role.election.voted
        if isinstance(role, Candidate):
            voted = role.own_key
        if voted is not None:
            self._once.check("18 one vote", (node.number, node.disks, "votes in", role.epoch), voted.id)
        self._once.grows("18 epochs", (node.number, node.disks, "quorum epoch"), role.epoch)
        self._once.grows("20", (node.number, node.life, "quorum high watermark"), core.state.high_watermark)
        self._read("19", node, METADATA, log, core.state.high_watermark)
        self._newest_epoch[METADATA] = max(self._newest_epoch.get(METADATA, -1), role.epoch)
        if isinstance(role, Leader) and role.epoch >= self._newest_epoch[METADATA]:
            known = self._of(METADATA)
            if log.log_end_offset < known.end:
                raise Violation("19", f"{node} leads the quorum and ends at {log.log_end_offset} of {known.end}")

    def _metadata(self, node: SimNode, image: MetadataImage) -> None:
        self._once.grows("25", (node.number, node.life, "image"), image.offset)
        # The image itself is kept: a new image might have the same id as a deleted one, and would then not be checked.
        if self._images.get(node.number) is image:
            return
        self._images[node.number] = image
        for topic in image.topics:
            min_isr = int(image.configs.for_topic(topic.name).get("min.insync.replicas") or self._min_isr)
            for index, registration in topic.partitions.items():
                self._registration(node, (topic.id, index), registration, min_isr)
                self._is_led(image, f"{topic.name}-{index}", registration)
        for broker in image.cluster.brokers.values():
            self._once.check("23", ("broker epoch", broker.epoch), broker.id)

    def _registration(
        self, node: SimNode, key: tuple[bytes, int], registration: PartitionRegistration, min_isr: int
    ) -> None:
        once, r = self._once, registration
        once.grows("22", (node.number, node.life, key, "partition epoch"), (r.leader_epoch, r.partition_epoch))
        once.check("22", (key, "at partition epoch", r.partition_epoch), registration)
        self._newest_epoch[key] = max(self._newest_epoch.get(key, -1), r.leader_epoch)
        if r.leader >= 0:
            once.check("17", (key, "is led in", r.leader_epoch), r.leader)
            if r.leader not in r.isr:
                raise Violation("22", f"{key} is led by {r.leader}, which is not in sync: {registration}")
        if not set(r.isr) <= set(r.replicas) or set(r.isr) & set(r.elr):
            raise Violation("22", f"{key}: {registration}")
        if len(r.isr) >= min_isr and r.elr:
            raise Violation("22", f"{key} has eligible replicas beside enough in sync: {registration}")

    def _is_led(self, image: MetadataImage, name: str, r: PartitionRegistration) -> None:
        """Check that no partition is without a leader if one of its replicas is in service, has all committed records, and has
        its directory (invariant 54).
        """
        if r.leader >= 0:
            return
        for number in r.isr or r.elr:
            broker = image.cluster.brokers.get(number)
            directory = r.directory(number)
            # Below metadata.version 17 a registration names no directories, and all are online (KAFKA-16162).
            if (
                broker is not None
                and broker.active
                and directory != LOST_DIR
                and (
                    directory in (UNASSIGNED_DIR, MIGRATING_DIR)
                    or not broker.directories
                    or directory in broker.directories
                )
            ):
                raise Violation("54", f"{name} has no leader, {number} could lead it: {r}, {broker}")

    # -- Partitions --------------------------------------------------------------------------------------------------

    def _partition(self, node: SimNode, partition: Partition) -> None:
        log = partition.log
        if log is None or partition.offline or log.failure is not None:
            return
        key, life = (partition.topic_id, partition.index), (node.number, node.life)
        if not 0 <= log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            start, high, end = log.log_start_offset, log.high_watermark, log.log_end_offset
            raise Violation("12", f"{node} {partition}: start {start}, high watermark {high}, end {end}")
        if log.epochs.latest > partition.leader_epoch:
            epochs = f"epoch {log.epochs.latest}, and follows the leader of {partition.leader_epoch}"
            raise Violation("17", f"{node} {partition} has records of {epochs}: it was given what a fence keeps back")
        if log.last_stable_offset > log.high_watermark:
            raise Violation("32", f"{node} {partition}: stable up to {log.last_stable_offset} of {log.high_watermark}")
        self._once.grows("12", (life, key, "log start"), log.log_start_offset)
        self._read("3", node, key, log, log.high_watermark)
        if partition.leader_log is not None:
            epoch = partition.leader_epoch
            self._knows_itself(node, partition)
            self._once.check("17", (key, "is led in", epoch), node.number)
            self._once.grows("8", (life, key, epoch, "high watermark"), log.high_watermark)
            if not partition.isr.maximal >= partition.isr.members:
                raise Violation(
                    "6", f"{node} {partition}: {partition.isr.maximal} lacks members of {partition.isr.members}"
                )
            known = self._of(key)
            if log.log_end_offset < known.end and epoch >= self._newest_epoch.get(key, -1):
                raise Violation(
                    "4", f"{node} leads {partition} and ends at {log.log_end_offset}, committed is {known.end}"
                )

    def _knows_itself(self, node: SimNode, partition: Partition) -> None:
        """Check that a broker whose crash may have lost records does not lead them by metadata that is older than its
        registration (invariant 23).
        """
        server = node.server
        assert server is not None and server.broker is not None and server._lifecycle is not None
        own = server.broker.metadata.image.cluster.brokers.get(node.number)
        epoch = server._lifecycle.broker_epoch
        if own is not None and (epoch < 0 or own.epoch < epoch):
            raise Violation(
                "23", f"{node} leads {partition} by metadata in which its epoch is {own.epoch}, not {epoch}"
            )

    def leadership(self, number: int, topic: str, key: str) -> tuple[int, int] | None:
        """Return the life and the leader epoch in which the node leads the key's partition of a coordinator's topic, if no node
        knows a newer epoch. If they are equal before a request and after its response, no former coordinator has answered.
        """
        self.check()
        node = self._cluster.by_number[number]
        if not node.is_up or node.server is None or node.server.broker is None:
            return None
        known = node.server.broker.metadata.image.topics.by_name(topic)
        index = -1 if known is None else partition_for(key, len(known.partitions))
        partition = node.server.broker.replicas.get(topic, index)
        if partition is None or partition.leader_log is None:
            return None
        newest = self._newest_epoch.get((partition.topic_id, index), -1)
        return (node.life, partition.leader_epoch) if partition.leader_epoch >= newest else None

    def _in_sync(self) -> None:
        """Check that every member of ISR or ELR that runs in the life known to the controller has all committed records."""
        image = self._cluster.decided_image
        if image is None:
            return
        for topic in image.topics:
            for index, registration in topic.partitions.items():
                known = self.committed.get((topic.id, index))
                if known is not None:
                    for number in (*registration.isr, *registration.elr):
                        self._member(image, number, (topic.id, index), known)

    def _member(self, image: MetadataImage, number: int, key: tuple[bytes, int], known: Committed) -> None:
        node = self._cluster.by_number[number]
        partition = self._replica(node, key)
        broker = image.cluster.brokers.get(number)
        if partition is None or partition.log is None or partition.offline or partition.log.failure is not None:
            return
        assert node.server is not None and node.server._lifecycle is not None
        if broker is None or broker.epoch != node.server._lifecycle.broker_epoch:
            return
        log = partition.log
        if log.log_end_offset < known.end:
            raise Violation(
                "5", f"{node} is in sync or eligible for {partition} and ends at {log.log_end_offset} of {known.end}"
            )
        place = ((number, node.life, log.directory), key)
        self._in_sync_to[place] = known.read(log, self._in_sync_to.get(place, 0), known.end, adds=False)

    def _replica(self, node: SimNode, key: tuple[bytes, int]) -> Partition | None:
        if not node.is_up or node.server is None or node.server.broker is None:
            return None
        return node.server.broker.replicas.by_id.get(key[0], {}).get(key[1])

    def _of(self, key: tuple[bytes, int]) -> Committed:
        return self.committed.setdefault(key, Committed())

    def _read(self, number: str, node: SimNode, key: tuple[bytes, int], log: Log, high_watermark: int) -> None:
        place = ((node.number, node.life, log.directory), key)
        begin = self._read_to.get(place, 0)
        if high_watermark <= begin:
            return
        try:
            self._read_to[place] = self._of(key).read(log, begin, high_watermark, adds=True)
        except Violation as found:
            raise Violation(number, f"{node}, {log}: {found}") from None

    # -- Acknowledgements --------------------------------------------------------------------------------------------

    def acknowledged(self, partition: TopicPartition, last_offset: int) -> None:
        """KIP-966: check that at least min.insync.replicas nodes have the records when a producer gets its acknowledgement.

        A node that is down may have them.
        """
        holders = [node for node in self._cluster.brokers if self._may_hold(node, partition, last_offset)]
        if len(holders) < self._min_isr:
            raise Violation("7", f"{partition} is acknowledged up to {last_offset}, and is at {holders} only")

    def _may_hold(self, node: SimNode, partition: TopicPartition, last_offset: int) -> bool:
        if not node.is_serving or not node.is_up or node.server is None or node.server.broker is None:
            return True
        replica = node.server.broker.replicas.get(*partition)
        if replica is None or replica.log is None:
            return False
        return replica.log.log_end_offset > last_offset

    def same_metadata(self) -> None:
        """Check that the metadata at one offset is the same, no matter whether a node has it from the log or from a snapshot
        (invariant 21).
        """
        images: dict[int, tuple[SimNode, MetadataImage]] = {}
        for node in self._cluster.nodes:
            if node.is_up and node.server is not None and node.server.started_metadata:
                image = node.server.metadata.loader.image
                other, known = images.setdefault(image.offset, (node, image))
                if not same_content(image, known):
                    raise Violation(
                        "21", f"the metadata at offset {image.offset} is not the same on {node} and {other}"
                    )

    def describe(self) -> Iterator[str]:
        """Return a description of every replica for a failed run."""
        for node in self._cluster.nodes:
            state = "serves" if node.is_serving else "is up" if node.is_up else "is down"
            yield f"{node} {state}, life {node.life}, failure {node.failure!r}"
            for p in node.partitions():
                if p.log is not None:
                    log = p.log
                    yield (
                        f"    {p} epoch {p.leader_epoch}/{p.isr.partition_epoch} leader {p.leader_id} isr {sorted(p.isr.members)}"
                        f" start {log.log_start_offset} hw {log.high_watermark} end {log.log_end_offset}"
                    )
