"""Plain readers and writers of batches, for tests: they work at once, while the product works step by step or in place."""

from __future__ import annotations

import struct
from dataclasses import replace

from ottla.protocol.records.batch import ATTRIBUTES_AT, BatchView, crc32c
from ottla.protocol.records.builder import recompressing
from ottla.protocol.records.record import Record, iter_records
from ottla.protocol.records.validate import RecordRules, check_records
from ottla.protocol.work import Turn, do_now


def crc_is_valid(view: BatchView) -> bool:
    return crc32c(view.buffer[ATTRIBUTES_AT:]) == view.crc


def patch_offset(buf: bytearray | memoryview, pos: int, base_offset: int, length: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch, which the CRC does not cover. `length` is the length field, which is written unchanged."""
    struct.pack_into(">qii", buf, pos, base_offset, length, leader_epoch)


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> list[Record]:
    """Return the `count` records that fill `data` exactly. As in Kafka, raise INVALID_RECORD if they do not."""
    return list(iter_records(data, count, base_offset, base_timestamp, append_time))


def validate_records(batch: memoryview, rules: RecordRules, now_ms: int) -> int:
    """Check every record of a batch whose header is valid, and count them. RecordsRejected lists the invalid ones."""
    view = BatchView(batch)
    do_now(check_records(view, rules, now_ms, Turn()))
    return view.count


def recompress(batch: memoryview, codec: int, level: int | None = None, *, max_bytes: int | None = None) -> bytes:
    """Return the batch with its records stored by `codec`. Raise INVALID_RECORD if they cannot be read."""
    rules = RecordRules(max_message_bytes=2**31 - 1, level=level, log_append_time=True)
    if max_bytes is not None:
        rules = replace(rules, max_decompressed_bytes=max_bytes)
    view = BatchView(batch)
    return do_now(recompressing(view, codec, rules, Turn(), do_now(check_records(view, rules, 0, Turn()))))
