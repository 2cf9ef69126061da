"""The answers of one partition to one reader: ranges, divergence, throttles, and the replica that is nearer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.fetch.reader import nearer_replica
from ottla.broker.fetch.session import FetchPartition
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.throttle import Throttle
from ottla.broker.replication.wakeups import Wakeups
from ottla.protocol.errors import ErrorCode
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.retention import delete_records
from ottla.storage.log_config import LogConfig
from tests.broker.fetch.one_partition import fetched
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes
from tests.controller.harness import DecisionHarness
from tests.manual_clock import ManualClock

FOLLOWER, OTHER = 2, 3


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(LogSpec(OsFiles(), Mappings(), str(tmp_path / "t-0"), "t", 0, TOPIC_ID, LogConfig()), clean=True)
    yield opened
    opened.close()


@pytest.fixture
def partition(log: Log) -> Partition:
    made = made_partition(1, "t", 0, TOPIC_ID, Wakeups(ManualClock()), Flushes(), 30_000)
    lead(made, log, 1)
    return made


def lead(partition: Partition, log: Log, epoch: int) -> None:
    partition.become_leader(log, epoch, epoch, (1, FOLLOWER, OTHER), (1, FOLLOWER), NOW_MS)


def append(partition: Partition, count: int) -> None:
    for _ in range(count):
        partition.append(batch([b"a"]), 1, NOW_MS)


def fetching(offset: int, last_fetched_epoch: int = -1) -> FetchPartition:
    return FetchPartition("t", TOPIC_ID, 0, offset, 1 << 20, last_fetched_epoch=last_fetched_epoch)


def test_a_follower_that_diverges_below_the_log_start_is_out_of_range_and_not_sent_back_to_deleted_offsets(
    partition: Partition, log: Log
) -> None:
    append(partition, 3)
    lead(partition, log, 5)
    append(partition, 1)
    log.advance_high_watermark(4)
    delete_records(log, 2)
    diverging = fetched(partition, fetching(3, 3), FOLLOWER, 1).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (1, 3)
    assert fetched(partition, fetching(1, 3), FOLLOWER, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_replica_that_has_ended_gives_way_to_the_one_that_is_there_now(partition: Partition, log: Log) -> None:
    """A session keeps the replica that it has read. Meanwhile the topic is moved away from this broker, and back."""
    append(partition, 1)
    log.advance_high_watermark(1)
    asked = fetching(0)
    assert fetched(partition, asked, -1, -1).high_watermark == 1
    partition.resign()
    again = made_partition(1, "t", 0, TOPIC_ID, Wakeups(ManualClock()), Flushes(), 30_000)
    lead(again, log, 2)
    assert fetched(again, asked, -1, -1).error_code == ErrorCode.NONE
    assert asked.replica is again


def test_a_follower_below_the_local_start_is_sent_to_remote_storage_with_the_offsets_of_the_log(
    partition: Partition, log: Log
) -> None:
    """Kafka's followers take over the log start offset of this response. A consumer does not know the error."""
    append(partition, 8)
    log.advance_high_watermark(8)
    delete_records(log, 2)
    log.local_start_at(6)
    moved = fetched(partition, fetching(4), FOLLOWER, 1)
    assert moved.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert (moved.log_start_offset, moved.high_watermark, bytes(moved.records or b"")) == (2, 8, b"")
    assert fetched(partition, fetching(6), FOLLOWER, 1).records
    assert fetched(partition, fetching(1), FOLLOWER, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("replica_id", "is_held_back"), [(FOLLOWER, False), (OTHER, True)])
def test_a_throttle_holds_back_only_replicas_outside_of_the_isr(
    partition: Partition, log: Log, replica_id: int, is_held_back: bool
) -> None:
    append(partition, 1)
    partition.leader_throttle = throttle = Throttle(ManualClock())
    throttle.bytes_per_second = 1
    throttle.record(1 << 20)
    found = fetched(partition, fetching(0), replica_id, 1).records
    assert (found is None or len(found) == 0) is is_held_back


def test_a_consumer_is_sent_to_a_replica_of_its_rack_only_while_that_is_in_the_isr(
    partition: Partition, log: Log
) -> None:
    append(partition, 2)
    cluster = DecisionHarness(brokers=3, racks="a b b").image.cluster
    partition.record_follower_fetch(FOLLOWER, 1, 0, NOW_MS, 1)
    partition.record_follower_fetch(OTHER, 2, 0, NOW_MS, 1)
    assert nearer_replica(partition, "b", 0, cluster) == FOLLOWER, "3 is further, and may be taken back any moment"
    partition.become_leader(log, 1, 2, (1, FOLLOWER, OTHER), (1, FOLLOWER, OTHER), NOW_MS)
    assert nearer_replica(partition, "b", 0, cluster) == OTHER
    partition.become_leader(log, 1, 3, (1, FOLLOWER, OTHER), (1,), NOW_MS)
    assert nearer_replica(partition, "b", 0, cluster) is None
