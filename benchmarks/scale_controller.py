"""The controller's side of `benchmarks.scale`: an active controller with the real encoding of the log, and snapshots of the
metadata log.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.scale_turns import BROKERS, Figures, due, topics
from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import fence_records, register_broker, unfence_records
from ottla.controller.decisions.control_state import ControlSettings, ControlState
from ottla.controller.decisions.elections import Candidates, elect_unclean_leaders, return_to_preferred_leaders
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Decision, Outcome, in_turns
from ottla.controller.decisions.topics import create_topics, delete_topics
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.metadata.snapshots import writing_snapshot
from ottla.controller.periodic import ScheduledTasks
from ottla.controller.raft.batches import CommittedBatch, committed_batches, control_bytes, data_batch
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import ControlRecords, LeaderChange
from ottla.controller.raft.snapshots import PART, Snapshots, SnapshotWriter
from ottla.controller.raft.voters import ReplicaKey
from ottla.controller.runtime import Controller
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, PartitionDataRequest, TopicDataRequest
from ottla.protocol.messages.create_topics import CreatableTopic
from ottla.storage.files import OsFiles
from tests.controller.decisions.test_brokers import registration
from tests.controller.harness import CLUSTER_ID, DecisionHarness
from tests.manual_clock import ManualClock

VERSION = 30
EPOCH = 2
MANY = 10_000


class EncodedLog:
    """A log in memory, with batches as the real log has them."""

    def __init__(self, end_offset: int) -> None:
        self.log_end_offset = end_offset
        self.batches: list[bytes] = []

    def append_atomic(self, records: list[bytes], *, epoch: int) -> int:
        self.batches.append(data_batch(records, base_offset=self.log_end_offset, epoch=epoch, now_ms=0))
        self.log_end_offset += len(records)
        return self.log_end_offset - 1

    def resign(self, epoch: int) -> None:
        raise AssertionError(f"resigned in epoch {epoch}")


class ActiveController:
    """An active controller of an image. Its appends are committed in the following turns."""

    def __init__(self, loader: MetadataLoader) -> None:
        self.clock, self.loader = ManualClock(), loader
        self.log = EncodedLog(loader.last_offset + 1)
        settings = ControlSettings(node_id=1, cluster_id=CLUSTER_ID)
        self.controller = Controller(1, self.clock, Random(1), self.log, loader, settings)
        self.tasks = ScheduledTasks(self.controller)

    def elected(self) -> Iterator[None]:
        leader = ReplicaKey(1)
        change = ControlRecords(LeaderChange(leader, (leader,), (leader,)))
        first = control_bytes(change, base_offset=self.log.log_end_offset, epoch=EPOCH, now_ms=0)
        self.log.log_end_offset += 1
        self.log.batches.append(first)
        yield from self.commits()
        self.controller.leader_changed(1, EPOCH)
        yield from self.turns()

    def turns(self) -> Iterator[None]:
        """Run all that is due, and deliver what it appends; each step is a turn."""
        yield
        for _ in due(self.clock):
            yield
            yield from self.commits()
        yield from self.commits()

    def commits(self) -> Iterator[None]:
        while self.log.batches:
            batches: list[CommittedBatch] = committed_batches(self.log.batches.pop(0))
            yield from self.loader.handle_commit(batches)
            self.controller.committed()
            yield

    def writes(self, decide: Callable[[ControlState], Outcome[Any]]) -> Iterator[None]:
        self.controller.write_in_turns(decide)
        yield from self.turns()

    def looks(self, election: Callable[[ControlState, Candidates], Outcome[bool]]) -> Iterator[None]:
        """Run a scheduled election; each step is a turn."""
        is_more, candidates = True, Candidates()
        while is_more:
            is_more = election(self.controller.state, candidates).response
            yield

    def fences(self, broker_id: int) -> Iterator[None]:
        self.controller.write(lambda state: Outcome(fence_records(state, broker_id), None))
        self.tasks.broker_changed(broker_id)
        yield from self.turns()

    def unfences(self, broker_id: int) -> Iterator[None]:
        epoch = self.controller.state.image.cluster.brokers[broker_id].epoch
        self.controller.write(lambda state: Outcome(unfence_records(state, broker_id, epoch), None))
        self.tasks.broker_changed(broker_id)
        yield from self.turns()


def measure_controller(figures: Figures, partitions: int, of_a_topic: int) -> None:
    """Measure snapshots, elections, a broker that goes and comes back, and large requests."""
    with on_active_controller(figures, partitions, of_a_topic) as (node, directory):
        figures.turns("fence of a broker in all its ISRs", node.fences(1))
        figures.turns("unfence of the same", node.unfences(1))
        requests(figures, node)
        figures.turns(
            "a snapshot over another image (its former partitions are freed)",
            node.loader.handle_snapshot(snapshots(directory).reader(known(directory))),
        )
        figures.turns("the index is emptied after a lost leadership", lost(node))


def measure_outage(figures: Figures, partitions: int, of_a_topic: int) -> None:
    """Measure an outage: all brokers go and come back, so that each partition changes several times. This takes most of the
    time.
    """
    with on_active_controller(Figures(), partitions, of_a_topic) as (node, _):
        all_brokers_come_and_go(figures, node)
        names = sorted(node.controller.state.image.topics.names)
        figures.turns("DeleteTopics: all, after the outage, in one request", deletes(node, names[:MANY]))
        figures.turns("the index is emptied after the outage", lost(node))


@contextmanager
def on_active_controller(figures: Figures, partitions: int, of_a_topic: int) -> Iterator[tuple[ActiveController, Path]]:
    """Yield an elected controller that has read a snapshot, and the directory of the snapshot."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-scale-"))
    try:
        image = image_of(partitions, of_a_topic)
        gc.collect()
        figures.heap("heap of the image, MB")
        written(figures, directory, image)
        node = ActiveController(restarted(figures, directory))
        figures.turns("election: index, first scheduled tasks", node.elected())
        gc.collect()
        figures.heap("heap of the active controller's index, MB")
        del image
        yield node, directory
    finally:
        shutil.rmtree(directory)


