"""The log cleaner and the life of a log: truncation, deletion, retention, damage, configuration, and other logs beside it."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import compression
from ottla.protocol.records.builder import build_batch, pack_batch
from ottla.protocol.records.record import encode_record
from ottla.storage.cleaner.cleaner import (
    PASSES_ENDED_MAX,
    SEGMENTS_PER_TURN,
    Advance,
    Begin,
    Cleaner,
    LogChanged,
    PassEnded,
    clean,
    plan_for,
)
from ottla.storage.cleaner.cleaner_filter import TOMBSTONE, VALUE, OffsetMap
from ottla.storage.cleaner.cleaner_pass import (
    GROUP_SEGMENTS_MAX,
    CleaningPass,
    PassProgress,
    SourceSegment,
    group_sources,
)
from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import CorruptFile, DiskFull, StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.retention import delete_records
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_file import OsMappedFile
from ottla.storage.segment.walk import DamagedLog
from tests.storage.chores import retain
from tests.storage.cleaner.cleaning import steps_done
from tests.storage.logs_for_tests import NOW_MS, append, marker, open_at

COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=1500,
    index_interval_bytes=200,
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
HOUR_MS = 3_600_000
OLD, NEW = bytes([1]) * 16, bytes([2]) * 16


def node(directory: Path, config: LogConfig = COMPACT) -> Logs:
    if not (directory / "meta.properties").exists():
        write_meta_properties(OsFiles(), str(directory), MetaProperties("cluster", 1, bytes(16)))
    logs = Logs(OsFiles(), open_log_dirs(OsFiles(), [str(directory)], None, 1), Random(1))
    logs.open_all(lambda topic, topic_id: config, NOW_MS)
    return logs


def put(log: Log, key: bytes, value: bytes | None, epoch: int = 0) -> int:
    return append(log, build_batch([(key, value, NOW_MS)]), epoch=epoch)


def grow(log: Log, count: int, epoch: int = 0) -> None:
    """Records of four keys, all of them sealed and committed."""
    for i in range(count):
        put(log, b"k%d" % (i % 4), b"x" * 40, epoch)
    log.roll(NOW_MS)
    put(log, b"active", b"z", epoch)
    log.advance_high_watermark(log.log_end_offset)


def run(logs: Logs, now_ms: int = NOW_MS, between: Callable[[], None] = lambda: None) -> None:
    for _ in steps_done(Cleaner(logs, 1 << 20).run(now_ms), logs.files):
        between()


def values_of(log: Log, key: bytes) -> list[bytes | None]:
    return [
        record.value
        for batch in log.batches(0)
        if not batch.is_control
        for record in batch.records()
        if record.key == key
    ]


# What was cleaned


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_recreated_below_an_old_checkpoint_is_dirty_from_its_start(tmp_path: Path, restart: bool) -> None:
    logs = node(tmp_path)
    old = logs.create("t", 0, OLD, COMPACT)
    grow(old, 60)
    run(logs)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 60\n"
    logs.delete(OLD, 0, NOW_MS)
    new = logs.create("t", 0, NEW, COMPACT)
    put(new, b"secret", b"to be deleted")
    put(new, b"secret", None)
    grow(new, 70)
    if restart:
        logs.close_all()
        logs = node(tmp_path)
        new = logs.open.get(NEW, 0)
    assert new.cleaning.cleaned_until == 0
    for i in range(3):
        run(logs, NOW_MS + 5000 * i)
        grow(new, 3)
    assert values_of(new, b"secret") in ([None], [])
    logs.close_all()


def test_a_truncation_below_what_was_cleaned_makes_the_rest_dirty_again(tmp_path: Path) -> None:
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    put(log, b"secret", b"to be deleted")
    grow(log, 80)
    run(logs)
    assert log.cleaning.cleaned_until == 81
    truncate_to(log, 10)
    assert log.cleaning.cleaned_until == 10
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 10\n"
    put(log, b"secret", None, epoch=1)
    for i in range(3):
        grow(log, 30, epoch=1)
        run(logs, NOW_MS + 5000 * i)
    assert values_of(log, b"secret") == []
    logs.close_all()


def test_a_pass_that_began_before_a_truncation_ends_with_it(tmp_path: Path) -> None:
    """The map names a later value of the key, and the truncation removes that value."""
    log = open_at(tmp_path, COMPACT)
    put(log, b"precious", b"committed")
    grow(log, 60)
    put(log, b"precious", b"to be truncated away")
    grow(log, 100)
    steps = clean(log, plan_for(log, 0, NOW_MS), NOW_MS)
    step, answer, work = next(steps), None, None
    while not list(tmp_path.glob("*.cleaned")):
        if isinstance(step, Begin):
            work = CleaningPass(log.files, step.job)
        elif isinstance(step, Advance):
            assert work is not None
            answer = work.advance(step.first_base)
            continue_with = answer
            if not list(tmp_path.glob("*.cleaned")):
                step = steps.send(continue_with)
            continue
        else:
            step.run()
        step = steps.send(None)
    truncate_to(log, 50)
    with pytest.raises(LogChanged, match="truncated"):
        steps.send(answer)
    assert values_of(log, b"precious") == [b"committed"]
    assert not list(tmp_path.glob("*.cleaned"))


def test_what_a_pass_decides_by_is_on_the_disk_before_anything_goes(tmp_path: Path) -> None:
    log = open_at(tmp_path, COMPACT)
    grow(log, 60)
    assert log.recovery_point == 0
    steps = clean(log, plan_for(log, 0, NOW_MS), NOW_MS)
    next(steps).run()
    begun = next(steps)
    assert log.recovery_point == log.high_watermark
    assert isinstance(begun, Begin)
    steps.close()


def test_no_snapshot_outlives_a_marker_that_it_counts_on(tmp_path: Path) -> None:
    """If the log were replayed from there without the marker, the transaction would be open for ever, and hold back the last
    stable offset.
    """
    config = replace(COMPACT, delete_retention_ms=0)
    log = open_at(tmp_path, config)
    put(log, b"large", b"x" * 1100)  # so that the segments are not merged
    batch = build_batch([(b"k", b"1", NOW_MS)], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, batch)
    log.roll(NOW_MS)
    assert log.snapshots.offsets == [2]
    put(log, b"larger", b"x" * 1100)
    append_trusted(log, marker(5, 0, commit=True), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    more = build_batch([(b"k", b"2", NOW_MS)], producer_id=5, producer_epoch=0, base_sequence=1)
    append(log, more)
    for i in range(4):
        grow(log, 4)
        put(log, b"k", b"%d" % i)
        log.advance_high_watermark(log.log_end_offset)
        list(steps_done(clean(log, plan_for(log, 0, NOW_MS + i), NOW_MS + i, 1 << 20), log.files))
    assert not [batch for batch in log.batches(0) if batch.is_control], "the marker has gone"
    log.close(clean=False)
    again = open_at(tmp_path, config, recovery_point=2)
    again.advance_high_watermark(again.log_end_offset)
    assert again.last_stable_offset == again.log_end_offset


# Logs beside each other


def poison(log: Log) -> None:
    """A record whose timestamp does not fit into 64 bits, from a leader that has accepted it.

    Such records from clients are rejected.
    """
    payload = encode_record(0, 1, b"m", b"v") + encode_record(1, 1, b"k", None)
    header = {"base_timestamp": 2**63 - 1, "max_timestamp": NOW_MS, "last_offset_delta": 1, "count": 2}
    records = pack_batch(
        payload,
        base_offset=log.log_end_offset,
        leader_epoch=0,
        attributes=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        **header,
    )
    append_trusted(log, records, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)


def test_a_log_that_cannot_be_cleaned_is_passed_over_and_the_others_go_on(tmp_path: Path) -> None:
    logs = node(tmp_path)
    bad = logs.create("bad", 0, OLD, replace(COMPACT, cleanup_policy=("delete",)))
    poison(bad)
    grow(bad, 60)
    bad.update_config(COMPACT)
    good = logs.create("good", 0, NEW, COMPACT)
    grow(good, 60)
    for _ in range(3):
        run(logs)
    assert bad.cleaning.uncleanable is not None and "error" in bad.cleaning.uncleanable
    assert good.cleaning.uncleanable is None and good.cleaning.cleaned_until == 60
    assert len(values_of(good, b"k0")) == 1 < len(values_of(bad, b"k0"))
    assert not list(tmp_path.rglob("*.cleaned"))
    logs.close_all()


@pytest.mark.parametrize("at", [8, 16, 30, 75])
def test_a_damaged_batch_is_never_given_a_checksum_that_is_right(tmp_path: Path, at: int) -> None:
    """Damage to a length, a magic, an offset delta and a byte of a record, in a sealed segment."""
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    append(log, build_batch([(b"a", b"%d" % i * 20, NOW_MS) for i in range(5)] + [(b"b", None, NOW_MS)]))
    grow(log, 30)
    path = Path(log.segments[0].file.log_path)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0x55
    path.write_bytes(damaged)
    run(logs)
    assert log.cleaning.uncleanable is not None and path.read_bytes() == damaged
    logs.close_all()


@pytest.mark.parametrize("segment", [0, -2])
@pytest.mark.parametrize("base_offset", [-1, 1 << 20])
def test_a_damaged_offset_ends_a_pass(tmp_path: Path, segment: int, base_offset: int) -> None:
    """No CRC covers it. A new segment would give the record another place, and its indexes another order."""
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    grow(log, 60)
    path = Path(log.segments[segment].file.log_path)
    damaged = bytearray(path.read_bytes())
    damaged[:8] = base_offset.to_bytes(8, "big", signed=True)
    path.write_bytes(damaged)
    run(logs)
    assert log.cleaning.uncleanable is not None and "is damaged at byte 0" in log.cleaning.uncleanable
    assert path.read_bytes() == damaged and not list(tmp_path.rglob("*.cleaned"))
    logs.close_all()


def test_a_damaged_record_of_the_clean_part_ends_a_pass(tmp_path: Path) -> None:
    """An unchanged batch was copied unread, so a damaged key could stand for a record that is removed."""
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    put(log, b"only once", b"x" * 40)
    grow(log, 20)
    run(logs)
    assert log.cleaning.uncleanable is None and log.cleaning.cleaned_until == 21
    path = Path(log.segments[0].file.log_path)
    damaged = bytearray(path.read_bytes())
    damaged[75] ^= 1
    path.write_bytes(damaged)
    grow(log, 20)
    run(logs)
    assert log.cleaning.uncleanable is not None and path.read_bytes() == damaged
    logs.close_all()


@pytest.mark.parametrize("at", [0, 700])
def test_pages_that_cannot_be_read_are_no_death_of_the_process(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    grow(log, 60)
    path, populate = log.segments[1].file.log_path, OsMappedFile.populate

    def refuse(mapped: OsMappedFile, start: int, end: int) -> None:
        if mapped.path == path and start <= at < end:
            raise StorageFailure(path, OSError(errno.EIO, "simulated medium error"))
        populate(mapped, start, end)

    monkeypatch.setattr(OsMappedFile, "populate", refuse)
    run(logs)
    assert isinstance(log.failure, StorageFailure) and not list(tmp_path.rglob("*.cleaned"))


def test_a_full_disk_makes_compaction_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    grow(log, 60)
    with monkeypatch.context() as patch:

        def advance(self: CleaningPass, first_base: int) -> PassProgress:
            raise DiskFull("somewhere", "no room")

        patch.setattr(CleaningPass, "advance", advance)
        run(logs)
    assert log.cleaning.uncleanable is None and log.failure is None
    run(logs)
    assert log.cleaning.cleaned_until == 60
    logs.close_all()


def test_a_pass_whose_process_is_killed_waits_for_another_process_and_gives_the_log_up_after_five(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When memory runs out, the kernel kills it first. One death ended compaction of that log until the node's restart."""
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    grow(log, 60)

    def advance(self: CleaningPass, first_base: int) -> PassProgress:
        raise PassEnded("the worker process 7 has ended")

    with monkeypatch.context() as patch:
        patch.setattr(CleaningPass, "advance", advance)
        for _ in range(PASSES_ENDED_MAX - 1):
            run(logs)
    assert log.cleaning.uncleanable is None
    run(logs)
    assert log.cleaning.cleaned_until == 60
    grow(log, 60)
    monkeypatch.setattr(CleaningPass, "advance", advance)
    cleaner = Cleaner(logs)
    for ended in range(1, PASSES_ENDED_MAX + 1):
        for _ in steps_done(cleaner.run(NOW_MS), logs.files):
            pass
        assert (log.cleaning.uncleanable is not None) is (ended == PASSES_ENDED_MAX)
    assert not list(tmp_path.rglob("*.cleaned"))
    logs.close_all()


