"""The delivery of committed records takes a turn of the loop for each slice of the listener's work, on real files and a manual
clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.controller.metadata import loader as metadata_loader
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import REPLAY_UNITS, MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.raft import delivery
from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.core import RaftCore
from ottla.controller.raft.delivery import Delivery
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import Batch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import SnapshotReader, SnapshotWriter
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.internal_topics.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.work import Work
from ottla.storage.files import OsFiles
from tests.manual_clock import ManualClock

ENDPOINT = QuorumEndpoint("CONTROLLER", "host", 9093)
VOTERS = VoterSet.of([Voter(ReplicaKey(2), (ENDPOINT,))])
TURN_RECORDS = 10
PARTITIONS = 95


class Replica:
    """An observer's metadata log, and its loader."""

    def __init__(self, directory: Path) -> None:
        config = RaftConfig(1, b"d" * 16, "c", (ENDPOINT,), static_voters=VOTERS)
        self.clock, self.files = ManualClock(), OsFiles()
        self.log = MetadataLog(self.files, str(directory), config, 0)
        self.core = RaftCore(config, self.log.state, self.log.voters, None, Random(1), 0)
        self.loader = MetadataLoader()
        self.loader.add_publisher(self)
        self.published: list[MetadataImage] = []
        self.replayed: list[int] = [0]
        self.failures: list[BaseException] = []
        self.delivery = Delivery(self.core.state, self.log, self, self.clock, self.failures.append)

    def handle_commit(self, batches: list[CommittedBatch]) -> Work[None]:
        return self.loader.handle_commit(batches)

    def handle_snapshot(self, reader: SnapshotReader) -> Work[None]:
        return self.loader.handle_snapshot(reader)

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        pass

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.published.append(image)

    def receive(self, snapshot: OffsetAndEpoch, topic: str) -> None:
        """Receive a snapshot of one topic from the leader, which replaces the log."""
        writer = SnapshotWriter(
            self.files,
            self.log.snapshots.path(snapshot),
            snapshot,
            last_contained_log_timestamp=1,
            kraft_version=0,
            voters=None,
            now_ms=1,
        )
        writer.append(encode_metadata(records_of(topic), 30))
        writer.freeze()
        self.core.state.log.reset_to_snapshot(snapshot)
        self.core.state.high_watermark = snapshot.offset
        self.log.reset_to_snapshot(snapshot)

    def append(self, topic: str) -> None:
        values = encode_metadata(records_of(topic), 30)
        first = self.core.state.log.end_offset
        self.log.append(Batch(first, first + len(values) - 1, 1, values), 1)
        self.core.state.log.append(first, first + len(values) - 1, 1)
        self.core.state.high_watermark = self.core.state.log.end_offset

    def turns(self) -> int:
        """Run until nothing is left to do, and return the number of turns of the loop."""
        self.delivery.run()
        turns = 1
        while self.clock.armed:
            self.next_turn()
            turns += 1
        assert not self.failures and self.delivery.is_idle
        return turns

    def next_turn(self) -> None:
        (timer,) = self.clock.armed
        self.replayed.append(0)
        self.clock.call(timer)

    @property
    def topics(self) -> set[str]:
        return set(self.loader.image.topics.names)


def records_of(topic: str) -> list[object]:
    topic_id = topic.encode().ljust(16)
    partitions = [PartitionRecord(partition_id=each, topic_id=topic_id, replicas=[1]) for each in range(PARTITIONS)]
    return [TopicRecord(name=topic, topic_id=topic_id), *partitions]


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    monkeypatch.setattr(metadata_loader, "UNITS_A_TURN", TURN_RECORDS * REPLAY_UNITS)
    made = Replica(tmp_path)
    replay = MetadataDelta.replay

    def counted(delta: MetadataDelta, record: object) -> None:
        made.replayed[-1] += 1
        replay(delta, record)

    monkeypatch.setattr(MetadataDelta, "replay", counted)
    yield made
    made.log.close()


