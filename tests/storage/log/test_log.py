"""Appending and reading: what is assigned, rejected, rolled, and found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, iter_batches, patch_timestamp
from ottla.protocol.records.builder import build_batch, pack_batch
from ottla.protocol.work import RECORDS_A_TURN, TooLong, Turn, do_now
from ottla.storage.errors import UnexpectedAppendOffset
from ottla.storage.log import lookup
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.lookup import prepare_append
from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import segment_file
from ottla.storage.segment.segment import HINTS_MAX
from tests.effort import examples
from tests.protocol.records.reference import crc_is_valid
from tests.storage.logs_for_tests import (
    NOW_MS,
    SMALL,
    append,
    append_as,
    batch,
    filled,
    marker,
    max_timestamp,
    offset_for_timestamp,
    offsets,
    open_at,
    read_all,
)


def refused(log: Log, records: bytes, origin: Origin = Origin.CLIENT) -> str:
    """Return the name of the error. The log must be unchanged."""
    before = (log.log_end_offset, log.segments.size, read_all(log), len(log.producers))
    with pytest.raises(KafkaError) as raised:
        append_as(origin, log, records, 0, NOW_MS)
    assert (log.log_end_offset, log.segments.size, read_all(log), len(log.producers)) == before
    return raised.value.code.name


def patched(records: bytes, at: int, value: bytes, fix_crc: bool = True) -> bytes:
    from ottla.protocol.records.batch import crc32c

    data = bytearray(records)
    data[at : at + len(value)] = value
    if fix_crc:
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def test_offsets_and_epoch_are_written_into_the_batch(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert [append(log, batch(3), epoch=7), append(log, batch(2), epoch=8)] == [0, 3]
    views = list(log.batches(0))
    assert [(v.base_offset, v.last_offset, v.partition_leader_epoch, crc_is_valid(v)) for v in views] == [
        (0, 2, 7, True),
        (3, 4, 8, True),
    ]
    assert log.epochs.entries == [(7, 0), (8, 3)]
    assert (log.end_offset_for_epoch(7), log.end_offset_for_epoch(8)) == ((7, 3), (8, 5))
    assert (log.end_offset_for_epoch(6), log.end_offset_for_epoch(9)) == ((6, 0), (-1, -1))


def test_the_result_of_an_append_has_its_named_values_and_no_other(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    appended = [append_as(origin, log, batch(3), 0, NOW_MS) for origin in (Origin.CLIENT, Origin.COORDINATOR)]
    assert [tuple(each) for each in appended] == [(0, 2, -1, 0, False), (3, 5, -1, 0, False)]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", "INVALID_RECORD"),
        (batch()[:40], "INVALID_RECORD"),
        (batch()[:-1], "INVALID_RECORD"),
        (batch() + batch(), "INVALID_RECORD"),
        (patched(batch(), 16, b"\1"), "INVALID_RECORD"),
        (patched(batch(), 70, b"\x99", fix_crc=False), "CORRUPT_MESSAGE"),
        (patched(batch(), 0, bytes(7) + b"\5"), "INVALID_RECORD"),
        (patched(batch(), 57, bytes(4)), "INVALID_RECORD"),
        (patched(batch(), 57, (2).to_bytes(4, "big")), "INVALID_RECORD"),
        (patched(batch(), 23, (2**31 - 1).to_bytes(4, "big")), "INVALID_RECORD"),
        (patched(batch(), 23, (-1).to_bytes(4, "big", signed=True)), "INVALID_RECORD"),
        (batch(size=1_100_000), "MESSAGE_TOO_LARGE"),
        (batch(timestamp=NOW_MS + 3_600_001), "INVALID_TIMESTAMP"),
        (batch(size=3000), "RECORD_LIST_TOO_LARGE"),
        (marker(1, 0, commit=True), "INVALID_RECORD"),
        (batch(producer_id=5, producer_epoch=0, base_sequence=-1), "INVALID_RECORD"),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_changes(tmp_path: Path, records: bytes, error: str) -> None:
    log = open_at(tmp_path)
    append(log, batch())
    assert refused(log, records) == error


def test_a_compacted_topic_refuses_records_without_a_key(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(SMALL, cleanup_policy=("compact",)))
    assert refused(log, build_batch([(None, b"v", NOW_MS)])) == "INVALID_RECORD"
    assert append(log, build_batch([(b"k", b"v", NOW_MS)])) == 0


@given(data=st.binary(max_size=300), at=st.integers(0, 400), origin=st.sampled_from(list(Origin)))
@settings(max_examples=examples(300))
def test_arbitrary_bytes_never_get_in_half(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, origin: Origin
) -> None:
    log = ARBITRARY.setdefault("log", open_at(tmp_path_factory.mktemp("arbitrary")))
    good = bytearray(batch(2))
    good[at : at + len(data)] = data
    before, end = read_all(log), log.log_end_offset
    try:
        append_as(origin, log, bytes(good), 0, NOW_MS)
    except (KafkaError, UnexpectedAppendOffset):
        assert (read_all(log), log.log_end_offset) == (before, end)
    else:
        assert all(crc_is_valid(view) for view in log.batches(end))
        assert read_all(log).startswith(before)


ARBITRARY: dict[str, Log] = {}


def test_log_append_time_is_stamped_by_the_log(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(SMALL, message_timestamp_type="LogAppendTime"))
    appended = log.append(batch(2, timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert appended.log_append_time == NOW_MS
    view = next(iter(log.batches(0)))
    assert (view.max_timestamp, view.timestamp_type, crc_is_valid(view)) == (NOW_MS, 1, True)
    assert [record.timestamp for record in view.records()] == [NOW_MS, NOW_MS]
    assert offset_for_timestamp(log, NOW_MS) == (NOW_MS, 0, 0)


@pytest.mark.parametrize(
    ("wanted", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
@pytest.mark.parametrize("sent", range(5))
def test_the_topics_codec_replaces_the_producers(tmp_path: Path, wanted: str, codec: int, sent: int) -> None:
    log = open_at(tmp_path, replace(SMALL, compression_type=wanted))
    append(log, batch())
    append(log, batch(3, compression=sent))
    view = list(log.batches(0))[1]
    assert (view.compression, view.base_offset, crc_is_valid(view)) == (codec, 1, True)
    assert [record.key for record in view.records()] == [b"k0", b"k1", b"k2"]
    if codec != 3:
        assert refused(log, patched(batch(compression=3), 70, b"\xff" * 20)) == "INVALID_RECORD"


#: Records that Apache Kafka rejects, by what is wrong with them, and the count in the header.
UNREADABLE = {
    "a header without a key": (b"\x12\0\0\0\2k\2v\2\1\0", 1),
    "headers -1": (b"\x10\0\0\0\2k\2v\1", 1),
    "fewer headers than there are said to be": (b"\x14\0\0\0\2k\2v\6\2a\0", 1),
    "bytes behind the headers": (b"\x18\0\0\0\2k\2v\0junk", 1),
    "a record longer than the batch": (b"\x60\0\0\0\2k\2v\0", 1),
    "one record more": (b"\x10\0\0\0\2k\2v\0" * 2, 1),
}


@pytest.mark.parametrize("fault", UNREADABLE)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_stored_with_another_codec_has_records_that_can_be_read(
    tmp_path: Path, wanted: str, fault: str
) -> None:
    log = open_at(tmp_path, replace(SMALL, compression_type=wanted))
    payload, count = UNREADABLE[fault]
    for sent in range(5):
        if sent != log.rules.codec:
            produced = pack_batch(
                payload, base_offset=0, leader_epoch=-1, attributes=0, last_offset_delta=count - 1, base_timestamp=NOW_MS,
                max_timestamp=NOW_MS, producer_id=-1, producer_epoch=-1, base_sequence=-1, count=count, compression=sent,
            )  # fmt: skip
            assert refused(log, produced) == "INVALID_RECORD", sent
    assert log.log_end_offset == 0


def test_a_batch_that_is_too_long_for_a_turn_is_prepared_first(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig(cleanup_policy=("compact",), compression_type="gzip"))
    count = 2 * RECORDS_A_TURN
    sent = memoryview(batch(count, size=10))
    with pytest.raises(TooLong):
        log.append(sent, leader_epoch=0, now_ms=NOW_MS, prepared=Turn())
    assert log.log_end_offset == 0
    prepared = do_now(prepare_append(log, sent, NOW_MS, Turn()))
    assert log.append(sent, leader_epoch=0, now_ms=NOW_MS, prepared=prepared).last_offset == count - 1
    stored = next(log.batches(0))
    assert (stored.compression, stored.count) == (1, count)
    # With another configuration it would have to be prepared again.
    log.update_config(LogConfig(cleanup_policy=("compact",), compression_type="lz4"))
    with pytest.raises(TooLong):
        log.append(sent, leader_epoch=0, now_ms=NOW_MS, prepared=prepared)
    assert log.append(batch(5), leader_epoch=0, now_ms=NOW_MS, prepared=Turn()).last_offset == count + 4


def test_what_is_found_wrong_beforehand_is_raised_by_the_append_and_keeps_no_records(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig(cleanup_policy=("compact",)))
    sent = memoryview(build_batch([(b"k", None, NOW_MS)] * RECORDS_A_TURN + [(None, b"v", NOW_MS)]))
    prepared = do_now(prepare_append(log, sent, NOW_MS, Turn()))
    assert prepared is not None and isinstance(prepared.outcome, KafkaError)
    assert prepared.outcome.__traceback__ is None, "its frames hold what was decompressed"
    with pytest.raises(KafkaError, match="1 records were rejected"):
        log.append(sent, leader_epoch=0, now_ms=NOW_MS, prepared=prepared)
    assert do_now(prepare_append(log, sent[:-1], NOW_MS, Turn())) is None  # the append itself says what is wrong
    assert log.log_end_offset == 0


@pytest.mark.parametrize("change", ["delete", "truncate", "append", "retention"])
def test_a_search_goes_on_in_a_log_that_changes_between_its_turns(tmp_path: Path, change: str) -> None:
    log = open_at(tmp_path, replace(SMALL, retention_bytes=4000))
    liar = bytearray(batch(20, size=10))
    patch_timestamp(liar, 0, 0, NOW_MS + 9_000)
    for _ in range(300):
        append(log, bytes(liar))
    append(log, build_batch([(b"k", b"v", NOW_MS + 8_000)]))
    log.advance_high_watermark(log.log_end_offset)
    work = lookup.offset_for_timestamp(log, NOW_MS + 8_000, Turn())
    assert [next(work), next(work)] == [None, None]
    if change == "delete":
        delete_records(log, 5_990)
    elif change == "truncate":
        truncate_to(log, 100)
    elif change == "append":
        append(log, build_batch([(b"k", b"v", NOW_MS + 8_500)]))
    else:
        assert apply_retention(log, NOW_MS)
    assert do_now(work) == (None if change == "truncate" else (NOW_MS + 8_000, 6_000, 0))


def test_create_time_answers_minus_one(tmp_path: Path) -> None:
    assert open_at(tmp_path).append(batch(), leader_epoch=0, now_ms=NOW_MS).log_append_time == -1


def test_a_duplicate_answers_the_offsets_of_its_first_append(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    first = batch(3, producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, batch())
    log.append(first, leader_epoch=0, now_ms=NOW_MS)
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=3))
    end = log.log_end_offset
    again = log.append(first, leader_epoch=0, now_ms=NOW_MS)
    assert (again.first_offset, again.last_offset, again.duplicate, log.log_end_offset) == (1, 3, True, end)


# Reading


def test_reads_stop_at_the_offset_given(tmp_path: Path) -> None:
    log = filled(tmp_path, 20)
    got = log.read(5, max_bytes=1 << 20, up_to_offset=9)
    assert [v.base_offset for v in iter_batches(got.records)] == [5, 6, 7, 8]
    assert (got.first_batch_offset, got.next_offset) == (5, 9)
    assert not log.read(9, max_bytes=1 << 20, up_to_offset=9).records
    assert not log.read(9, max_bytes=1 << 20, up_to_offset=3).records


def test_a_batch_that_reaches_over_the_limit_is_held_back(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(2))
    append(log, batch(4))
    assert [v.base_offset for v in iter_batches(log.read(0, max_bytes=1 << 20, up_to_offset=4).records)] == [0]


def test_an_offset_inside_a_batch_gives_the_whole_batch(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(10))
    got = log.read(7, max_bytes=1)
    assert (got.first_batch_offset, got.next_offset) == (0, 10)


def test_the_first_batch_is_returned_even_when_it_is_too_large_unless_the_limit_is_hard(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    assert log.read(1, max_bytes=10).next_offset == 2
    assert len(log.read(1, max_bytes=10, min_one=False).records) == 0
    assert len(log.read(1, max_bytes=0, min_one=False).records) == 0


@pytest.mark.parametrize("offset", [-1, 41, 10**12])
def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path, 40)
    with pytest.raises(KafkaError) as raised:
        log.read(offset, max_bytes=100)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert not log.read(40, max_bytes=100).records


def test_a_view_stays_as_it_was_through_appends_truncation_and_close(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    held = log.read(0, max_bytes=1 << 20).records
    copy = bytes(held)
    for i in range(200):
        append(log, batch(fill=i, size=500))
    log.roll(NOW_MS)
    truncate_to(log, 5)
    log.close()
    assert bytes(held) == copy
    with pytest.raises(TypeError):
        held[0] = 1


# Rolling


@pytest.mark.parametrize(
    ("config", "timestamps", "segments"),
    [
        (LogConfig(segment_bytes=400), [0] * 6, 3),
        (LogConfig(segment_ms=100), [0, 50, 100, 101, 150, 202], 3),
        (LogConfig(segment_index_bytes=24, index_interval_bytes=0), [0] * 6, 3),
    ],
)
def test_when_a_new_segment_begins(tmp_path: Path, config: LogConfig, timestamps: list[int], segments: int) -> None:
    log = open_at(tmp_path, config)
    for timestamp in timestamps:
        append(log, batch(timestamp=NOW_MS + timestamp - 3600))
    assert len(log.segments) == segments
    assert offsets(log) == list(range(6))


def test_records_without_timestamps_roll_by_the_wall_clock(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig(segment_ms=1000))
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS - 10**9, NOW_MS + 1001):
        log.append(batch(timestamp=-1), leader_epoch=0, now_ms=now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_an_offset_too_far_from_the_base_begins_a_new_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    far = 2**31
    for base in (0, 5, far - 1, far, far + 9):
        append_trusted(log, batch(base_offset=base), leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert offsets(log) == [0, 5, far - 1, far, far + 9]
    assert log.read(6, max_bytes=1).first_batch_offset == far - 1


# Replication and raft


def test_a_followers_log_becomes_the_leaders_byte_for_byte(tmp_path: Path) -> None:
    leader = open_at(tmp_path / "leader")
    for i in range(60):
        append(leader, batch(1 + i % 3, fill=i, producer_id=i, producer_epoch=0, base_sequence=0), epoch=i // 20)
    append_trusted(leader, marker(1, 1, commit=False), leader_epoch=2, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    follower = open_at(tmp_path / "follower")
    while follower.log_end_offset < leader.log_end_offset:
        got = leader.read(follower.log_end_offset, max_bytes=900)
        append_trusted(follower, got.records, leader_epoch=2, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert read_all(follower) == read_all(leader)
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (1, 39), (2, 79)]
    assert list(follower.producers) == list(leader.producers)


def test_a_fetch_cut_inside_its_last_batch_is_taken_up_to_there(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    data = batch(base_offset=0) + batch(base_offset=1) + batch(base_offset=2)[:100]
    appended = append_trusted(log, data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert (appended.last_offset, log.log_end_offset) == (1, 2)


def test_replicated_batches_that_step_back_are_refused(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(5))
    with pytest.raises(UnexpectedAppendOffset):
        append_trusted(log, batch(base_offset=4), leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    with pytest.raises(UnexpectedAppendOffset):
        append_trusted(log, batch(base_offset=6), leader_epoch=0, now_ms=NOW_MS, origin=Origin.RAFT)
    assert log.log_end_offset == 5


def test_replicated_batches_of_an_older_leader_epoch_are_refused(tmp_path: Path) -> None:
    """Recovery would end the log before them."""
    log = open_at(tmp_path)
    append(log, batch(), epoch=3)
    older = batch(base_offset=1, leader_epoch=2)
    assert refused(log, older, Origin.REPLICATION) == "CORRUPT_MESSAGE"
    newer, older = batch(base_offset=1, leader_epoch=4), batch(base_offset=2, leader_epoch=3)
    assert refused(log, newer + older, Origin.REPLICATION) == "CORRUPT_MESSAGE"


def test_an_epoch_that_began_without_a_batch_is_dropped_for_a_batch_of_the_epoch_before(tmp_path: Path) -> None:
    """The replica led epoch 5 and wrote nothing; the leader of epoch 6 has batches of epoch 4 at the same offset."""
    log = open_at(tmp_path)
    append(log, batch(), epoch=3)
    log.epochs.begin(5, 1)
    followed = batch(base_offset=1, leader_epoch=4)
    append_trusted(log, followed, leader_epoch=6, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert log.epochs.entries == [(3, 0), (4, 1)]
    log.close()
    assert offsets(open_at(tmp_path, clean=True)) == [0, 1]


def test_a_damaged_batch_in_a_replicated_set_keeps_the_whole_set_out(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(5))
    bad = bytearray(batch(base_offset=6))
    bad[100] ^= 1
    assert refused(log, batch(base_offset=5) + bytes(bad), Origin.REPLICATION) == "CORRUPT_MESSAGE"


@pytest.mark.parametrize("key", [b"", b"\0\0\0\x09"])
def test_a_leaders_marker_that_cannot_be_read_changes_nothing(tmp_path: Path, key: bytes) -> None:
    """If this were noticed after the write, the log would continue without the end of the transaction, or of the follower."""
    log = open_at(tmp_path)
    unreadable = build_batch(
        [(key, b"\0" * 6, NOW_MS)], base_offset=1, producer_id=7, producer_epoch=0, transactional=True, control=True
    )
    for data in (unreadable, batch(base_offset=0) + unreadable):
        assert refused(log, data, Origin.REPLICATION) == "INVALID_RECORD"
        assert (log.log_end_offset, log.segments.size, log.epochs.entries) == (0, 0, [])
    again = batch(base_offset=0) + marker(7, 0, commit=True, base_offset=1)
    assert append_trusted(log, again, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION).last_offset == 1


def test_the_raft_log_keeps_control_batches_and_epochs(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    leader_change = build_batch([(b"\0\0\0\2", b"\0\0", NOW_MS)], control=True, base_offset=0, leader_epoch=3)
    data = leader_change + batch(2, base_offset=1, leader_epoch=3)
    append_trusted(log, data, leader_epoch=3, now_ms=NOW_MS, origin=Origin.RAFT)
    assert (log.log_end_offset, log.epochs.latest, len(log.producers)) == (3, 3, 0)
    del log
    again = open_at(tmp_path)
    assert (again.log_end_offset, again.epochs.entries) == (3, [(3, 0)])


def test_a_set_larger_than_a_segment_is_spread_over_several(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    data = b"".join(batch(base_offset=i, fill=i) for i in range(50))
    append_trusted(log, data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert read_all(log) == data
    assert len(log.segments) > 3


# Timestamps


@settings(max_examples=examples(60))
@given(
    steps=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=40),
    wanted=st.integers(-5, 60),
    start=st.integers(0, 20),
    restart=st.booleans(),
)
def test_lookups_by_time_find_what_a_search_of_all_records_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[int]], wanted: int, start: int, restart: bool
) -> None:
    directory = tmp_path_factory.mktemp("times")
    log = open_at(directory)
    for times in steps:
        append(log, build_batch([(b"k", bytes(90), NOW_MS + t - 60_000) for t in times]))
    log.advance_high_watermark(log.log_end_offset)
    delete_records(log, min(start, log.log_end_offset))
    if restart:
        log = open_at(directory, log_start_offset=log.log_start_offset)
    rows = [(r.timestamp, r.offset, 0) for b in log.batches(log.log_start_offset) for r in b.records()]
    rows = [row for row in rows if row[1] >= log.log_start_offset]
    timestamp = NOW_MS + wanted - 60_000
    assert offset_for_timestamp(log, timestamp) == next((row for row in rows if row[0] >= timestamp), None)
    assert max_timestamp(log) == max(rows, key=lambda row: (row[0], -row[1]), default=None)


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert (offset_for_timestamp(log, 0), max_timestamp(log)) == (None, None)


# Moving offsets


def test_the_high_watermark_only_rises_and_stops_at_the_end(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(10))
    assert [log.advance_high_watermark(offset) for offset in (4, 4, 2, 99)] == [True, False, False, True]
    assert log.high_watermark == 10


def test_truncation_takes_epochs_producers_and_aborted_transactions_back(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), epoch=1)
    append_trusted(log, marker(1, 0, commit=False), leader_epoch=1, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=1, transactional=True), epoch=2)
    append_trusted(log, marker(1, 0, commit=False), leader_epoch=3, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.flush()
    assert truncate_to(log, 3)
    assert log.epochs.entries == [(1, 0), (2, 2)]
    assert [txn.last_offset for txn in log.segments.aborted_transactions(0, 10)] == [1]
    assert log.producers.states[1].current_txn_first_offset == 2
    assert (log.recovery_point, log.last_stable_offset) == (3, 0)
    assert not truncate_to(log, 3)


def test_a_log_started_over_begins_at_the_given_offset(tmp_path: Path) -> None:
    log = filled(tmp_path, 40)
    truncate_fully_and_start_at(log, 1000)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.epochs.latest) == (1000, 1000, 1000, -1)
    assert append(log, batch(), epoch=4) == 1000
    del log
    again = open_at(tmp_path, log_start_offset=1000)
    assert (again.log_start_offset, again.log_end_offset, again.epochs.entries) == (1000, 1001, [(4, 1000)])


@pytest.mark.parametrize("offset", [-2, 21])
def test_records_above_the_high_watermark_cannot_be_deleted(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path, 20)
    append(log, batch())
    with pytest.raises(KafkaError) as raised:
        delete_records(log, offset)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(log, -1) == 20


def test_deleted_records_are_out_of_range_and_their_epochs_start_later(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for i in range(30):
        append(log, batch(fill=i), epoch=i // 10)
    log.advance_high_watermark(30)
    assert delete_records(log, 15) == 15
    assert log.epochs.entries == [(1, 15), (2, 20)]
    with pytest.raises(KafkaError):
        log.read(14, max_bytes=1)
    assert apply_retention(log, NOW_MS) == 1
    assert log.read(15, max_bytes=1).first_batch_offset == 15


def test_flush_is_due_by_messages_or_by_time(tmp_path: Path) -> None:
    log = open_at(tmp_path, replace(SMALL, flush_messages=3, flush_ms=1000))
    append(log, batch(2))
    log.durability.flushed_ms = NOW_MS
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS + 1000)
    append(log, batch())
    assert log.flush_due(NOW_MS)
    log.flush(NOW_MS)
    assert not log.flush_due(NOW_MS + 10**9)


def test_batches_seen_by_replay_can_be_taken_apart(tmp_path: Path) -> None:
    log = filled(tmp_path, 12)
    assert [(view.base_offset, len(view.records())) for view in log.batches(3, 6)] == [(3, 1), (4, 1), (5, 1)]
    assert isinstance(next(log.batches(0)), BatchView)


def test_a_segment_remembers_a_bounded_number_of_places_for_readers_that_come_back(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    for _ in range(3 * HINTS_MAX + 2):
        append(log, batch())
    for offset in range(log.log_end_offset):
        assert log.read(offset, max_bytes=1).next_offset == offset + 1
        assert len(log.segments[0].hints) <= HINTS_MAX
    assert len(log.segments[0].hints) > 1


def test_a_read_after_a_replay_over_several_segments_begins_in_the_segment_of_its_offset(tmp_path: Path) -> None:
    """A replay asks each segment for the offset that it begins with, also segments that begin after it."""
    log = open_at(tmp_path, LogConfig())
    for _ in range(3):
        append(log, batch(2))
        log.roll(NOW_MS)
    append(log, batch(2))
    assert [view.base_offset for view in log.batches(2)] == [2, 4, 6]
    assert log.read(2, max_bytes=1 << 20).next_offset == 4
    assert [view.base_offset for view in iter_batches(log.read(2, max_bytes=1 << 20).records)] == [2]


def test_a_segments_file_grows_ahead_of_its_records_by_a_bounded_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_file, "ALLOCATE_BYTES_MAX", 64 << 10)
    log = open_at(tmp_path, LogConfig())
    ahead = []
    while log.segments.size < 400 << 10:
        append(log, batch(10, size=1_000))
        ahead.append(log.segments[-1].file.allocated - log.segments.size)
    assert max(ahead) <= segment_file.ALLOCATE_BYTES_MAX
    assert max(ahead) > segment_file.ALLOCATE_BYTES_MAX // 2, "and not only by what is appended"