@pytest.mark.parametrize(
    "error",
    [
        StorageFailure("path", OSError(5, "broken")),
        DiskFull("path", "full"),
        CorruptFile("path", "damaged"),
        KafkaError(ErrorCode.CORRUPT_MESSAGE, "why"),
        DamagedLog("path", 7, "why", order=True),
    ],
)
def test_errors_come_whole_from_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error)
    assert vars(copy).keys() == vars(error).keys()


# Both policies at once, and what goes under a pass


def test_compact_and_delete_together_keep_the_last_values_of_what_is_retained(tmp_path: Path) -> None:
    config = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=HOUR_MS)
    logs = node(tmp_path, config)
    log = logs.create("t", 0, OLD, config)
    for i in range(60):
        append(log, build_batch([(b"old%d" % (i % 20), b"x" * 40, NOW_MS - 2 * HOUR_MS)]))
    log.roll(NOW_MS)
    for i in range(60):
        append(log, build_batch([(b"new%d" % (i % 4), b"%d" % i, NOW_MS)]))
    log.roll(NOW_MS)
    put(log, b"active", b"z")
    log.advance_high_watermark(log.log_end_offset)
    run(logs)
    assert len(values_of(log, b"old0")) == 1 == len(values_of(log, b"new0"))
    assert retain(logs, NOW_MS)
    assert values_of(log, b"old0") == [] and values_of(log, b"new3") == [b"59"]
    run(logs)
    assert values_of(log, b"new3") == [b"59"]
    logs.close_all()


