"""A medium, a human or an unlucky kill has damaged the files of a log: errors are typed, only this partition fails, nothing is
destroyed.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import EndTxnMarker
from ottla.storage.directories.log_dirs import MetaProperties, open_log_dirs, write_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DamagedPartition, DiskFull, StorageFailure
from ottla.storage.files import MappedFile, OsFiles
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.retention import delete_records
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_file import OsMappedFile, WriteDescriptors
from ottla.storage.producers.producer_states import ProducerStates
from ottla.storage.segment import index as index_files
from ottla.storage.segment.index import OffsetIndex, TimeIndex
from ottla.storage.segment.walk import DamagedLog
from tests.protocol.records.reference import patch_offset
from tests.storage.chores import retain
from tests.storage.logs_for_tests import (
    NOW_MS,
    SMALL,
    append,
    batch,
    filled,
    offset_for_timestamp,
    offsets,
    open_at,
    read_all,
)

BATCH_BYTES = len(batch())


class DiesInIt:
    """A stand-in of the `struct.Struct` that stamps a batch."""

    def pack_into(self, *values: object) -> None:
        raise KeyboardInterrupt


def die_between_copy_and_stamp(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ottla.storage.segment.segment.OFFSET_LENGTH_EPOCH", DiesInIt())
        with pytest.raises(KeyboardInterrupt):
            append(log, batch(fill=9), epoch=1)


def with_a_gap(directory: Path) -> Log:
    """A follower of a compacted log has become the leader: there is a gap at 10, and acknowledged records behind it."""
    log = open_at(directory)
    for offset in [*range(3), *range(10, 12)]:
        placed = bytearray(batch())
        patch_offset(placed, 0, offset, len(placed) - 12, 0)
        append_trusted(log, placed, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    for _ in range(3):
        append(log, batch(), epoch=1)
    return log


def test_a_kill_between_copy_and_stamp_takes_nothing_away_behind_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = with_a_gap(tmp_path)
    die_between_copy_and_stamp(log, monkeypatch)
    del log
    assert offsets(open_at(tmp_path)) == [*range(3), *range(10, 15)]


def test_a_whole_batch_without_its_offset_is_no_proof_against_a_gap(tmp_path: Path) -> None:
    log = with_a_gap(tmp_path)
    segment = log.segments.active
    segment.file.view()[segment.file.size : segment.file.size + BATCH_BYTES] = batch()
    del log, segment
    assert offsets(open_at(tmp_path)) == [*range(3), *range(10, 15)]


def test_a_segment_begun_behind_a_gap_in_vain_is_given_up_for_an_earlier_batch(tmp_path: Path) -> None:
    """The disk was full when the batch at 22 was to be written there, and then another leader sends one at 21."""
    log = open_at(tmp_path)
    append(log, batch())
    log.room.roll(log.log_end_offset, NOW_MS, 22)
    log.fail(DiskFull("the disk", "full"))
    for offset in (21, 22):
        placed = bytearray(batch())
        patch_offset(placed, 0, offset, len(placed) - 12, 0)
        append_trusted(log, placed, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    assert [segment.base_offset for segment in log.segments] == [0, 21]
    del log
    assert offsets(open_at(tmp_path)) == [0, 21, 22]


def test_empty_segments_behind_gaps_go_at_one_start(tmp_path: Path) -> None:
    """Compaction emptied one of them. A second restart must find the same state as the first."""
    log = open_at(tmp_path)
    append(log, batch())
    log.close()
    for base in (20, 40):
        (tmp_path / f"{base:020d}.log").touch()
    for _ in range(2):
        log = open_at(tmp_path)
        assert log.log_end_offset == 1 and len(log.segments) == 1
        del log


def test_a_torn_batch_behind_a_log_that_ends_in_a_gap_is_no_damage(tmp_path: Path) -> None:
    log = with_a_gap(tmp_path)
    truncate_to(log, 7)
    log.flush()
    assert (log.log_end_offset, log.recovery_point, log.durability.recovery_point_to_write(log.log_end_offset)) == (
        7,
        7,
        3,
    )
    segment, point = log.segments.active, log.durability.recovery_point_to_write(log.log_end_offset)
    segment.file.view()[segment.file.size : segment.file.size + 30] = batch()[:30]
    del log, segment
    assert offsets(open_at(tmp_path, recovery_point=point)) == [0, 1, 2]


@pytest.mark.parametrize("leave", [lambda log: truncate_to(log, 9), lambda log: log.roll(NOW_MS)])
def test_a_torn_batch_behind_a_gap_that_the_log_once_ended_in_is_no_damage(
    tmp_path: Path, leave: Callable[[Log], object]
) -> None:
    """The recovery point was at the end of the gap; then something made the log forget that there was a gap."""
    log = with_a_gap(tmp_path)
    truncate_to(log, 7)
    log.flush()
    for _ in range(3):
        append(log, batch(), epoch=2)
    leave(log)
    point = log.durability.recovery_point_to_write(log.log_end_offset)
    log.segments[0].unmap()
    path = Path(log.segments[0].file.log_path)
    del log
    data = bytearray(path.read_bytes())
    data[3 * BATCH_BYTES + 30 : 3 * BATCH_BYTES + 60] = bytes(30)
    path.write_bytes(data)
    assert offsets(open_at(tmp_path, recovery_point=point)) == [0, 1, 2]


def test_a_batch_whose_offset_leapt_ahead_ends_the_log_before_it(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for i in range(5):
        append(log, batch(fill=i))
    log.segments.active.file.view()[3 * BATCH_BYTES + 5] ^= 1
    del log
    assert offsets(open_at(tmp_path)) == [0, 1, 2]


def test_the_first_batch_of_a_log_is_not_there_before_it_is_stamped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset 0 would be right, but its client's leader epoch would become that of the log."""
    log = open_at(tmp_path)
    die_between_copy_and_stamp(log, monkeypatch)
    del log
    again = open_at(tmp_path)
    assert (again.log_end_offset, again.epochs.latest) == (0, -1)


