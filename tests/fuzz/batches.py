"""Record batches, as a producer sends them and as a log has them: validation, every codec, records, control records.

A mutated batch nearly always fails its CRC, and mutated compressed bytes nearly never decompress. So the first byte of an input
says which fields are corrected before the batch is read:

    bit 0        length and CRC of the header
    bits 1-3     the codec that the payload is compressed with here (0: it stays as it is)
    bit 4        last offset delta fits the record count, whatever that claims
    bits 5-6     the payload is repeated 1, 4, 16 or 64 times, and so is the count with bit 4
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import cramjam

from ottla.controller.raft.batches import as_batch
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchView,
    check_batch,
    crc32c,
    iter_batches,
)
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.compression import CODEC_IDS, CODECS, compress, decompress
from ottla.protocol.records.control import ControlType, control_batch, end_txn_batch, end_txn_marker
from ottla.protocol.records.frames import OverLimitError, grow
from ottla.protocol.records.validate import RecordRules, restamp, validate_header
from tests.fuzz.target import Target, Wrong, equal
from tests.protocol.catalog import golden
from tests.protocol.records.golden_batches import load
from tests.protocol.records.reference import crc_is_valid, recompress, validate_records

#: Codecs that have packages of their own, and the functions with which cramjam reads them.
WITH_PACKAGES = {CODEC_IDS["lz4"]: cramjam.lz4.decompress_into, CODEC_IDS["zstd"]: cramjam.zstd.decompress_into}
NOW_MS = 1_700_000_000_000
#: The limit that a topic would set to bound memory. The default limit is far above what an input may use here.
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
RULES = (
    RecordRules(check_records=True, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX),
    RecordRules(compacted=True, log_append_time=True, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX),
    RecordRules(timestamp_before_max_ms=1000, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX),
)


def put_right(data: bytes) -> bytearray:
    """Return the batch of an input, with the corrections that its first byte asks for."""
    how, batch = data[0], bytearray(data[1:])
    codec = how >> 1 & 7
    if len(batch) < HEADER_BYTES:
        return batch
    times = 4 ** (how >> 5 & 3)
    batch[HEADER_BYTES:] = batch[HEADER_BYTES:] * times
    if 0 < codec < len(CODECS):
        batch[HEADER_BYTES:] = compress(codec, bytes(batch[HEADER_BYTES:]))
        batch[ATTRIBUTES_AT + 1] = batch[ATTRIBUTES_AT + 1] & ~CODEC_MASK | codec
    if how & 16:
        count = int.from_bytes(batch[57:61], "big") * times & 0x7FFF_FFFF
        struct.pack_into(">i", batch, 23, count - 1)
        struct.pack_into(">i", batch, 57, count)
    if how & 1:
        stamp(batch, 0, len(batch))
    return batch


def stamp(log: bytearray, pos: int, end: int) -> None:
    """Set length, magic and CRC of the batch that fills log[pos:end]."""
    struct.pack_into(">i", log, pos + 8, end - pos - LOG_OVERHEAD_BYTES)
    log[pos + 16] = 2
    struct.pack_into(">I", log, pos + CRC_AT, crc32c(bytes(log[pos + ATTRIBUTES_AT : end])))


def validated(data: bytes) -> None:
    """Validate a client's batch for topics of three kinds. An accepted batch can be stored by every codec and read back."""
    if not data:
        return
    batch = put_right(data)
    refusals: list[KafkaError] = []
    for rules in RULES:
        try:
            _append(bytearray(batch), rules)
        except KafkaError as refusal:
            refusals.append(refusal)
    if len(refusals) == len(RULES):
        raise refusals[0]


def _append(batch: bytearray, rules: RecordRules) -> None:
    view = memoryview(batch)
    header = validate_header(view, len(batch), rules, NOW_MS)
    count = validate_records(view, rules, NOW_MS)
    records = BatchView(view).records(max_bytes=DECOMPRESSED_BYTES_MAX)
    equal(len(records), count, "the number of records")
    for codec in (CODEC_IDS["zstd"], CODEC_IDS["none"]):
        stored = recompress(view, codec, max_bytes=DECOMPRESSED_BYTES_MAX)
        found = BatchView(memoryview(stored))
        if not crc_is_valid(found):
            raise Wrong("the CRC of the recompressed batch")
        equal(found.records(max_bytes=DECOMPRESSED_BYTES_MAX), records, "records after recompression")
    restamp(batch, 0, header, rules, NOW_MS)
    check_batch(view, 0, len(batch))