def test_a_snapshot_is_replayed_a_bounded_number_of_records_in_each_turn_and_seen_as_a_whole(replica: Replica) -> None:
    replica.receive(OffsetAndEpoch(200, 1), "a")
    replica.delivery.run()
    assert not replica.topics and not replica.published and replica.loader.last_offset == -1
    while replica.clock.armed:
        assert not replica.published and not replica.topics
        replica.next_turn()
    assert max(replica.replayed) <= TURN_RECORDS and sum(replica.replayed) == PARTITIONS + 1
    assert replica.topics == {"a"} and replica.loader.last_offset == 199
    assert [len(image.topics.by_name("a").partitions) for image in replica.published] == [PARTITIONS]


def test_a_large_batch_is_replayed_in_turns_and_published_once(replica: Replica) -> None:
    replica.append("a")
    assert replica.turns() > PARTITIONS // TURN_RECORDS
    assert max(replica.replayed) <= TURN_RECORDS
    assert replica.topics == {"a"} and len(replica.published) == 1
    assert replica.loader.last_offset == PARTITIONS


def test_a_snapshot_that_a_newer_one_replaces_while_it_is_read_is_given_up(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer snapshot removes the older one's file, and no part of the older one is published."""
    monkeypatch.setattr("ottla.controller.raft.snapshots.READ_BYTES", 2_000)
    monkeypatch.setattr("ottla.controller.raft.snapshots.BATCH_BYTES_MAX", 1_000)
    replica.receive(OffsetAndEpoch(200, 1), "old")
    replica.delivery.run()
    replica.next_turn()
    replica.receive(OffsetAndEpoch(300, 2), "new")
    replica.turns()
    assert [set(image.topics.names) for image in replica.published] == [{"new"}]
    assert replica.loader.last_offset == 299


def test_what_is_committed_while_a_snapshot_takes_effect_comes_after_it(replica: Replica) -> None:
    replica.receive(OffsetAndEpoch(200, 1), "a")
    replica.delivery.run()
    replica.append("b")
    replica.turns()
    assert [set(image.topics.names) for image in replica.published] == [{"a"}, {"a", "b"}]


def test_a_late_publisher_is_introduced_in_turns_and_misses_nothing(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        def __init__(self) -> None:
            self.partitions: list[tuple[str, int]] = []

        def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
            self.partitions += [(topic.name, index) for topic, index, _, _ in delta.topics.partition_changes()]

    for name in "abc":
        replica.append(name)
    replica.turns()
    monkeypatch.setattr(metadata_loader, "UNITS_A_TURN", PARTITIONS)
    late = Late()
    replica.delivery.insert(replica.loader.introduce(late))
    assert len(replica.clock.armed) == 1, "a topic in each turn"
    replica.append("d")
    assert not late.partitions and replica.topics == {"a", "b", "c"}
    assert replica.turns() >= 3
    assert late.partitions == [(topic, index) for topic in "abcd" for index in range(PARTITIONS)]


def test_nothing_more_is_handed_over_after_the_end(replica: Replica) -> None:
    replica.receive(OffsetAndEpoch(200, 1), "a")
    replica.delivery.run()
    replica.delivery.is_over = True
    replica.next_turn()
    assert not replica.clock.armed and not replica.published


def test_many_batches_are_delivered_a_bounded_number_of_bytes_in_each_turn(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_loader, "UNITS_A_TURN", 1 << 30)
    names = [f"topic-{number}" for number in range(6)]
    for name in names:
        replica.append(name)
    size = sum(batch.size_bytes for batch in replica.log.committed(0, replica.core.state.high_watermark, 1 << 30))
    monkeypatch.setattr(delivery, "DELIVERY_BYTES_MAX", size // 6 - 1)
    assert replica.turns() == 6
    assert replica.topics == set(names)