@pytest.mark.parametrize("length", [-12, 0, 48, 2**31 - 1, -(2**31)])
def test_a_damaged_length_in_a_sealed_segment_is_a_corrupt_message(tmp_path: Path, length: int) -> None:
    filled(tmp_path, 40).close()
    first = sorted(tmp_path.glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[3 * BATCH_BYTES + 8 : 3 * BATCH_BYTES + 12] = length.to_bytes(4, "big", signed=True)
    first.write_bytes(data)
    log = open_at(tmp_path, clean=True)
    assert log.read(0, max_bytes=10_000).next_offset == 3
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            log.read(3, max_bytes=10_000)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
        assert f"{first} is damaged at byte {3 * BATCH_BYTES}" in refused.value.message
    behind = log.segments[1].base_offset
    assert log.read(behind, max_bytes=300).next_offset > behind
    with pytest.raises(DamagedLog):
        list(log.batches(0))


@pytest.mark.parametrize("length", [-12, 0, 48, 2**31 - 1, -(2**31)])
def test_a_length_that_came_back_damaged_from_the_disk_is_a_corrupt_message(tmp_path: Path, length: int) -> None:
    """The damage is in the active segment, in a batch of this process: its page may have been written out and read again."""
    log = filled(tmp_path, 10)
    segment = log.segments.active
    assert segment.base_offset == 0
    struct.pack_into(">i", segment.file.view(), 3 * BATCH_BYTES + 8, length)
    with pytest.raises(DamagedLog, match=f"damaged at byte {3 * BATCH_BYTES}"):
        log.read(3, max_bytes=300)
    assert log.read(6, max_bytes=300).next_offset == 7


@pytest.mark.parametrize("byte", [0, 3, 17, 30, 61, BATCH_BYTES - 1])
def test_no_byte_that_was_changed_since_is_given_away(
    tmp_path: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 40).close()
    first = sorted(tmp_path.glob("*.log"))[0]
    whole = first.read_bytes()
    data = bytearray(whole)
    data[2 * BATCH_BYTES + byte] ^= 0x40
    first.write_bytes(data)
    log = open_at(tmp_path, clean=True)
    got = log.read(0, max_bytes=10_000)
    assert got.next_offset <= 2 and whole.startswith(bytes(got.records))
    with pytest.raises(DamagedLog):
        log.read(2, max_bytes=10_000)
    with pytest.raises(DamagedLog):
        log.read(2, max_bytes=1)
    messages = [record.message for record in caplog.records if str(first) in record.message]
    assert len(messages) == 1 and "Remedy" in messages[0], "once, not at every fetch"


def test_what_is_right_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 40).close()
    log = open_at(tmp_path, clean=True)
    expected = read_all(log)
    monkeypatch.setattr("ottla.storage.segment.walk.crc32c", lambda data: pytest.fail("checked again"))
    assert read_all(log) == expected