def stored(data: bytes) -> None:
    """Read the bytes of a log or of a Fetch response batch by batch; each is rebuilt as compaction does, and read again."""
    if not data:
        return
    batch = memoryview(bytes(put_right(data)))
    failed: KafkaError | None = None
    for view in iter_batches(batch):
        try:
            _read(view)
        except KafkaError as error:
            failed = error
    if failed is not None:
        raise failed


def _read(view: BatchView) -> None:
    records = view.records(max_bytes=DECOMPRESSED_BYTES_MAX)
    if view.is_control:
        end_txn_marker(view)
        as_batch(view)
    if any(record.offset > view.last_offset or record.offset < view.base_offset for record in records):
        return  # a broker that has accepted such a batch does not compact it
    rebuilt = BatchView(memoryview(rebuild_batch(view, records)))
    if not crc_is_valid(rebuilt):
        raise Wrong("the CRC of the rebuilt batch")
    equal(rebuilt.records(), records, "records of the rebuilt batch")
    equal(rebuilt.last_offset, view.last_offset, "last offset of the rebuilt batch")


def payload(data: bytes) -> None:
    """Decompress the bytes with the codec of the first byte. For lz4 and zstd the result is the same as cramjam's."""
    if not data:
        return
    codec = data[0] % 8
    expected = _by_cramjam(codec, data)
    try:
        output = decompress(codec, data[1:], DECOMPRESSED_BYTES_MAX)
    except KafkaError:
        if expected is not None:
            raise Wrong("refused, where cramjam reads it") from None
        raise
    if codec in WITH_PACKAGES:
        equal(_digest(output), expected, "the output, beside cramjam's")


def _by_cramjam(codec: int, data: bytes) -> tuple[int, int] | None:
    if codec not in WITH_PACKAGES:
        return None
    try:
        return _digest(grow(WITH_PACKAGES[codec], memoryview(data)[1:], DECOMPRESSED_BYTES_MAX))
    except (OverLimitError, ValueError):
        return None


def _digest(output: bytes) -> tuple[int, int]:
    """Return a digest in place of the output, because two outputs would take more memory than an input may."""
    return len(output), zlib.crc32(output)


def _some() -> Iterator[bytes]:
    rows = [(b"key", b"value" * 9, NOW_MS), (None, None, NOW_MS + 3, (("header", b"x"), ("none", None)))]
    yield build_batch(rows)
    yield build_batch(rows, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True)
    yield build_batch(rows, base_offset=1 << 40, timestamp_type=1)
    yield end_txn_batch(committed=True, producer_id=7, producer_epoch=1, coordinator_epoch=2, timestamp=NOW_MS)
    raft = {
        "LeaderChangeMessage": ControlType.LEADER_CHANGE,
        "SnapshotHeaderRecord": ControlType.SNAPSHOT_HEADER,
        "KRaftVersionRecord": ControlType.KRAFT_VERSION,
        "VotersRecord": ControlType.KRAFT_VOTERS,
    }
    for case in golden():
        if (kind := raft.get(case.cls.__name__)) is not None:
            yield control_batch([(kind, case.data)], timestamp=NOW_MS)
    for name in ("apache-kafka-4.3.1", "librdkafka-2.16.0"):
        yield from (batch for batch in load(name).values() if len(batch) < 2000)


def batch_seeds() -> Iterator[bytes]:
    for batch in _some():
        yield b"\1" + batch
        for codec in range(1, len(CODECS)):
            if not batch[22] & CODEC_MASK:
                yield bytes((1 | 16 | codec << 1,)) + batch
        yield b"\x71" + batch


def payload_seeds() -> Iterator[bytes]:
    for batch in _some():
        plain = batch[HEADER_BYTES:]
        yield bytes((batch[ATTRIBUTES_AT + 1] & CODEC_MASK,)) + plain  # the form that Java and librdkafka write
        for codec in range(1, len(CODECS)):
            yield bytes((codec,)) + compress(codec, plain)
        yield bytes((CODEC_IDS["snappy"],)) + compress(CODEC_IDS["snappy"], plain)[20:]  # a raw block


TARGETS = [
    Target("validate", validated, batch_seeds, (KafkaError,), bytes_max=1024, share=15),
    Target("stored", stored, batch_seeds, (KafkaError, ProtocolError), bytes_max=1024, share=20),
    Target("payload", payload, payload_seeds, (KafkaError,), bytes_max=4096, share=40),
]
