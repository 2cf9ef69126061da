"""A partition's directory as a crash or a bad disk may leave it: the log is opened, read, asked questions, and opened again.

Input: how it is opened, then the files, separated by CUT: .log, .index, .timeindex, .txnindex, .snapshot, epochs, and the .log
and indexes of a second segment. With any content of these files the log is opened or rejected with a typed error, and it serves
only whole batches with a right CRC.

    bit 0    CRC and magic of every batch are put right
    bit 1    after a clean stop (of `trusted` alone; otherwise from a recovery point)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, batch_size, check_batch
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from ottla.storage.directories.recovery import open_log
from ottla.storage.epochs import FILE as EPOCHS
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.files import Mappings
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.retention import apply_retention
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.walk import DamagedLog
from tests.fuzz.files import HERE, disk_with, stamp_all
from tests.fuzz.target import Target, Wrong, equal
from tests.sim.disk import SimDisk
from tests.storage.logs_for_tests import max_timestamp, offset_for_timestamp

SOUND = build_batch([(b"k", b"v", 1_700_000_000_000)])
CUT = b"\xff-\xff"
NOW_MS = 1_700_000_000_000
NAMES = (
    *(f"{0:020d}.{kind}" for kind in ("log", "index", "timeindex", "txnindex")),
    f"{2:020d}.snapshot",
    EPOCHS,
    *(f"{5:020d}.{kind}" for kind in ("log", "index", "timeindex")),
)
LOGS = [place for place, name in enumerate(NAMES) if name.endswith(".log")]
CONFIG = LogConfig(
    segment_bytes=4096, index_interval_bytes=100, segment_index_bytes=256, max_decompressed_message_bytes=1 << 24
)


def crashed(data: bytes) -> None:
    """Open the log as after a crash: nothing is known to be on the disk, and every batch is checked."""
    if data:
        disk = _directory(data)
        log = _open(disk, clean=False, recovery_point=0)
        with no_damage("all was checked when the log was opened"):
            _use(disk, log, read(log))


def trusted(data: bytes) -> None:
    """Open the log as after a clean stop, or above a recovery point: the part below is not checked as a whole, and may be
    damaged.
    """
    if data:
        disk = _directory(data)
        if any(leads_into_a_batch(disk, log) for log in LOGS):
            return
        log = _open(disk, clean=bool(data[0] & 2), recovery_point=5)
        try:
            served = read(log)
        except DamagedLog:
            _use_damaged(log)
            return
        with no_damage("all of the log could be read"):
            _use(disk, log, served)


def leads_into_a_batch(disk: SimDisk, place: int) -> bool:
    """Return whether an index entry leads to a whole batch that lies inside of a batch. A disk does not do that by chance, and
    no start notices it.
    """
    log, index = (disk.read(f"{HERE}/{NAMES[place + file]}") or b"" for file in (0, 1))
    boundaries, at = set[int](), 0
    while at + HEADER_BYTES <= len(log):
        boundaries.add(at)
        at += max(HEADER_BYTES, int.from_bytes(log[at + 8 : at + 12], "big") + LOG_OVERHEAD_BYTES)
    for _, position in struct.iter_unpack(">II", index[: len(index) // 8 * 8]):
        with suppress(KafkaError):
            size = batch_size(log, position, len(log))
            if position not in boundaries and size is not None:
                check_batch(memoryview(log), position, position + size)
                return True
    return False


@contextmanager
def no_damage(why: str) -> Iterator[None]:
    try:
        yield
    except DamagedLog as damage:
        raise Wrong(f"{damage}, but {why}") from damage


def _directory(data: bytes) -> SimDisk:
    contents = data[1:].split(CUT)
    for place in LOGS if data[0] & 1 else ():
        if place < len(contents):
            log = bytearray(contents[place])
            stamp_all(log)
            contents[place] = bytes(log)
    disk = disk_with({name: content for name, content in zip(NAMES, contents, strict=False) if content})
    disk.create(f"{HERE}/{NAMES[0]}")
    return disk


def _use(disk: SimDisk, log: Log, served: bytes) -> None:
    ask(log)
    end = log.log_end_offset
    log.close()
    again = _open(disk, clean=True, recovery_point=end)
    equal((again.log_end_offset, read(again)), (end, served), "the log after a clean stop")


def _use_damaged(log: Log) -> None:
    """Every question is answered or rejected; appended records can be read, and the log can be closed."""
    for question in (
        lambda: ask(log),
        lambda: truncate_to(log, log.log_end_offset - 1),
        lambda: apply_retention(log, NOW_MS),
    ):
        with suppress(DamagedLog):
            question()
    first = log.append(SOUND, leader_epoch=9, now_ms=NOW_MS).first_offset
    log.advance_high_watermark(log.log_end_offset)
    equal(len(log.read(first, max_bytes=1000).records), len(SOUND), "bytes of the batch behind the damage")
    log.close()


def _open(disk: SimDisk, *, clean: bool, recovery_point: int) -> Log:
    return open_log(
        LogSpec(disk, Mappings(), HERE, "t", 0, bytes(16), CONFIG, now_ms=NOW_MS),
        clean=clean,
        recovery_point=recovery_point,
    )


def read(log: Log) -> bytes:
    log.advance_high_watermark(log.log_end_offset)
    parts, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=300)
        if not len(read.records):
            break
        if read.next_offset <= offset:
            raise Wrong(f"reading at {offset} leads to {read.next_offset}")
        parts.append(bytes(read.records))
        offset = read.next_offset
    served = b"".join(parts)
    pos = 0
    while pos < len(served):
        pos += check_batch(memoryview(served), pos, len(served))[1] + 12
    return served


def ask(log: Log) -> None:
    """Ask the questions of clients and followers. Records may contain nonsense: then a question is rejected."""
    for view in islice(log.batches(log.log_start_offset), 100):
        if view.last_offset >= log.log_end_offset:
            raise Wrong(f"a batch ends at {view.last_offset}, the log at {log.log_end_offset}")
    log.segments.aborted_transactions(0, log.log_end_offset)
    log.end_offset_for_epoch(1)
    for question in (lambda: max_timestamp(log), lambda: offset_for_timestamp(log, NOW_MS)):
        with suppress(KafkaError):
            answer = question() or ()
            if any(not -(2**63) <= number < 2**63 for number in answer):
                raise Wrong(f"{answer} does not fit an answer")


def seeds() -> Iterator[bytes]:
    rows = [(b"k", b"v" * 40, NOW_MS), (b"k2", None, NOW_MS + 1)]
    batches = [
        build_batch(rows, base_offset=0, leader_epoch=0),
        build_batch(rows, base_offset=2, leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
        end_txn_batch(
            committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS, base_offset=4, leader_epoch=1
        ),
        build_batch(rows * 3, base_offset=5, leader_epoch=2, compression=1),
    ]  # fmt: skip
    log = b"".join(batches)
    index = struct.pack(">II", 3, len(batches[0]))
    times = struct.pack(">qi", NOW_MS + 1, 3)
    aborted = struct.pack(">hqqqq", 0, 7, 2, 4, 2)
    epochs = b"0\n3\n0 0\n1 2\n2 5\n"
    for how in range(4):
        yield bytes((how,)) + log
        yield bytes((how,)) + CUT.join((log, index, times, aborted, b"", epochs))
        yield bytes((how,)) + log[:-7] + bytes(30)
        first = b"".join(batches[:3])
        yield bytes((how,)) + CUT.join((first, index, times, aborted, b"", epochs, batches[3]))
        yield bytes((how,)) + CUT.join((first, b"", b"", b"", b"", epochs, batches[3], b"", times))
    yield b"\0" + batches[0] + bytes(200)
    yield b"\0" + batches[0] + batches[3]


REFUSALS = (StorageFailure, CorruptFile, DamagedLog)
TARGETS = [
    Target("log", crashed, seeds, REFUSALS, bytes_max=1500, share=1),
    Target("trusted", trusted, seeds, REFUSALS, bytes_max=1500, share=1),
]
