"""Appends to a log: the batches of a client, and those that a follower or a voter has fetched from its leader.

Input: a byte of flags, then the appends, separated by CUT. A rejected append changes nothing; an accepted one can be read,
looked up, rolled and recovered, and never prevents a later append.

    bit 0       magic, length and CRC of the batches are put right
    bits 1-2    the topic: plain, compacted, recompressed with zstd, with LogAppendTime
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.builder import build_batch
from ottla.storage.directories.recovery import open_log
from ottla.storage.errors import UnexpectedAppendOffset
from ottla.storage.files import Mappings
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.fuzz.batches import batch_seeds
from tests.fuzz.files import HERE, disk_with, stamp_all
from tests.fuzz.logs import CUT, NOW_MS, ask, read, seeds
from tests.fuzz.target import Target, Wrong, equal
from tests.sim.disk import SimDisk
from tests.storage.logs_for_tests import append_as

_SMALL = {
    "segment_bytes": 4096,
    "index_interval_bytes": 100,
    "segment_index_bytes": 256,
    "max_decompressed_message_bytes": 1 << 24,
}
CONFIGS = (
    LogConfig(**_SMALL),
    LogConfig(cleanup_policy=("compact",), **_SMALL),
    LogConfig(compression_type="zstd", **_SMALL),
    LogConfig(message_timestamp_type="LogAppendTime", **_SMALL),
)
REFUSALS = (KafkaError, UnexpectedAppendOffset)
SOUND = build_batch([(b"k", b"v", NOW_MS)])


def produced(data: bytes) -> None:
    """Append a client's batches. The last one is sound, and must be accepted."""
    if data:
        _append(data, Origin.CLIENT)


def replicated(data: bytes) -> None:
    """Append the records of a Fetch response, as a follower and as a voter of the quorum."""
    if data:
        _append(data, Origin.REPLICATION)
        _append(data, Origin.RAFT)


def _append(data: bytes, origin: Origin) -> None:
    disk, config = disk_with({}), CONFIGS[data[0] >> 1 & 3]
    log = _open(disk, config)
    for part in data[1:].split(CUT)[:8]:
        records = bytearray(part)
        if data[0] & 1:
            stamp_all(records)
        _one(log, records, origin)
    if origin is Origin.CLIENT:
        end = log.log_end_offset
        equal(log.append(SOUND, leader_epoch=3, now_ms=NOW_MS).first_offset, end, "the offset of a sound batch")
    served = read(log)
    ask(log)
    log.roll(NOW_MS)
    end = log.log_end_offset
    log.close()
    again = _open(disk, config)
    equal((again.log_end_offset, read(again)), (end, served), "the log after a start that trusts nothing")


def _one(log: Log, records: bytearray, origin: Origin) -> None:
    before = log.log_end_offset, log.segments.size
    try:
        append_as(origin, log, records, 2, NOW_MS)
    except REFUSALS:
        if (log.log_end_offset, log.segments.size) != before:
            raise Wrong("the refused batch is in the log") from None
        return
    log.advance_high_watermark(log.log_end_offset)


def _open(disk: SimDisk, config: LogConfig) -> Log:
    return open_log(LogSpec(disk, Mappings(), HERE, "t", 0, bytes(16), config, now_ms=NOW_MS), clean=False)


def produced_seeds() -> Iterator[bytes]:
    batches = [seed[1:] for seed in batch_seeds() if seed[0] == 1 and len(seed) < 400]
    for place, batch in enumerate(batches):
        yield bytes((1 | (place % 4) << 1,)) + batch
    rows = [(b"k", b"v" * 20, NOW_MS)]
    sequence = [
        build_batch(rows, producer_id=7, producer_epoch=0, base_sequence=number, transactional=bool(number & 2))
        for number in range(4)
    ]
    for how in range(8):
        yield bytes((how,)) + CUT.join(sequence)


def replicated_seeds() -> Iterator[bytes]:
    """Yield whole logs, as a follower gets them."""
    yield from (seed for seed in seeds() if CUT not in seed)
    yield from produced_seeds()


TARGETS = [
    Target("produce", produced, produced_seeds, bytes_max=1024, share=1),
    Target("replicate", replicated, replicated_seeds, bytes_max=1024, share=1),
]