def test_one_read_checks_no_more_than_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, 40).close()
    monkeypatch.setattr("ottla.storage.segment.walk.BATCHES_MAX", 4)
    log = open_at(tmp_path, clean=True)
    assert log.read(0, max_bytes=10_000).next_offset == 4
    assert offsets(log) == list(range(40)) and len(read_all(log, 10_000)) == log.segments.size


def test_a_damaged_tail_of_a_clean_log_is_not_cut_off(tmp_path: Path) -> None:
    filled(tmp_path, 40).close()
    last = sorted(tmp_path.glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    before = {path: path.read_bytes() for path in tmp_path.glob("*.log")}
    with pytest.raises(DamagedLog):
        open_at(tmp_path, clean=True, recovery_point=40)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.log")} == before


@pytest.mark.parametrize(
    ("interval_bytes", "placed_at", "changed"),
    [
        (4096, (0, 1, 5, 28), 27),
        (4096, (0, 1, 5, 28), 29),
        (100, (84, 85, 86, 160), 161),
        (100, (84, 85, 86, 160), 159),
        (100, (84, 85, 86, 160), 85),
    ],
)
def test_a_clean_log_that_leads_to_another_offset_is_damaged(
    tmp_path: Path, interval_bytes: int, placed_at: tuple[int, ...], changed: int
) -> None:
    """No CRC covers a batch's offset. Nothing but the recovery point shows it behind a gap, or at the last index entry."""
    config = LogConfig(index_interval_bytes=interval_bytes)
    log = open_at(tmp_path, config, log_start_offset=placed_at[0])
    for offset in placed_at:
        placed = bytearray(batch())
        patch_offset(placed, 0, offset, len(placed) - 12, 0)
        append_trusted(log, placed, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICATION)
    log.close()
    path = sorted(tmp_path.glob("*.log"))[-1]
    whole = path.read_bytes()
    data = bytearray(whole)
    data[-BATCH_BYTES : -BATCH_BYTES + 8] = changed.to_bytes(8, "big")
    path.write_bytes(data)
    with pytest.raises(DamagedLog, match=f"the log ended at {placed_at[-1] + 1}"):
        open_at(tmp_path, config, clean=True, recovery_point=placed_at[-1] + 1)
    assert path.read_bytes() == data
    path.write_bytes(whole)
    again = open_at(tmp_path, config, clean=True, recovery_point=placed_at[-1] + 1)
    assert again.log_end_offset == placed_at[-1] + 1


@pytest.mark.parametrize("length", [-12, -200, 0, 2**31 - 1])
def test_a_damaged_swap_of_compaction_ends_a_start_and_removes_nothing(tmp_path: Path, length: int) -> None:
    """A length of -12 leads back to the same batch, so the search for the last offset never ended."""
    filled(tmp_path, 40).close()
    first = sorted(tmp_path.glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[2 * BATCH_BYTES + 8 : 2 * BATCH_BYTES + 12] = length.to_bytes(4, "big", signed=True)
    (tmp_path / f"{first.name}.swap").write_bytes(data)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(DamagedLog, match=f"at byte {2 * BATCH_BYTES}"):
        open_at(tmp_path, recovery_point=40)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def message_v1(offset: int, value: bytes) -> bytes:
    body = struct.pack(">bbqi", 1, 0, NOW_MS, -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_in_an_old_format_is_left_as_it_is(tmp_path: Path, clean: bool) -> None:
    data = b"".join(message_v1(i, b"old record %d" % i) for i in range(100))
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    with pytest.raises(DamagedLog, match="format v1"):
        open_at(tmp_path, clean=clean)
    assert path.read_bytes() == data


# Sealed indexes


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("at", [0, 4, 7, 11])
def test_an_entry_that_does_not_fit_the_log_leads_nowhere(tmp_path: Path, suffix: str, at: int) -> None:
    config = LogConfig(segment_bytes=8000, index_interval_bytes=200)
    log = open_at(tmp_path, config)
    for i in range(120):
        append(log, batch(fill=i, timestamp=NOW_MS + i))
    expected = read_all(log)
    found = [offset_for_timestamp(log, NOW_MS + i) for i in range(120)]
    log.close()
    path = sorted(tmp_path.glob(f"*{suffix}"))[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 24 * 12 + at] ^= 3
    path.write_bytes(data)
    again = open_at(tmp_path, config, clean=True)
    for offset in range(0, 120, 7):
        assert bytes(again.read(offset, max_bytes=1).records) == expected[offset * BATCH_BYTES :][:BATCH_BYTES]
    assert read_all(again) == expected
    assert [offset_for_timestamp(again, NOW_MS + i) for i in range(120)] == found


def test_indexes_of_sealed_segments_are_not_kept_in_memory(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)
    assert len(log.segments) > 5

    def loaded(some: Log) -> int:
        return sum(len(segment.indexes.offsets) + len(segment.indexes.times) for segment in list(some.segments)[:-1])

    for offset in range(100):
        log.read(offset, max_bytes=500)
    for segment in log.segments:
        segment.indexes.largest_timestamp()
    assert loaded(log) == 0
    log.close()
    again = open_at(tmp_path, clean=True)
    for offset in range(100):
        again.read(offset, max_bytes=500)
        offset_for_timestamp(again, NOW_MS)
    assert loaded(again) == 0


class CountingFiles(OsFiles):
    reads = 0

    def pread(self, path: str, offset: int, n: int) -> bytes:
        assert n <= index_files.BLOCK_BYTES
        self.reads += 1
        return super().pread(path, offset, n)


def test_a_search_in_a_large_index_file_reads_few_blocks(tmp_path: Path) -> None:
    files, path, entries = CountingFiles(), str(tmp_path / "x.index"), 250_000
    index = OffsetIndex(path, 1000, entries * 8)
    for i in range(1, entries):
        index.append(1000 + 3 * i, 4096 * i)
    files.create(path)
    index.save(files)
    size = 4096 * entries
    for i in range(1, entries, 9973):
        files.reads = 0
        assert index.floor_in_file(files, 1000 + 3 * i + 2) == index.floor(1000 + 3 * i + 2) == (1000 + 3 * i, 4096 * i)
        assert files.reads <= 10
        files.reads = 0
        assert index.floor_position_in_file(files, 4096 * i + 7, size) == index.floor_position(4096 * i + 7)
        assert files.reads <= 2
    assert index.floor_in_file(files, 1002) == (-1, 0)


def test_a_time_index_is_searched_in_its_file_as_in_memory(tmp_path: Path) -> None:
    files, rng = OsFiles(), Random(1)
    index = TimeIndex(str(tmp_path / "x.timeindex"), 10, 1 << 20)
    files.create(index.path)
    now = offset = 0
    for _ in range(5000):
        now, offset = now + rng.choice((1, 1, 500)), offset + rng.randint(0, 3)
        index.maybe_append(now, 10 + offset)
    index.save(files)
    for _ in range(300):
        wanted = rng.randint(-5, now + 5)
        assert index.floor_in_file(files, wanted) == index.floor(wanted)
    loaded = TimeIndex(index.path, 10, 1 << 20)
    loaded.load(files, 10 + offset)
    assert (loaded.values, loaded.offsets) == (index.values, index.offsets)


# The mapping

HELD = """
from pathlib import Path
from ottla.protocol.records.builder import build_batch
from ottla.storage.log_config import LogConfig
from ottla.storage.log.log import Origin
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from tests.storage.logs_for_tests import NOW_MS, append, batch, open_at
log = open_at(Path({path!r}), LogConfig(segment_bytes=1 << 20, segment_ms=1000))
for i in range(50):
    append(log, batch(size=8000, fill=i))
held = log.read(0, max_bytes=1 << 20).records
truncate_to(log, 3)
late = build_batch([(b"k", b"x", NOW_MS + 5000)], base_offset=3, leader_epoch=1)
append_trusted(log, late, leader_epoch=1, now_ms=NOW_MS, origin=Origin.REPLICATION)
assert [segment.base_offset for segment in log.segments] == [0, 3]
kept = bytes(held)
assert len(kept) > 400_000 and kept[: log.segments[0].file.size] == bytes(log.read(0, max_bytes=1 << 20).records)
log.close()
print("alive")
"""


def child(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3])


def test_a_roll_after_a_truncation_does_not_take_pages_away_from_a_view(tmp_path: Path) -> None:
    done = child(HELD.format(path=str(tmp_path)))
    assert done.stdout == "alive\n", (done.returncode, done.stderr)
    log = open_at(tmp_path, clean=True)
    assert log.log_end_offset == 4
    assert [path.stat().st_size for path in sorted(tmp_path.glob("*.log"))] == [s.file.size for s in log.segments]


LOST_PAGES = """
import os
from pathlib import Path
from ottla.storage.errors import StorageFailure
from tests.storage.logs_for_tests import filled
log = filled(Path({path!r}), 40)
log.close()
from tests.storage.logs_for_tests import open_at
log = open_at(Path({path!r}), clean=True)
failures = []
log.partition_dir.on_failure = failures.append
log.read(0, max_bytes=1000)
os.truncate(log.segments[0].file.log_path, 0)  # as a page that the disk cannot read: touching it is a SIGBUS
try:
    log.read(0, max_bytes=1000)
except StorageFailure as failure:
    print("refused", len(failures), log.failure is not None)
"""


def test_pages_that_cannot_be_read_take_the_directory_offline_and_not_the_process(tmp_path: Path) -> None:
    done = child(LOST_PAGES.format(path=str(tmp_path)))
    assert done.stdout == "refused 1 True\n", (done.returncode, done.stderr)


class LostPages(OsFiles):
    """A disk that can no longer read what is not in memory."""

    def map(self, path: str, capacity: int, writable: bool) -> MappedFile:
        mapped = super().map(path, capacity, writable)
        os.truncate(path, 0)
        return mapped


def test_what_this_process_wrote_is_brought_into_memory_again_once_its_mapping_was_given_back(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    log.segments.active.unmap()
    log.segments.active.file.files = LostPages()
    with pytest.raises(StorageFailure, match="cannot be read"):
        log.read(0, max_bytes=100_000)


NO_SPACE = """
import resource
from pathlib import Path
from ottla.storage.log_config import LogConfig
from tests.storage.logs_for_tests import append, batch, open_at
from ottla.storage.files import Mappings
from ottla.storage.files import OsFiles
from ottla.storage.directories.recovery import open_log
from ottla.storage.log.partition_dir import LogSpec
from tests.storage.logs_for_tests import NOW_MS, TOPIC_ID
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
mappings, logs = Mappings(), []
for i in range(12):
    log = open_log(LogSpec(OsFiles(), mappings, {path!r} + "/" + str(i), "t", i, TOPIC_ID, LogConfig(), NOW_MS), clean=False)
    append(log, batch())
    logs.append(log)
for log in logs:
    append(log, batch())
    assert log.failure is None and log.read(0, max_bytes=1000).next_offset == 2
print("all")
"""


def test_where_address_space_is_short_mappings_make_room_for_each_other(tmp_path: Path) -> None:
    done = child(NO_SPACE.format(path=str(tmp_path)))
    assert done.stdout == "all\n", done.stderr


def test_an_allocation_that_failed_gives_back_what_it_got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "file")
    OsFiles().create(path)
    mapped = OsMappedFile(path, 1 << 20, True, WriteDescriptors())
    mapped.ensure(5000)

    def allocate_a_part(fd: int, start: int, size: int) -> None:
        os.ftruncate(fd, start + size // 2)  # as ext4 does
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", allocate_a_part)
    with pytest.raises(StorageFailure):
        mapped.ensure(100_000)
    assert os.stat(path).st_size == mapped.size == 5000


def test_large_ranges_are_zeroed_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = Random(1).randbytes(3_000_000)
    path.write_bytes(content)
    mapped = OsMappedFile(str(path), 0, True, WriteDescriptors())
    view = mapped.buffer[:10]
    mapped.zero(5, 2_999_990)
    expected = content[:5] + bytes(2_999_985) + content[-10:]
    assert bytes(mapped.buffer) == expected == path.read_bytes()
    assert bytes(view) == expected[:10]


# Several partitions


def node(directory: Path, config: LogConfig = SMALL) -> Logs:
    if not (directory / "meta.properties").exists():
        write_meta_properties(OsFiles(), str(directory), MetaProperties("c", 1, bytes([9]) * 16))
    logs = Logs(OsFiles(), open_log_dirs(OsFiles(), [str(directory)], None, 1), Random(1))
    logs.open_all(lambda topic, topic_id: config, NOW_MS)
    return logs


def two_topics(directory: Path, config: LogConfig = SMALL) -> None:
    logs = node(directory, config)
    for name in ("a", "b"):
        log = logs.create(name, 0, name.encode() * 16, config)
        for i in range(60):
            append(log, batch(fill=i))
        log.advance_high_watermark(60)
    logs.close_all()


def test_retention_goes_on_behind_a_damaged_log_and_in_it(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2000, retention_bytes=4000, retention_ms=-1)
    two_topics(tmp_path, LogConfig(segment_bytes=2000))
    damaged = sorted((tmp_path / "a-0").glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[8:12] = b"\x80\0\0\0"
    damaged.write_bytes(data)
    sorted((tmp_path / "a-0").glob("*.timeindex"))[1].write_bytes(b"")
    logs = node(tmp_path, config)
    retain(logs, NOW_MS)
    for name in ("a", "b"):
        log = logs.open.by_name(name, 0)
        assert log is not None and log.segments.size < 4000 + 2000


@pytest.mark.parametrize("file", ["partition.metadata", "*.log"])
def test_one_damaged_partition_is_offline_and_the_others_are_opened(
    tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    two_topics(tmp_path)
    path = sorted((tmp_path / "a-0").glob(file))[-1]
    path.write_bytes(b"\xff" * path.stat().st_size)
    logs = node(tmp_path)
    assert logs.directories[0].online and logs.open.by_name("a", 0) is None
    assert (log := logs.open.by_name("b", 0)) is not None and log.log_end_offset == 60
    for _ in range(2):
        with pytest.raises(DamagedPartition):  # an empty log in its place would lose all records
            logs.create("a", 0, b"a" * 16, SMALL)
    assert any(str(path) in record.message and "Remedy" in record.message for record in caplog.records)
    assert path.read_bytes().startswith(b"\xff\xff")


def test_a_new_topic_takes_the_place_of_a_damaged_one_of_its_name(tmp_path: Path) -> None:
    two_topics(tmp_path)
    path = sorted((tmp_path / "a-0").glob("*.log"))[-1]
    path.write_bytes(b"\xff" * path.stat().st_size)
    logs = node(tmp_path)
    log = logs.create("a", 0, b"x" * 16, SMALL)
    assert append(log, batch()) == 0
    assert [p for p in tmp_path.iterdir() if p.name.endswith("-stray")]


# Transactions


def test_the_last_stable_offset_is_never_below_the_log_start(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig())
    append(log, batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    for i in range(9):
        append(log, batch(fill=i))
    log.advance_high_watermark(10)
    assert log.last_stable_offset == 0
    delete_records(log, 5)
    assert (log.log_start_offset, log.last_stable_offset) == (5, 5)
    assert log.read(log.last_stable_offset, max_bytes=100).records


def test_the_first_unstable_offset_is_the_least_of_all_that_are_open_or_not_replicated() -> None:
    rng, producers = Random(3), ProducerStates()
    opened: dict[int, int] = {}
    ended: dict[int, int] = {}
    for offset in range(1, 3001):
        producer_id = rng.randrange(40)
        if producer_id in opened:
            producers.end_transaction(producer_id, 0, EndTxnMarker(True, 0), offset, NOW_MS)
            ended[opened.pop(producer_id)] = offset
        else:
            producers.update(producer_id, 0, -1, offset, offset, NOW_MS, True)
            opened[producer_id] = offset
        if rng.random() < 0.2:
            watermark = rng.randint(max(0, offset - 60), offset)
            producers.on_high_watermark(watermark)
            ended = {first: marker for first, marker in ended.items() if marker >= watermark}
        assert producers.first_unstable_offset() == min([*opened.values(), *ended], default=-1)
