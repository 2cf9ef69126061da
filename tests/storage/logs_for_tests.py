"""Small logs, batches and a model of a log for the tests of `storage`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ottla.protocol.records.builder import build_batch
from ottla.protocol.work import Turn, do_now
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log import lookup
from ottla.storage.log.log import Appended, Log, Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
# Small enough that a few dozen batches roll several times and fill the indexes.
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=0)


def batch(count: int = 1, *, size: int = 100, timestamp: int = NOW_MS, fill: int = 0, **fields: object) -> bytes:
    records = [(b"k%d" % i, bytes([fill % 256]) * size, timestamp + i) for i in range(count)]
    return build_batch(records, **fields)


def append_as(origin: Origin, log: Log, records: bytes | memoryview, leader_epoch: int, now_ms: int) -> Appended:
    if origin is Origin.CLIENT:
        return log.append(records, leader_epoch=leader_epoch, now_ms=now_ms)
    return append_trusted(log, records, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0, **fields: object) -> bytes:
    key = b"\x00\x00" + (1 if commit else 0).to_bytes(2, "big")
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4, "big")
    return build_batch(
        [(key, value, NOW_MS)],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
        **fields,
    )


def open_at(
    directory: Path, config: LogConfig = SMALL, *, clean: bool = False, files: OsFiles | None = None, **fields: object
) -> Log:
    return open_log(
        LogSpec(files or OsFiles(), Mappings(), str(directory), "topic", 0, TOPIC_ID, config, now_ms=NOW_MS),
        clean=clean,
        **fields,
    )


def append(log: Log, records: bytes, *, epoch: int = 0) -> int:
    """Append as a client does. Return the first offset."""
    return log.append(records, leader_epoch=epoch, now_ms=NOW_MS).first_offset


def filled(directory: Path, batches: int = 40, config: LogConfig = SMALL) -> Log:
    log = open_at(directory, config)
    for i in range(batches):
        append(log, batch(fill=i))
    log.advance_high_watermark(log.log_end_offset)
    return log


def read_all(log: Log, max_bytes: int = 700) -> bytes:
    """Return everything from the log start offset on, in as many reads as it takes."""
    parts: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        got = log.read(offset, max_bytes=max_bytes)
        if not got.records:
            break
        assert got.next_offset > offset
        parts.append(bytes(got.records))
        offset = got.next_offset
    return b"".join(parts)


def descriptors_below(directory: Path) -> int:
    """Return how many descriptors of this process belong to files there.

    Others are opened and closed at any moment, by threads of clients and by garbage collections.
    """
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{directory}{os.sep}")
    return count


def offset_for_timestamp(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    return do_now(lookup.offset_for_timestamp(log, timestamp, Turn()))


def max_timestamp(log: Log) -> tuple[int, int, int] | None:
    return do_now(lookup.max_timestamp(log, Turn()))


def offsets(log: Log) -> list[int]:
    return [view.base_offset for view in log.batches(log.log_start_offset)]