def image_of(partitions: int, of_a_topic: int) -> MetadataImage:
    cluster = DecisionHarness(BROKERS)
    delta = MetadataDelta(cluster.image)
    delta.replay_all(topics(partitions, of_a_topic))
    return delta.apply(cluster.offset + partitions, 1)


def written(figures: Figures, directory: Path, image: MetadataImage) -> None:
    at = OffsetAndEpoch(image.offset + 1, 1)
    path = snapshots(directory).path(at)
    writer = SnapshotWriter(OsFiles(), path, at, last_contained_log_timestamp=0, kraft_version=0, voters=None, now_ms=0)
    figures.turns("snapshot: written, without its sync", writing_snapshot(image, writer))
    size = writer.freeze()
    figures.number("snapshot: MB", size / 1e6)
    shutil.copy(path, path + PART)
    figures.turns("snapshot: checked after a download", snapshots(directory).checking(at))


def snapshots(directory: Path) -> Snapshots:
    return Snapshots(OsFiles(), str(directory))


def known(directory: Path) -> OffsetAndEpoch:
    return snapshots(directory).known()[-1]


def restarted(figures: Figures, directory: Path) -> MetadataLoader:
    loader = MetadataLoader()
    reader = snapshots(directory).reader(known(directory))
    figures.turns("snapshot: read, replayed, swapped in", loader.handle_snapshot(reader))
    gc.collect()
    figures.heap("heap of the same image, as read from the snapshot, MB")
    return loader


