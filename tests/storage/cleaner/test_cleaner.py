"""Compaction: the last value of each key survives at its offset, tombstones and markers live as long as they must."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records.builder import build_batch
from ottla.storage.cleaner import cleaner_pass
from ottla.storage.cleaner.cleaner import Cleaner, LogChanged, Step, clean, plan_for
from ottla.storage.cleaner.cleaner_filter import OffsetMap
from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from tests.effort import examples
from tests.storage.cleaner.cleaning import steps_done
from tests.storage.logs_for_tests import NOW_MS, append, marker, open_at

COMPACT = LogConfig(cleanup_policy=("compact",), segment_bytes=1500, index_interval_bytes=200, delete_retention_ms=1000)
DAY_MS = 86_400_000


def put(log: Log, rows: list[tuple[bytes, bytes | None]], **fields: object) -> int:
    return append(log, build_batch([(key, value, NOW_MS) for key, value in rows], **fields))


def run(log: Log, now_ms: int = NOW_MS, first_dirty: int = 0, memory_bytes: int = 1 << 20) -> int:
    """Make one pass over everything except the active segment. Return how many steps it took."""
    log.advance_high_watermark(log.log_end_offset)
    return sum(1 for _ in passing(log, now_ms, first_dirty, memory_bytes))


def passing(log: Log, now_ms: int = NOW_MS, first_dirty: int = 0, memory_bytes: int = 1 << 20) -> Iterator[Step]:
    return steps_done(clean(log, plan_for(log, first_dirty, now_ms), now_ms, memory_bytes), log.files)


def due(logs: Logs, now_ms: int = NOW_MS) -> object:
    """Return the first request of the cleaner, or None if no log is due."""
    with closing(Cleaner(logs).run(now_ms)) as steps:
        return next((step for step in steps if step is not None), None)


def cleaned(logs: Logs, now_ms: int = NOW_MS) -> bool:
    """Make one pass over the log that needs it most. Return whether there was one."""
    return bool(list(steps_done(Cleaner(logs, 1 << 20).run(now_ms), logs.files)))


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for batch in log.batches(0)
        if not batch.is_control
        for record in batch.records()
    ]


def fold(rows: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for _, key, value in rows:
        assert key is not None
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


@settings(max_examples=examples(40))
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=120),
    batch_size=st.integers(1, 7),
    codec=st.sampled_from([0, 1, 2, 3, 4]),
    memory_bytes=st.sampled_from([0, 1 << 20]),
)
def test_the_fold_of_a_compacted_log_is_the_fold_of_its_history(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, bytes | None]],
    batch_size: int,
    codec: int,
    memory_bytes: int,
) -> None:
    directory = tmp_path_factory.mktemp("compact")
    log = open_at(directory, COMPACT)
    for start in range(0, len(rows), batch_size):
        put(log, [(b"key-%d" % key * 3, value) for key, value in rows[start : start + batch_size]], compression=codec)
    history = records(log)
    for now_ms in (NOW_MS, NOW_MS + 5000, NOW_MS + 2 * DAY_MS):
        run(log, now_ms, memory_bytes=memory_bytes)
        left = records(log)
        assert fold(left) == fold(history)
        assert set(left) <= set(history) and left == sorted(left, key=lambda row: row[0])
        assert log.log_end_offset == len(rows)
    del log
    again = open_at(directory, COMPACT)
    assert (records(again), again.log_end_offset) == (left, len(rows))
    shutil.rmtree(directory)


def test_only_the_last_value_of_each_key_is_left_below_the_active_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, COMPACT)
    for i in range(60):
        put(log, [(b"k%d" % (i % 4), b"%d" % i * 20)])
    assert len(log.segments) > 3
    active = log.segments.active.base_offset
    run(log)
    below = [row for row in records(log) if row[0] < active]
    assert len(below) <= 5, "four keys, and the last batch of the pass"
    assert [row[0] for row in records(log) if row[0] >= active] == list(range(active, 60))
    run(log)
    assert len(log.segments) == 2, "what the first pass made small, the second brings together"
    assert log.read(0, max_bytes=1 << 20).first_batch_offset == below[0][0]


def test_a_tombstone_outlives_its_record_by_delete_retention(tmp_path: Path) -> None:
    log = open_at(tmp_path, COMPACT)
    put(log, [(b"gone", b"x" * 100)])
    put(log, [(b"gone", None)])
    put(log, [(b"other", b"y" * 100)] * 10)
    log.roll(NOW_MS)
    put(log, [(b"other", b"z")])
    log.roll(NOW_MS)
    run(log, NOW_MS)
    assert (1, b"gone", None) in records(log) and not [r for r in records(log) if r[2] == b"x" * 100]
    run(log, NOW_MS + 999)
    assert (1, b"gone", None) in records(log)
    run(log, NOW_MS + 1000)
    assert not [row for row in records(log) if row[1] == b"gone"]


def test_aborted_records_go_and_their_marker_waits_for_its_horizon(tmp_path: Path) -> None:
    log = open_at(tmp_path, COMPACT)
    put(log, [(b"a", b"kept")])
    put(log, [(b"a", b"aborted" * 30)], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    append_trusted(log, marker(5, 0, commit=False), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    put(log, [(b"b", b"later")], producer_id=5, producer_epoch=0, base_sequence=1, transactional=True)
    append_trusted(log, marker(5, 0, commit=True), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.roll(NOW_MS)
    put(log, [(b"c", b"c")])
    log.advance_high_watermark(log.log_end_offset)
    assert [txn.last_offset for txn in log.segments.aborted_transactions(0, 10)] == [2]
    run(log)
    assert records(log)[:2] == [(0, b"a", b"kept"), (3, b"b", b"later")]
    markers = [(b.base_offset, b.delete_horizon) for b in log.batches(0) if b.is_control]
    assert markers == [(2, None), (4, None)], "the marker waits while this pass still saw the batch it ends"
    run(log)
    assert [(b.base_offset, b.delete_horizon) for b in log.batches(0) if b.is_control] == [
        (2, NOW_MS + 1000),
        (4, None),
    ]
    assert log.segments.aborted_transactions(0, 10) == []
    run(log, NOW_MS + 1000)
    assert [b.base_offset for b in log.batches(0) if b.is_control] == [4]
    assert records(log)[:2] == [(0, b"a", b"kept"), (3, b"b", b"later")]


def test_the_last_sequence_of_a_producer_survives_as_an_empty_batch(tmp_path: Path) -> None:
    log = open_at(tmp_path, COMPACT)
    put(log, [(b"k", b"first")], producer_id=9, producer_epoch=2, base_sequence=0)
    put(log, [(b"k", b"second" * 20)], producer_id=9, producer_epoch=2, base_sequence=1)
    put(log, [(b"k", b"third")])
    log.roll(NOW_MS)
    put(log, [(b"x", b"x")])
    run(log)
    empty = [b for b in log.batches(0) if b.count == 0]
    assert [(b.base_offset, b.producer_id, b.last_sequence) for b in empty] == [(1, 9, 1)]
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.unlink()
    del log
    again = open_at(tmp_path, COMPACT)
    assert again.producers.states[9].last_sequence == 1


def test_an_open_transaction_stops_compaction_before_it(tmp_path: Path) -> None:
    log = open_at(tmp_path, COMPACT)
    put(log, [(b"k", b"1")])
    log.roll(NOW_MS)
    put(log, [(b"k", b"2")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(NOW_MS)
    put(log, [(b"k", b"3")])
    log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    assert plan_for(log, 0, NOW_MS).end == 1 == log.last_stable_offset


def test_nothing_above_the_high_watermark_or_younger_than_the_lag_is_touched(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(COMPACT, min_compaction_lag_ms=5000))
    for i in range(3):
        put(log, [(b"k", b"%d" % i)])
        log.roll(NOW_MS)
    assert plan_for(log, 0, NOW_MS + 5001).end == 0
    log.advance_high_watermark(2)
    assert plan_for(log, 0, NOW_MS + 5001).end == 2
    log.advance_high_watermark(3)
    assert plan_for(log, 0, NOW_MS + 5001).end == 3
    assert plan_for(log, 0, NOW_MS + 4999).end == 0


def test_appends_and_reads_go_on_between_slices(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(COMPACT, segment_bytes=200_000))
    for i in range(800):
        put(log, [(b"k%d" % (i % 5), bytes(400))])
    log.roll(NOW_MS)
    put(log, [(b"k0", b"new")])
    log.advance_high_watermark(log.log_end_offset)
    before = log.read(0, max_bytes=100_000).records
    copy = bytes(before)
    slices = 0
    for _ in passing(log):
        put(log, [(b"during", b"%d" % slices)])
        slices += 1
        assert log.read(0, max_bytes=10).records
    assert slices >= 4
    assert [row for row in records(log) if row[1] == b"during"][-1][2] == b"%d" % (slices - 1)
    assert bytes(before) == copy, "a view that was handed out stays what it was"
    assert log.segments.size < 80_000


def test_a_log_truncated_under_a_pass_is_left_alone(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(COMPACT, segment_bytes=200_000))
    for i in range(800):
        put(log, [(b"k%d" % (i % 5), bytes(400))])
    log.advance_high_watermark(log.log_end_offset)
    steps = passing(log)
    next(steps)
    truncate_to(log, 100)
    with pytest.raises(LogChanged):
        list(steps)
    assert len(records(log)) == 100
    assert not list(tmp_path.glob("*.cleaned"))


@pytest.mark.parametrize("step", range(1, 14))
def test_a_crash_at_any_step_of_the_swap_loses_nothing(tmp_path: Path, step: int) -> None:
    directory = tmp_path / "log"
    log = open_at(directory, COMPACT)
    for i in range(40):
        put(log, [(b"k%d" % (i % 4), b"%d" % i * 20)])
    expected = fold(records(log))
    files = DyingFiles(step)
    del log
    log = open_at(directory, COMPACT, files=files)
    files.armed = True
    try:
        run(log)
    except Died:
        pass
    else:
        assert files.renames < step
    del log
    again = open_at(directory, COMPACT)
    assert fold(records(again)) == expected
    assert again.log_end_offset == 40
    assert not [path for path in directory.iterdir() if path.name.endswith((".swap", ".cleaned", ".deleted"))]
    run(again)
    assert fold(records(again)) == expected


class Died(BaseException):
    pass


class DyingFiles(OsFiles):
    """The process dies instead of making the n-th rename, and nothing is cleaned up after that."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step, self.renames, self.armed = step, 0, False

    def rename(self, source: str, target: str) -> None:
        self.renames += self.armed
        if self.renames >= self.step:
            raise Died
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.renames < self.step:
            super().remove(path)