@pytest.mark.parametrize("step", range(4, 14))
def test_segments_that_retention_removes_under_a_pass_do_not_come_back(tmp_path: Path, step: int) -> None:
    logs = node(tmp_path)
    log = logs.create("t", 0, OLD, COMPACT)
    for i in range(200):
        put(log, b"k%d" % i, b"x" * 40)
    grow(log, 60)
    count = 0

    def between() -> None:
        nonlocal count
        count += 1
        if count == step:
            delete_records(log, 150)
            retain(logs, NOW_MS)

    run(logs, between=between)
    assert count >= step and log.cleaning.uncleanable is None
    assert log.segments[0].base_offset <= 150 == log.log_start_offset
    run(logs)
    assert values_of(log, b"k199") == [b"x" * 40]
    logs.close_all()
    again = node(tmp_path).open.get(OLD, 0)
    assert again is not None and again.log_start_offset == 150 and values_of(again, b"k160") == [b"x" * 40]


# Configuration


def test_max_compaction_lag_seals_the_active_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(COMPACT, segment_bytes=1 << 20, max_compaction_lag_ms=HOUR_MS))
    for hour in range(4):
        now_ms = NOW_MS + hour * HOUR_MS + hour
        log.append(build_batch([(b"user", b"%d" % hour, now_ms)]), leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments) == 4
    assert plan_for(log, 0, now_ms).overdue
    log.update_config(replace(log.config, cleanup_policy=("delete",)))
    assert log.config.roll_ms == log.config.segment_ms


