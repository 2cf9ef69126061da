"""Cases that random histories found, each once: states of a log after a crash that must not occur.

Most depend on which unsynced pages reached the disk, so they are tried with different random numbers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES
from ottla.protocol.records.builder import build_batch
from ottla.storage import checkpoint
from ottla.storage.errors import CorruptFile, DiskFull, LogDirectoryOffline, StorageFailure
from ottla.storage.log.log import Origin
from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from tests.protocol.records.reference import patch_offset
from tests.sim.disk import CAPACITY_BYTES, Killed
from tests.sim.disk_node import DATA, NOW_MS, SMALL, TOPIC_ID, DiskNode, fills, nodes, offsets
from tests.sim.inodes import PAGE_BYTES
from tests.storage.chores import rename_deleted, retain
from tests.storage.logs_for_tests import append_as

BATCH_BYTES = len(build_batch([(b"key", bytes(100), NOW_MS)]))
LARGE = replace(SMALL, segment_bytes=100_000)
# A record of this size makes a batch of one page, so that chance decides about each batch separately.
PAGE_SIZE = PAGE_BYTES - len(build_batch([(b"key", bytes(4000), NOW_MS)])) + 4000
BATCHES_PER_SEGMENT = SMALL.segment_bytes // BATCH_BYTES


# New partitions and their names


def test_what_was_flushed_is_found_again_under_its_topic_id() -> None:
    for node in nodes():
        node.append(1)
        node.log.flush()
        assert node.lose_power() is not None and fills(node.log) == [1]


def test_partitions_whose_topic_id_was_lost_are_set_aside_and_do_not_get_in_each_others_way() -> None:
    node = DiskNode()
    other = bytes(16)
    node.append(0)
    node.append(0, log=node.create("other", other))
    for name in ("topic-0", "other-0"):
        node.disk.remove(f"{DATA}/{name}/partition.metadata")
    assert node.kill() is None
    assert sum(name.endswith("-stray") for name in node.disk.list_dir(DATA)) == 2
    node.create()
    node.create("other", other)


def test_a_topic_of_a_deleted_ones_name_does_not_inherit_its_checkpoints() -> None:
    node = DiskNode()
    for i in range(10):
        node.append(i)
    node.log.flush()
    node.log.advance_high_watermark(10)
    delete_records(node.log, 9)
    node.logs.checkpoints.write_recovery_points()
    node.logs.checkpoints.write_high_watermarks()
    node.logs.delete(TOPIC_ID, 0)
    new_id = TOPIC_ID[::-1]
    log = node.create("topic", new_id)
    for i in range(5):
        node.append(i, log=log)
    node.kill()
    again = node.logs.open.get(new_id, 0)
    assert again is not None
    assert (fills(again), again.log_start_offset, again.high_watermark) == ([0, 1, 2, 3, 4], 0, 0)


def test_a_partition_that_cannot_be_renamed_takes_its_directory_offline() -> None:
    node = DiskNode()
    node.append(0)
    node.logs.delete(TOPIC_ID, 0)
    node.disk.fail_after(1)
    with pytest.raises(StorageFailure):
        rename_deleted(node.logs)
    assert not node.logs.directories[0].online


# Truncation


def test_after_a_truncation_old_batches_never_appear_between_new_ones() -> None:
    """They have the same sizes and offsets, so that only the sync of the truncation keeps them apart."""
    for node in nodes():
        for i in range(20):
            node.append(i, size=400)
        node.log.flush()
        node.logs.checkpoints.write_recovery_points()
        truncate_to(node.log, 5)
        for i in range(100, 110):
            node.append(i, size=400, epoch=1)
        node.lose_power()
        left = fills(node.log)
        assert left == [0, 1, 2, 3, 4, *range(100, 110)][: len(left)] and len(left) >= 5


def test_segments_that_were_truncated_away_stay_away() -> None:
    for node in nodes():
        for i in range(BATCHES_PER_SEGMENT + 5):
            node.append(i)
        node.log.flush()
        truncate_to(node.log, 10)
        for i in range(10, BATCHES_PER_SEGMENT):  # just as far as the next segment began
            node.append(i + 100, epoch=1)
        node.lose_power()
        left = fills(node.log)
        assert left == [*range(10), *range(110, BATCHES_PER_SEGMENT + 100)][: len(left)]


@pytest.mark.parametrize("calls", range(1, 16))
def test_a_kill_in_the_middle_of_a_truncation_leaves_no_hole(calls: int) -> None:
    node = DiskNode()
    for i in range(4 * BATCHES_PER_SEGMENT):
        node.append(i)
    node.log.flush()
    node.logs.checkpoints.write_recovery_points()
    node.disk.kill_after(calls)
    with suppress(Killed):
        truncate_to(node.log, 10)
    node.kill()
    assert offsets(node.log) == list(range(node.log.log_end_offset)) and node.log.log_end_offset >= 10


@pytest.mark.parametrize("room", [0, 60, 400])
def test_a_full_disk_keeps_no_truncation_from_being_done_whole_or_not_at_all(room: int) -> None:
    node = DiskNode()
    for i in range(BATCHES_PER_SEGMENT * 2):
        node.append(i, epoch=i // 10)
    node.log.flush()
    node.logs.checkpoints.write_recovery_points()
    before = fills(node.log)
    node.disk.room_bytes = node.disk.used_bytes() + room
    try:
        truncate_to(node.log, 10)
        assert fills(node.log) == before[:10]
    except DiskFull:
        assert fills(node.log) == before and node.log.log_end_offset == len(before)
    node.disk.room_bytes = CAPACITY_BYTES
    node.append(1, epoch=9)


def test_a_log_truncated_into_a_gap_has_no_recovery_point_behind_its_end() -> None:
    """A log that is opened again ends before the gap, and new batches come where others were below the recovery point in the
    file.
    """
    for node in nodes():
        node.append(0)
        follow(node, offset=50, epoch=0)
        node.log.flush()
        truncate_to(node.log, 30)
        node.stop()
        assert node.log.log_end_offset == 1
        for i in range(1, 12):
            node.append(i, size=400)
        node.lose_power()
        left = fills(node.log)
        assert left == list(range(len(left)))


def test_epochs_of_batches_that_were_truncated_away_do_not_come_back() -> None:
    for node in nodes():
        node.append(0, epoch=0)
        node.log.epochs.assign(7, 1)
        node.log.flush()
        node.log.epochs.flush()
        node.disk.sync_dir(node.log.directory)
        truncate_to(node.log, 1)
        follow(node, offset=1, epoch=3)
        follow(node, offset=2, epoch=3)
        node.lose_power()
        for view in node.log.batches(0):
            assert node.log.epochs.epoch_of(view.base_offset) == view.partition_leader_epoch


# Sealed segments and clean stops


def test_a_segment_that_was_sealed_after_its_last_flush_is_trimmed_on_the_disk() -> None:
    for node in nodes():
        for i in range(3 * BATCHES_PER_SEGMENT):
            node.append(i)
            node.log.flush()  # flush.messages=1
        node.logs.checkpoints.write_recovery_points()
        node.lose_power()
        assert fills(node.log) == list(range(3 * BATCHES_PER_SEGMENT))
        assert node.log.segments.size == sum(len(view.buffer) for view in node.log.batches(0)), "nothing but batches"


def test_a_clean_stop_syncs_a_segment_that_was_sealed_after_its_last_flush() -> None:
    for node in nodes():
        for i in range(10):
            node.append(i)
        node.log.flush()
        node.log.roll()
        node.stop(then_lose_power=True)
        assert fills(node.log) == list(range(10))
        assert node.log.segments[0].file.size == sum(len(view.buffer) for view in node.log.batches(0))


@pytest.mark.parametrize("room", [0, 20, 100])
def test_a_stop_on_a_full_disk_claims_to_be_clean_only_if_it_was(room: int) -> None:
    for node in nodes(10):
        for i in range(20):
            node.append(i, producer_id=1, producer_epoch=0, base_sequence=i)
        node.disk.room_bytes = node.disk.used_bytes() + room
        node.logs.close_all()
        node.disk.room_bytes = CAPACITY_BYTES
        clean = node.disk.exists(f"{DATA}/.kafka_cleanshutdown")
        if node.lose_power() is None:
            assert not clean
            continue
        left = fills(node.log)
        assert left == list(range(20 if clean else len(left)))


# Recovery


def test_a_tail_that_recovery_cut_off_does_not_come_back_behind_new_batches() -> None:
    """The hole of the first life is where the second life writes; whole batches of the first life are behind it."""
    for node in nodes(config=LARGE):
        for i in range(6):
            node.append(i, size=PAGE_SIZE)
        node.log.flush()
        node.disk.crash(power=False)
        log_path = f"{DATA}/topic-0/{0:020d}.log"
        node.disk.pwrite(log_path, 2 * PAGE_BYTES, bytes(PAGE_BYTES))
        node.disk.sync_file(log_path)
        node.kill()
        assert fills(node.log) == [0, 1]
        for i in (102, 103):
            node.append(i, size=PAGE_SIZE)
        node.lose_power()
        left = fills(node.log)
        assert left == [0, 1, 102, 103][: len(left)]


@pytest.mark.parametrize("calls", range(1, 60, 2))
def test_a_kill_in_the_middle_of_a_recovery_leaves_no_hole(calls: int) -> None:
    node = DiskNode()
    for i in range(4 * BATCHES_PER_SEGMENT):
        node.append(i)
    damaged = node.log.segments[1]
    at = damaged.position_of(BATCHES_PER_SEGMENT + 5)
    assert at is not None
    node.disk.pwrite(damaged.file.log_path, at + 80, b"damage")
    node.disk.crash(power=False)
    node.disk.kill_after(calls)
    with suppress(Killed):
        node.open()
    node.kill()
    assert offsets(node.log) == list(range(BATCHES_PER_SEGMENT + 5))


def test_a_segment_that_lost_all_its_batches_makes_no_gap() -> None:
    node = DiskNode()
    for i in range(BATCHES_PER_SEGMENT + 1):
        node.append(i)
    first, second = (segment.file.log_path for segment in node.log.segments)
    node.disk.crash(power=False)
    node.disk.truncate(first, 5 * BATCH_BYTES)
    node.disk.truncate(second, 0)
    node.open()
    log = node.logs.open.get(TOPIC_ID, 0)
    assert log is not None and log.log_end_offset == 5 == len(offsets(log))


def test_what_a_failed_flush_did_not_write_is_written_by_the_next_life() -> None:
    """After a failed fsync the kernel forgets that the pages are dirty: a read does not show what is on the disk."""
    for node in nodes(config=LARGE):
        node.append(0, size=PAGE_SIZE)
        node.log.flush()
        for i in range(1, 6):
            node.append(i, size=PAGE_SIZE)
        node.disk.fail_next_syncs = 1
        with pytest.raises(StorageFailure):
            node.log.flush()
        node.kill()
        assert fills(node.log) == [0, 1, 2, 3, 4, 5]
        node.append(6, size=PAGE_SIZE)
        node.log.flush()
        node.lose_power()
        assert fills(node.log) == [0, 1, 2, 3, 4, 5, 6]


# Transactions and producers


def test_a_transaction_that_a_crash_undid_is_not_listed_as_aborted() -> None:
    for node in nodes():
        node.append(0)
        node.log.flush()
        node.append(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        node.end_transaction(7, committed=False)
        node.lose_power()
        while node.log.log_end_offset < 3:
            node.append(9)
        aborted = {(txn.first_offset, txn.last_offset) for txn in node.log.segments.aborted_transactions(0, 3)}
        markers = {(view.base_offset - 1, view.base_offset) for view in node.log.batches(0) if view.is_control}
        assert aborted == markers
        node.append(1, producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
        node.end_transaction(7, committed=False)


def test_a_transaction_index_made_again_is_on_the_disk_before_the_next_crash() -> None:
    for node in nodes():
        for producer_id in (7, 8):
            node.append(1, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            node.end_transaction(producer_id, committed=False)
        node.log.snapshot_producers()
        node.log.flush()
        node.disk.sync_file(f"{node.log.directory}/{4:020d}.snapshot")
        node.logs.checkpoints.write_recovery_points()
        path = f"{node.log.directory}/{0:020d}.txnindex"
        node.disk.crash(power=False)
        node.disk.truncate(path, 50)
        node.disk.sync_file(path)
        node.open()
        node.lose_power()
        assert [txn.producer_id for txn in node.log.segments.aborted_transactions(0, 4)] == [7, 8]


def test_a_producer_whose_last_batch_holds_the_log_start_is_still_known() -> None:
    node = DiskNode()
    batch = build_batch([(b"k", b"v", NOW_MS)] * 3, producer_id=5, producer_epoch=0, base_sequence=0)
    node.log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    node.log.advance_high_watermark(3)
    delete_records(node.log, 1)
    node.logs.checkpoints.write_log_starts()
    node.kill()
    assert node.log.log_start_offset == 1
    assert node.log.append(batch, leader_epoch=0, now_ms=NOW_MS).duplicate


# Deleted records


def test_deleted_records_stay_deleted_once_the_log_starts_are_written() -> None:
    for node in nodes():
        for i in range(10):
            node.append(i)
        node.log.flush()
        node.log.advance_high_watermark(10)
        delete_records(node.log, 6)
        node.logs.checkpoints.write_log_starts()
        node.lose_power()
        assert (node.log.log_start_offset, fills(node.log)) == (6, [6, 7, 8, 9])


def test_what_retention_removed_does_not_come_back() -> None:
    for node in nodes(config=replace(SMALL, retention_bytes=4000, retention_ms=-1)):
        for i in range(5 * BATCHES_PER_SEGMENT):
            node.append(i)
        node.log.flush()
        node.log.advance_high_watermark(5 * BATCHES_PER_SEGMENT)
        assert retain(node.logs, NOW_MS)
        start = node.log.log_start_offset
        node.lose_power()
        assert node.log.log_start_offset == start > 0


def test_epochs_of_records_that_a_crash_brought_back_are_known() -> None:
    node = DiskNode()
    for i in range(6):
        node.append(i, epoch=i // 2)
    node.log.flush()
    node.logs.checkpoints.write_recovery_points()
    node.log.advance_high_watermark(6)
    delete_records(node.log, 3)
    assert node.log.epochs.entries == [(1, 3), (2, 4)]
    node.kill()
    assert node.log.log_start_offset == 0
    assert node.log.epochs.entries == [(0, 0), (1, 2), (2, 4)]


def test_an_epoch_that_ended_where_the_log_starts_is_dropped() -> None:
    node = DiskNode()
    for i in range(3):
        node.append(i, epoch=i)
    node.log.advance_high_watermark(3)
    delete_records(node.log, 1)
    assert node.log.epochs.entries == [(1, 1), (2, 2)]


def test_retention_makes_room_on_a_full_disk() -> None:
    node = DiskNode(config=replace(SMALL, retention_ms=1000))
    for i in range(3 * BATCHES_PER_SEGMENT):
        node.append(i, epoch=i // 10)
    node.log.advance_high_watermark(node.log.log_end_offset)
    node.disk.room_bytes = node.disk.used_bytes()
    assert apply_retention(node.log, NOW_MS + 10_000) == 2, "the active segment waits for room, the others make it"


# Failures that must take the directory offline for good


def test_a_failed_log_does_not_come_back_by_a_roll() -> None:
    node = DiskNode()
    node.append(0)
    node.disk.fail_next_syncs = 1
    with pytest.raises(StorageFailure):
        node.log.flush()
    with pytest.raises(LogDirectoryOffline):
        node.log.roll()
    with pytest.raises(StorageFailure):
        node.append(1)


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION])
def test_a_large_batch_that_cannot_be_written_takes_the_log_offline(origin: Origin) -> None:
    node = DiskNode(config=replace(SMALL, segment_bytes=100_000))
    node.append(0)
    large = bytearray(build_batch([(b"k", bytes(10_000), NOW_MS)]))
    if origin is Origin.REPLICATION:
        patch_offset(large, 0, 1, len(large) - LOG_OVERHEAD_BYTES, 0)
    node.log.room.make_room(len(large), 1, 1, NOW_MS, NOW_MS, 1)
    node.disk.fail_after(1)
    with pytest.raises(StorageFailure):
        append_as(origin, node.log, memoryview(large), 0, NOW_MS)
    assert node.log.failure is not None and node.log.log_end_offset == 1
    with pytest.raises((StorageFailure, KafkaError)):
        node.append(1)


def test_a_checkpoint_that_was_cut_inside_its_last_number_is_not_believed() -> None:
    node = DiskNode()
    path = f"{DATA}/{checkpoint.RECOVERY_POINT}"
    checkpoint.write_offsets(node.disk, path, {("a", 0): 5, ("topic", 0): 12345})
    node.disk.truncate(path, (node.disk.size(path) or 0) - 3)
    with pytest.raises(CorruptFile, match="cut off"):
        checkpoint.read_offsets(node.disk, path)


def follow(node: DiskNode, offset: int, epoch: int) -> None:
    """A batch from a leader."""
    batch = bytearray(build_batch([(b"key", bytes(100), NOW_MS)]))
    patch_offset(batch, 0, offset, len(batch) - LOG_OVERHEAD_BYTES, epoch)
    append_trusted(node.log, bytes(batch), leader_epoch=epoch, now_ms=NOW_MS, origin=Origin.REPLICATION)