def all_brokers_come_and_go(figures: Figures, node: ActiveController) -> None:
    state = node.controller.state
    for broker_id in range(1, BROKERS + 1):
        for _ in node.fences(broker_id):
            pass
    assert len(state.index.leaderless_partitions) == sum(len(topic.partitions) for topic in state.image.topics)
    figures.turns("unclean elections are looked for, all leaders are gone", node.looks(elect_unclean_leaders))
    figures.turns("unfence of the last one after all were down", node.unfences(BROKERS))
    led = len(state.index.led_by(BROKERS))
    figures.number("leaderships of that broker", led)
    figures.turns("fence of that broker, which leads them all", node.fences(BROKERS))
    for broker_id in range(BROKERS, 0, -1):
        for _ in node.unfences(broker_id):
            pass
    assert not state.index.leaderless_partitions
    figures.number("partitions with another leader than the preferred one", len(state.index.imbalanced))
    figures.turns("preferred leaders are looked for, none can be elected", node.looks(return_to_preferred_leaders))
    leader = max(range(1, BROKERS + 1), key=lambda each: len(state.index.led_by(each)))
    figures.number("leaderships of the broker of the following", len(state.index.led_by(leader)))
    figures.turns("one AlterPartition of all of them", node.writes(in_turns(lambda state: all_back(state, leader))))
    figures.turns("its registration after an unclean stop", registers_again(node, leader))


def all_back(state: ControlState, leader: int) -> Decision[Any]:
    """Decide that all replicas of the partitions led by this broker are in sync again."""
    asked: dict[bytes, list[PartitionDataRequest]] = {}
    for topic_id, index in state.index.led_by(leader):
        partition = state.image.topics.partition(topic_id, index)
        assert partition is not None
        asked.setdefault(topic_id, []).append(
            PartitionDataRequest(
                partition_index=index, leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch,
                new_isr=list(partition.replicas),
            )
        )  # fmt: skip
    epoch = state.image.cluster.brokers[leader].epoch
    data = [TopicDataRequest(topic_id=topic_id, partitions=each) for topic_id, each in asked.items()]
    return alter_partition(state, AlterPartitionRequest(broker_id=leader, broker_epoch=epoch, topics=data))


def registers_again(node: ActiveController, broker_id: int) -> Iterator[None]:
    leaving, request = Leaving(), registration(broker_id)
    return node.writes(
        lambda state: register_broker(state, request, node.log.log_end_offset, has_session=False, leaving=leaving)
    )


def requests(figures: Figures, node: ActiveController) -> None:
    harness = DecisionHarness(1)

    def create(*wanted: CreatableTopic) -> Iterator[None]:
        return node.writes(
            in_turns(
                lambda state: create_topics(
                    state, wanted, harness.configs, node.controller.rng, validate_only=False,
                    describable=frozenset(topic.name for topic in wanted),
                )
            )
        )  # fmt: skip

    figures.turns(
        "CreateTopics: 10 topics of 990 partitions",
        create(*(CreatableTopic(name=f"new-{n}", num_partitions=990, replication_factor=3) for n in range(10))),
    )
    figures.turns(
        "CreateTopics: 3,000 topics of one",
        create(*(CreatableTopic(name=f"small-{n}", num_partitions=1, replication_factor=3) for n in range(3_000))),
    )
    figures.turns(
        "CreateTopics: one of 9,999",
        create(CreatableTopic(name="large", num_partitions=MANY - 1, replication_factor=3)),
    )
    figures.turns("DeleteTopics: that one", deletes(node, ["large"]))
    figures.turns("DeleteTopics: the 3,000", deletes(node, [f"small-{n}" for n in range(3_000)]))
    names = [name for name in sorted(node.controller.state.image.topics.names) if name.startswith("topic-")]
    figures.turns("DeleteTopics: all that were there before, in one request", deletes(node, names[:MANY]))


def deletes(node: ActiveController, names: Sequence[str]) -> Iterator[None]:
    found = [(name, node.controller.state.image.topics.id_of(name) or b"") for name in names]
    return node.writes(in_turns(lambda state: delete_topics(state, found)))


def lost(node: ActiveController) -> Iterator[None]:
    node.controller.leader_changed(-1, EPOCH + 1)
    yield from due(node.clock)