def test_a_batch_is_compressed_again_with_the_topics_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_at(tmp_path, replace(COMPACT, compression_gzip_level=9))
    append(log, build_batch([(b"a", b"1", NOW_MS), (b"b", b"1", NOW_MS)], compression=compression.GZIP))
    grow(log, 30)
    put(log, b"a", b"2")
    log.roll(NOW_MS)
    put(log, b"z", b"z")
    log.advance_high_watermark(log.log_end_offset)
    levels = []

    def compress(data: bytes, level: int) -> bytes:
        levels.append(level)
        return codec.compress(data, level)

    codec = compression.CODECS[compression.GZIP]
    codecs = list(compression.CODECS)
    codecs[compression.GZIP] = codec._replace(compress=compress)
    monkeypatch.setattr(compression, "CODECS", tuple(codecs))
    list(steps_done(clean(log, plan_for(log, 0, NOW_MS), NOW_MS, 1 << 20), log.files))
    assert levels == [9] and values_of(log, b"b") == [b"1"] and values_of(log, b"a") == [b"2"]


def test_groups_keep_to_the_size_of_an_index_that_is_not_in_memory(tmp_path: Path) -> None:
    config = replace(COMPACT, segment_bytes=20_000, segment_index_bytes=240, index_interval_bytes=1)
    log = open_at(tmp_path, config)
    grow(log, 200)
    for segment in list(log.segments)[:-1]:
        segment.unmap()
    list(steps_done(clean(log, plan_for(log, 0, NOW_MS), NOW_MS, 1 << 20), log.files))
    for segment in list(log.segments)[:-1]:
        assert (log.files.size(f"{segment.file.path}.index") or 0) <= 240


