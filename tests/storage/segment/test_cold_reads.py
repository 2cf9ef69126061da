"""Reads of bytes that are not in memory: how many of them one turn of the event loop reads, and what the next read finds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.protocol.records.builder import build_batch
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_file import OsMappedFile
from ottla.storage.segment.segment_file import COLD_READ_BYTES, REACH_BYTES, READ_AHEAD_BYTES
from tests.storage.directories.test_logs import A, formatted, opened
from tests.storage.logs_for_tests import NOW_MS, append, open_at

BATCH_BYTES = 40_000
BATCHES = 300


class Cache:
    """A page cache that the test fills: what was read through the mapping, and what the kernel was asked to read ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.until = 0
        self.waited_for: list[int] = []
        self.populated: list[int] = []
        self.ahead: list[tuple[int, int]] = []
        monkeypatch.setattr(
            OsMappedFile, "in_memory_until", lambda mapped, start, end: max(start, min(end, self.until))
        )
        monkeypatch.setattr(OsMappedFile, "read_ahead", lambda mapped, start, end: self.ahead.append((start, end)))
        populate = OsMappedFile.populate

        def waiting(mapped: OsMappedFile, start: int, end: int) -> None:
            self.populated.append(end - start)
            self.waited_for.append(max(0, end - max(start, self.until)))
            populate(mapped, start, end)

        monkeypatch.setattr(OsMappedFile, "populate", waiting)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    config = LogConfig(segment_bytes=64 << 20)
    first = open_at(tmp_path, config)
    for i in range(BATCHES):
        append(first, build_batch([(b"%d" % i, os.urandom(BATCH_BYTES), NOW_MS)]))
    first.flush()
    first.close()
    return open_at(tmp_path, config, clean=True, recovery_point=BATCHES)


def test_a_cold_read_waits_for_few_bytes_and_the_kernel_reads_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch)
    got = log.read(0, max_bytes=50 << 20)
    assert 0 < len(got.records) <= COLD_READ_BYTES
    assert max(cache.waited_for) <= COLD_READ_BYTES
    assert cache.ahead == [(0, READ_AHEAD_BYTES)]
    cache.until = 5 << 20
    following = log.read(got.next_offset, max_bytes=50 << 20)
    assert (4 << 20) < len(following.records) <= 5 << 20, "what is in memory by now"
    assert cache.ahead[-1][0] == 5 << 20


def test_only_the_first_partition_of_a_fetch_waits_for_the_disk(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(monkeypatch)
    log.segments.active.position_of(100)  # as for the Fetch before
    got = log.read(0, max_bytes=1 << 20, min_one=False)
    assert (len(got.records), got.next_offset) == (0, 0)
    assert cache.ahead, "the next Fetch finds them"
    cache.until = 1 << 30
    assert len(log.read(0, max_bytes=1 << 20, min_one=False).records) > 900_000


def test_a_batch_that_is_larger_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_at(tmp_path, LogConfig(segment_bytes=64 << 20))
    append(log, build_batch([(b"k", os.urandom(3 * COLD_READ_BYTES), NOW_MS)]))
    log.flush()
    log.close()
    log = open_at(tmp_path, LogConfig(segment_bytes=64 << 20), clean=True, recovery_point=1)
    Cache(monkeypatch)
    assert log.read(0, max_bytes=1).next_offset == 1
    assert log.read(0, max_bytes=0).next_offset == 1


def test_a_reader_gets_everything_whatever_is_in_memory(log: Log) -> None:
    offset, reads = 0, 0
    while offset < BATCHES:
        for path in Path(log.directory).glob("*.log"):
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        log.durability.unmap()
        got = log.read(offset, max_bytes=2 << 20)
        assert got.next_offset > offset
        offset, reads = got.next_offset, reads + 1
    assert offset == BATCHES and reads >= BATCHES * BATCH_BYTES // (2 << 20)


def test_the_kernel_is_asked_once_a_read_whether_the_bytes_are_in_memory(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(monkeypatch)
    cache.until = 1 << 30
    log.read(0, max_bytes=1 << 20)  # this finds the position, and checks what an earlier process wrote
    cache.populated.clear()
    assert len(log.read(0, max_bytes=1 << 20).records) > 900_000
    assert max(cache.populated, default=0) <= REACH_BYTES, "a lookup of a position walks so far"


def test_a_consumer_of_bytes_that_were_written_a_while_ago_costs_one_question_to_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formatted(tmp_path)
    logs = opened(tmp_path)
    log = logs.create("orders", 0, A, LogConfig())
    for i in range(BATCHES // 10):
        append(log, build_batch([(b"%d" % i, os.urandom(BATCH_BYTES), NOW_MS)]))
    logs.flush_due(NOW_MS)
    cache = Cache(monkeypatch)
    cache.until = 1 << 30
    first = log.read(0, max_bytes=5 * BATCH_BYTES)
    cache.populated.clear()
    for max_bytes in (5 * BATCH_BYTES, 1 << 20, 50 << 20):
        assert log.read(first.next_offset, max_bytes=max_bytes).records
    assert cache.populated == [], "the question of the read itself has the answer"


def test_what_was_written_a_while_ago_to_the_active_segment_may_have_left_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops pages that it has written. Access to one that the disk cannot give back would kill the process."""
    formatted(tmp_path)
    logs = opened(tmp_path)
    log = logs.create("orders", 0, A, LogConfig())
    for i in range(BATCHES // 10):
        append(log, build_batch([(b"%d" % i, os.urandom(BATCH_BYTES), NOW_MS)]))
    cache = Cache(monkeypatch)
    assert len(log.read(0, max_bytes=50 << 20).records) > 1 << 20
    assert cache.waited_for == [], "all of it has just been written"
    logs.flush_due(NOW_MS)
    append(log, build_batch([(b"k", b"v", NOW_MS)]))
    assert 0 < len(log.read(0, max_bytes=50 << 20).records) <= COLD_READ_BYTES
    assert 0 < max(cache.waited_for) <= COLD_READ_BYTES
    cache.waited_for.clear()
    assert log.read(log.log_end_offset - 1, max_bytes=50 << 20).records
    assert cache.waited_for == []

    def fail(mapped: OsMappedFile, start: int, end: int) -> None:
        raise StorageFailure(mapped.path, OSError(errno.EIO, "cannot be read"))

    monkeypatch.setattr(OsMappedFile, "populate", fail)
    with pytest.raises(StorageFailure):
        log.read(3, max_bytes=1)