def test_the_cleaner_takes_the_dirtiest_log_and_remembers_how_far_it_came(tmp_path: Path) -> None:
    write_meta_properties(OsFiles(), str(tmp_path), MetaProperties("cluster", 1, bytes(16)))
    logs = Logs(OsFiles(), open_log_dirs(OsFiles(), [str(tmp_path)], None, 1), Random(1))
    logs.open_all(lambda topic, topic_id: COMPACT, NOW_MS)
    dirty = logs.create("dirty", 0, bytes([1]) * 16, COMPACT)
    logs.create("deleting", 0, bytes([2]) * 16, LogConfig())
    for i in range(60):
        put(dirty, [(b"k%d" % (i % 4), b"%d" % i * 20)])
    dirty.advance_high_watermark(60)
    assert due(logs) is not None
    assert cleaned(logs)
    assert due(logs) is None
    end = dirty.segments.active.base_offset
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == f"0\n1\ndirty 0 {end}\n"
    logs.close_all()
    logs = Logs(OsFiles(), open_log_dirs(OsFiles(), [str(tmp_path)], None, 1), Random(1))
    logs.open_all(lambda topic, topic_id: COMPACT, NOW_MS)
    logs.open.by_name("dirty", 0).advance_high_watermark(60)
    assert due(logs) is None
    logs.close_all()


def test_keys_are_gathered_up_to_a_bound_and_the_last_record_of_each_is_found_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner_pass, "GATHERED_KEYS_MAX", 3)
    put_all, gathered = OffsetMap.put_all, []

    def counted(offsets: OffsetMap, latest: dict[bytes, int]) -> None:
        gathered.append(len(latest))
        put_all(offsets, latest)

    monkeypatch.setattr(OffsetMap, "put_all", counted)
    log = open_at(tmp_path, COMPACT)
    for number in range(120):
        put(log, [(b"k%d" % (number % 7), b"%d" % number * 20)])
    history = records(log)
    run(log)
    assert max(gathered) == 3
    assert len(records(log)) < len(history)
    assert fold(records(log)) == fold(history)