def test_a_group_is_no_more_than_one_turn_of_the_loop_can_rename() -> None:
    sources = [SourceSegment(i * 10, 1) for i in range(3 * GROUP_SEGMENTS_MAX + 1)]
    groups = group_sources(sources, [0] * len(sources), LogConfig(), 10**6)
    assert [len(group) for group in groups] == [GROUP_SEGMENTS_MAX] * 3 + [1]


# The map


def test_the_map_knows_the_last_record_of_each_key() -> None:
    offsets = OffsetMap(100, 1000, 1 << 20)
    rng = Random(5)
    last: dict[bytes, int] = {}
    for start in range(0, 1000, 50):
        gathered = {}
        for ordinal in range(start, start + 50):
            gathered[b"key%d" % rng.randrange(120)] = ordinal << 1 | (ordinal % 7 == 0)
        offsets.put_all(gathered)
        last |= gathered
    assert offsets.keys == len(last) and all(key in offsets for key in last) and b"other" not in offsets
    wanted = {packed >> 1: TOMBSTONE if packed & 1 else VALUE for packed in last.values()}
    assert {ordinal: kind for ordinal, kind in enumerate(offsets.kinds) if kind} == wanted


def test_five_million_keys_fit_into_128_mb() -> None:
    offsets = OffsetMap(0, 1, 0)
    memory_bytes = 128 << 20
    slots = (memory_bytes - 5_000_000) // 20
    assert int(slots * 0.9) >= 5_000_000
    assert offsets.keys_max < 100, "a short dirty part takes no more than it needs"


def test_a_map_that_is_full_is_as_full_as_its_load_factor_says() -> None:
    offsets = OffsetMap(0, 10_000, 40_000)
    assert not offsets.has_room(1, offsets.keys_max + 1)
    offsets.put_all({b"%d" % i: i << 1 for i in range(offsets.keys_max)})
    assert not offsets.has_room(1, 1) and b"0" in offsets and b"-" not in offsets


def test_the_loop_goes_on_while_many_logs_are_looked_through(tmp_path: Path) -> None:
    logs = node(tmp_path)
    for partition in range(12):
        grow(logs.create("t", partition, OLD, replace(COMPACT, min_cleanable_dirty_ratio=1.0)), 300)
    segments = sum(len(log.segments) for log in logs.open)
    steps = list(steps_done(Cleaner(logs).run(NOW_MS), logs.files))
    assert segments // (2 * SEGMENTS_PER_TURN) <= len(steps) <= segments // SEGMENTS_PER_TURN
    assert len(steps) >= 2 and all(step is None for step in steps)
    logs.close_all()
