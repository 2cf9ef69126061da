"""A crash, a bad disk or manual changes have left something in a log directory that is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.records.batch import crc32c
from ottla.storage.errors import UnexpectedAppendOffset
from ottla.storage.log.log import Log
from ottla.storage.log.retention import delete_records
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.producer_states import Origin
from tests.storage.logs_for_tests import (
    NOW_MS,
    SMALL,
    append,
    batch,
    filled,
    marker,
    max_timestamp,
    offsets,
    open_at,
    read_all,
)

BATCH_BYTES = len(batch())


def active_log(directory: Path) -> Path:
    return sorted(directory.glob("*.log"))[-1]


def cut_to_batches(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: len(data.rstrip(b"\0")) // BATCH_BYTES * BATCH_BYTES]


def test_after_a_kill_all_batches_are_there_and_appends_go_on(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    expected = read_all(log)
    del log
    again = open_at(tmp_path)
    assert read_all(again) == expected
    assert again.log_end_offset == 40
    assert append(again, batch()) == 40


def test_after_a_clean_stop_files_are_exactly_as_long_as_their_batches(tmp_path: Path) -> None:
    log = filled(tmp_path, 33)
    total = log.segments.size
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) == total
    assert all(path.read_bytes()[16] == 2 for path in tmp_path.glob("*.log"))
    again = open_at(tmp_path, clean=True)
    assert again.log_end_offset == again.recovery_point == 33


def test_a_clean_start_reads_no_sealed_segment(tmp_path: Path) -> None:
    filled(tmp_path, 40).close()
    first = sorted(tmp_path.glob("*.log"))[0]
    first.write_bytes(b"\xff" * first.stat().st_size)
    assert open_at(tmp_path, clean=True).log_end_offset == 40


@pytest.mark.parametrize("keep", [1, 11, 12, 60, 61, 62, BATCH_BYTES - 2])
def test_a_half_written_batch_at_the_end_is_cut_off(tmp_path: Path, keep: int) -> None:
    log = filled(tmp_path, 25)
    end, size = log.log_end_offset, log.segments.active.file.size
    base = log.segments.active.base_offset
    torn = bytearray(batch(fill=1))
    torn[:8] = end.to_bytes(8, "big")
    log.segments.active.file.view()[size : size + keep] = torn[:keep]
    del log
    again = open_at(tmp_path)
    assert (again.log_end_offset, again.segments.active.base_offset) == (end, base)
    assert append(again, batch(fill=7)) == end
    again.close()
    assert offsets(open_at(tmp_path, clean=True)) == list(range(26))


@pytest.mark.parametrize("byte", [3, 8, 16, 17, 30, 61, BATCH_BYTES - 1])
def test_a_flipped_bit_above_the_recovery_point_ends_the_log_before_its_batch(tmp_path: Path, byte: int) -> None:
    log = filled(tmp_path, 40)
    segment = log.segments[1]
    victim = segment.base_offset + 2
    path = Path(segment.file.log_path)
    del log, segment
    data = bytearray(path.read_bytes())
    data[2 * BATCH_BYTES + byte] ^= 0x40
    path.write_bytes(data)
    again = open_at(tmp_path)
    assert offsets(again) == list(range(victim))
    assert again.log_end_offset == victim
    assert not list(tmp_path.glob("*00000000000000000039*"))
    assert append(again, batch()) == victim


def test_below_the_recovery_point_nothing_is_read_again(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    log.flush()
    path = Path(log.segments[0].file.log_path)
    recovery_point = log.recovery_point
    del log
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert open_at(tmp_path, recovery_point=recovery_point).log_end_offset == 40


def test_checking_begins_at_the_recovery_point_inside_the_active_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for i in range(8):
        append(log, batch(fill=i))
    log.flush()
    indexed = list(log.segments.active.indexes.offsets.offsets)
    for i in range(2):
        append(log, batch(fill=i))
    grown = list(log.segments.active.indexes.offsets.offsets)
    del log
    again = open_at(tmp_path, recovery_point=8)
    assert again.log_end_offset == 10
    index = again.segments.active.indexes.offsets
    assert list(index.offsets) == grown and list(index.offsets)[: len(indexed)] == indexed


def index_damages() -> dict[str, object]:
    return {
        "missing": lambda path: path.unlink(),
        "empty": lambda path: path.write_bytes(b""),
        "garbage": lambda path: path.write_bytes(b"\xde\xad\xbe\xef" * 30),
        "zeros": lambda path: path.write_bytes(bytes(240)),
        "odd length": lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "reversed": lambda path: path.write_bytes(path.read_bytes()[::-1]),
    }


@pytest.mark.parametrize("damage", index_damages())
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_index_is_made_again_from_the_log(
    tmp_path: Path, damage: str, suffix: str, clean: bool, which: int
) -> None:
    log = filled(tmp_path, 40)
    expected = read_all(log)
    timestamp = max_timestamp(log)
    log.close()
    path = sorted(tmp_path.glob(f"*{suffix}"))[which]
    index_damages()[damage](path)
    again = open_at(tmp_path, clean=clean)
    assert read_all(again) == expected
    assert [again.read(offset, max_bytes=1).first_batch_offset for offset in range(40)] == list(range(40))
    assert max_timestamp(again) == timestamp
    again.close()
    assert path.exists() and (damage == "empty" or path.stat().st_size % (8 if suffix == ".index" else 12) == 0)


def test_a_missing_epoch_checkpoint_is_read_from_the_batches(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for epoch in (3, 3, 5, 9):
        append(log, batch(), epoch=epoch)
    entries = log.epochs.entries
    log.close()
    (tmp_path / "leader-epoch-checkpoint").unlink()
    assert open_at(tmp_path, clean=True).epochs.entries == entries == [(3, 0), (5, 2), (9, 3)]


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\n0 0\n", "0\n1\nx y\n", "0\n2\n5 0\n3 9\n", "\xff\xfe"])
def test_a_damaged_epoch_checkpoint_is_read_from_the_batches(tmp_path: Path, text: str) -> None:
    log = open_at(tmp_path)
    append(log, batch(), epoch=4)
    log.close()
    (tmp_path / "leader-epoch-checkpoint").write_text(text, encoding="latin-1")
    assert open_at(tmp_path, clean=True).epochs.entries == [(4, 0)]


def with_producers(directory: Path) -> Log:
    log = open_at(directory)
    for sequence in range(8):
        append(log, batch(producer_id=7, producer_epoch=1, base_sequence=sequence))
        append(log, batch(producer_id=8, producer_epoch=0, base_sequence=sequence, transactional=sequence > 5))
    append_trusted(log, marker(8, 0, commit=False), leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    append(log, batch(producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    return log


def facts(log: Log) -> list[tuple[int, ...]]:
    return sorted(
        (s.producer_id, s.epoch, s.coordinator_epoch, s.last_sequence, s.last_offset, s.current_txn_first_offset)
        for s in log.producers
    )


@pytest.mark.parametrize("lost", ["nothing", "newest", "all", "damaged"])
@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_again_whatever_snapshot_is_left(tmp_path: Path, lost: str, clean: bool) -> None:
    log = with_producers(tmp_path)
    expected, stable = facts(log), log.producers.first_unstable_offset()
    if clean:
        log.close()
    snapshots = sorted(tmp_path.glob("*.snapshot"))
    assert len(snapshots) >= 1
    for path in {"nothing": [], "newest": snapshots[-1:], "all": snapshots, "damaged": []}[lost]:
        path.unlink()
    if lost == "damaged":
        snapshots[-1].write_bytes(snapshots[-1].read_bytes()[:-3])
    again = open_at(tmp_path, clean=clean)
    again.advance_high_watermark(again.log_end_offset)
    assert facts(again) == expected
    assert again.last_stable_offset == again.producers.first_unstable_offset() == again.log_end_offset - 1
    assert stable <= again.last_stable_offset
    aborted = again.segments.aborted_transactions(0, again.log_end_offset)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted] == [(8, 13, 16)]


def test_a_retry_after_a_restart_is_still_a_duplicate(tmp_path: Path) -> None:
    log = with_producers(tmp_path)
    log.close()
    again = open_at(tmp_path, clean=True)
    end = again.log_end_offset
    repeated = again.append(
        batch(producer_id=7, producer_epoch=1, base_sequence=7), leader_epoch=0, now_ms=1_700_000_000_000
    )
    assert (repeated.duplicate, repeated.first_offset, again.log_end_offset) == (True, 14, end)


def test_a_log_without_its_files_starts_empty_at_the_given_offset(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    for path in tmp_path.iterdir():
        path.unlink()
    log = open_at(tmp_path, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, batch()) == 100


def test_leftovers_of_interrupted_changes_are_removed(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    left = [
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.cleaned",
        "x.tmp",
        "00000000000000000777.index",
    ]
    for name in left:
        (tmp_path / name).write_bytes(b"x")
    assert open_at(tmp_path).log_end_offset == 5
    assert not [name for name in left if (tmp_path / name).exists()]


def test_a_zeroed_page_in_the_middle_ends_the_log_there(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    path = Path(log.segments[2].file.log_path)
    base = log.segments[2].base_offset
    del log
    data = bytearray(path.read_bytes())
    data[BATCH_BYTES : 3 * BATCH_BYTES] = bytes(2 * BATCH_BYTES)
    path.write_bytes(data)
    assert open_at(tmp_path).log_end_offset == base + 1


def test_the_active_segment_replaced_by_garbage_is_emptied(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    base = log.segments.active.base_offset
    log.close()
    active_log(tmp_path).write_bytes(b"not a log at all" * 20)
    again = open_at(tmp_path, clean=True)
    assert again.log_end_offset == base
    assert append(again, batch()) == base


@pytest.mark.parametrize("damage", ["garbage", "cut", "gone"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_index_that_cannot_be_read_is_made_again(tmp_path: Path, damage: str, clean: bool) -> None:
    log = open_at(tmp_path)
    for producer_id in range(12):
        append(log, batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))
        end = marker(producer_id, 0, commit=producer_id % 3 == 0)
        append_trusted(log, end, leader_epoch=0, now_ms=0, origin=Origin.COORDINATOR)
    expected = log.segments.aborted_transactions(0, 24)
    assert len(expected) == 8
    if clean:
        log.close()
    for path in tmp_path.glob("*.txnindex"):
        if damage == "garbage":
            path.write_bytes(b"\xff" * 68)
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-1])
        elif not clean:
            path.unlink()
    again = open_at(tmp_path, clean=clean)
    assert again.segments.aborted_transactions(0, 24) == expected


def test_a_flush_keeps_the_restart_after_a_crash_short(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    for sequence in range(50):
        append(log, batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
    assert log.durability.unflushed_bytes == log.segments.size
    log.snapshot_producers()
    log.flush()
    assert log.durability.unflushed_bytes == 0
    append(log, batch(producer_id=3, producer_epoch=0, base_sequence=50))
    assert log.durability.unflushed_bytes == BATCH_BYTES
    log.snapshot_producers()
    append(log, batch(producer_id=3, producer_epoch=0, base_sequence=51))
    log.snapshot_producers()
    assert sorted(int(path.stem) for path in tmp_path.glob("*.snapshot")) == [50, 52]
    recovery_point = log.recovery_point
    del log
    again = open_at(tmp_path, LogConfig(), recovery_point=recovery_point)
    assert (recovery_point, again.producers.states[3].last_sequence) == (50, 51)


def test_a_retry_of_any_of_the_last_five_batches_is_known_after_a_restart(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    for sequence in range(8):
        append(log, batch(producer_id=3, producer_epoch=0, base_sequence=sequence))
    log.close()
    again = open_at(tmp_path, LogConfig(), clean=True)
    retried = [append(again, batch(producer_id=3, producer_epoch=0, base_sequence=n)) for n in range(3, 8)]
    assert retried == list(range(3, 8)) and again.log_end_offset == 8


@pytest.mark.parametrize("clean", [True, False])
def test_a_marker_that_cannot_be_read_ends_no_transaction_and_keeps_no_log_from_opening(
    tmp_path: Path, clean: bool
) -> None:
    log = open_at(tmp_path)
    append(log, batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    append_trusted(log, marker(7, 0, commit=True), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    append(log, batch())
    (position,) = (at for at, _, base, _ in log.segments.active.file.walk(0) if base == 1)
    log.close()
    (tmp_path / "00000000000000000003.snapshot").unlink()
    path, bad = active_log(tmp_path), bytearray(active_log(tmp_path).read_bytes())
    bad[position + 22] |= 7  # a codec that does not exist
    end = position + 12 + int.from_bytes(bad[position + 8 : position + 12], "big")
    bad[position + 17 : position + 21] = crc32c(bytes(bad[position + 21 : end])).to_bytes(4, "big")
    path.write_bytes(bad)
    again = open_at(tmp_path, clean=clean)
    assert read_all(again) == bytes(bad)
    assert again.last_stable_offset == 0, "its transaction is open"
    append_trusted(again, marker(7, 0, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    again.advance_high_watermark(again.log_end_offset)
    assert (again.last_stable_offset, again.segments.aborted_transactions(0, 4)) == (4, [(7, 0, 3, 4)])


def test_a_follower_that_begins_inside_the_leaders_first_batch_takes_it_whole(tmp_path: Path) -> None:
    """Its first record was deleted, and a power loss took the batch but not the log start offset."""
    log = open_at(tmp_path, log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    sent = batch(2) + batch(1, base_offset=2)
    append_trusted(log, sent, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
    assert log.read(1, max_bytes=10_000).next_offset == 3
    log.flush()
    point = log.durability.recovery_point_to_write(log.log_end_offset)
    del log
    again = open_at(tmp_path, log_start_offset=1, recovery_point=point)
    assert (again.log_start_offset, again.log_end_offset) == (1, 3)
    assert offsets(again) == [0, 2]


def test_an_answer_that_a_follower_refuses_leaves_its_empty_log_as_it_is(tmp_path: Path) -> None:
    log = open_at(tmp_path, log_start_offset=5)
    before_zero = batch(8, base_offset=-3)
    torn = batch(8) + batch(1, base_offset=3)  # the second does not follow the first
    for answer in (before_zero, torn):
        with pytest.raises(UnexpectedAppendOffset):
            append_trusted(log, answer, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
        assert (log.log_start_offset, log.log_end_offset, log.segments.size) == (5, 5, 0)


def test_epochs_below_the_recovery_point_whose_file_is_torn_are_no_damage(tmp_path: Path) -> None:
    """The flush that was to write the next ones had replaced the file when the power went."""
    log = open_at(tmp_path, LogConfig())
    for epoch in (1, 2, 3):
        append(log, batch(), epoch=epoch)
    log.flush()
    (tmp_path / "leader-epoch-checkpoint").write_bytes(bytes(8))
    again = open_at(tmp_path, LogConfig(), recovery_point=3)
    assert (again.log_end_offset, again.epochs.entries) == (3, [(1, 0), (2, 1), (3, 2)])


def test_epochs_of_records_that_were_deleted_are_no_damage_before_their_segment_goes(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    for epoch in (1, 2, 3, 3):
        append(log, batch(), epoch=epoch)
    log.advance_high_watermark(4)
    log.flush()
    delete_records(log, 3)
    again = open_at(tmp_path, LogConfig(), recovery_point=3, log_start_offset=3)
    assert (again.log_start_offset, again.log_end_offset, again.epochs.entries) == (3, 4, [(3, 3)])
