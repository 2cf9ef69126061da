"""A leader accepts and refuses produced bytes.

The expectations of KAFKA_AGREES were measured against Apache Kafka 4.3.1 by sending the same bytes to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, check_batch, crc32c
from ottla.protocol.records.builder import build_batch, pack_batch
from ottla.protocol.records.compression import EXPANSION_MAX, compress
from ottla.protocol.records.record import encode_record
from ottla.protocol.records.validate import (
    RECORD_ERRORS_MAX,
    RECORDS_MAX,
    TIMESTAMP_BOUND_NONE,
    RecordError,
    RecordRules,
    RecordsRejected,
    check_records,
    restamp,
    validate_header,
)
from ottla.protocol.work import RECORDS_A_TURN, Turn
from tests.protocol.records.reference import patch_offset, validate_records

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = RecordRules()
STAMPED = RecordRules(log_append_time=True)
GOOD = build_batch([(b"k%d" % i, b"v" * 10, NOW) for i in range(2)])
RECORD = encode_record(0, 0, b"k", b"v")
SECOND = encode_record(1, 0, b"k", b"v")


def having(fmt: str, at: int, value: int, batch: bytes = GOOD, *, crc: bool = True) -> bytes:
    """Return the batch with one header field changed, and its CRC computed again."""
    changed = bytearray(batch)
    struct.pack_into(">" + fmt, changed, at, value)
    if crc:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def raw(payload: bytes, count: int = 1, attributes: int = 0, **fields: int) -> bytes:
    """Return a batch of this payload whose header has the given fields, valid or not."""
    header = {
        "base_offset": 0, "leader_epoch": -1, "last_offset_delta": count - 1, "base_timestamp": NOW, "max_timestamp": NOW,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
    }  # fmt: skip
    return pack_batch(payload, attributes=attributes, count=count, **{**header, **fields})


def verdict(batch: bytes, rules: RecordRules = RULES, pos: int = 0) -> str:
    """Return "accepted", or the error's name."""
    view = memoryview(batch)
    try:
        header = validate_header(view[pos:], len(view) - pos, rules, NOW)
    except KafkaError as fault:
        return fault.code.name
    check_batch(view, pos, len(view))
    assert header[:2] == (0, BatchView(view, pos).length)
    return "accepted"


KAFKA_AGREES = {
    "a good batch": (GOOD, "accepted"),
    "nothing": (b"", "INVALID_RECORD"),
    "five bytes": (GOOD[:5], "INVALID_RECORD"),
    "header only up to the magic": (GOOD[:17], "INVALID_RECORD"),
    "a batch cut short": (GOOD[:-1], "INVALID_RECORD"),
    "bytes behind the batch that are no header": (GOOD + bytes(5), "accepted"),
    "a second batch that is cut": (GOOD + GOOD[:40], "accepted"),
    "zeros behind the batch": (GOOD + bytes(20), "CORRUPT_MESSAGE"),
    "two batches": (GOOD + GOOD, "INVALID_RECORD"),
    "length 5": (having("i", 8, 5), "CORRUPT_MESSAGE"),
    "length -1": (having("i", 8, -1), "CORRUPT_MESSAGE"),
    "length 20": (having("i", 8, 20), "CORRUPT_MESSAGE"),
    "magic 0": (having("b", 16, 0), "INVALID_RECORD"),
    "magic 1": (having("b", 16, 1), "INVALID_RECORD"),
    "magic 3": (having("b", 16, 3), "CORRUPT_MESSAGE"),
    "magic -1": (having("b", 16, -1), "CORRUPT_MESSAGE"),
    "wrong crc": (having("I", 17, 1, crc=False), "CORRUPT_MESSAGE"),
    "base offset 5": (having("q", 0, 5), "INVALID_RECORD"),
    "count 3 of 2": (having("i", 57, 3), "INVALID_RECORD"),
    "count 0": (having("i", 57, 0), "INVALID_RECORD"),
    "count -1": (having("i", 57, -1), "INVALID_RECORD"),
    "count 0 and range 0": (having("i", 57, 0, having("i", 23, -1)), "INVALID_RECORD"),
    "last offset delta 5": (having("i", 23, 5), "INVALID_RECORD"),
    "last offset delta -5": (having("i", 23, -5), "INVALID_RECORD"),
    "control batch": (raw(RECORD, attributes=0x20), "INVALID_RECORD"),
    "unused attribute bits": (raw(RECORD, attributes=0x7F80), "accepted"),
    "delete horizon bit": (raw(RECORD, attributes=0x40), "accepted"),
    "LogAppendTime on a CreateTime topic": (raw(RECORD, attributes=0x08), "accepted"),
    "LogAppendTime without a time": (raw(RECORD, attributes=0x08, max_timestamp=-1), "INVALID_TIMESTAMP"),
    "producer without sequence": (raw(RECORD, producer_id=5, producer_epoch=0), "INVALID_RECORD"),
    "sequence without producer": (raw(RECORD, base_sequence=5), "accepted"),
    "lz4 with linked blocks": (raw(bytes(cramjam.lz4.compress(RECORD)), attributes=3), "not accepted"),
    "lz4": (raw(RECORD, compression=3), "accepted"),
    "codec 5": (raw(RECORD, attributes=5), "not accepted"),
    "codec 7": (raw(RECORD, attributes=7), "not accepted"),
    "record in the future": (build_batch([(b"k", b"v", NOW + 2 * HOUR_MS)]), "INVALID_TIMESTAMP"),
    "record in the far past": (build_batch([(b"k", b"v", 1)]), "accepted"),
    "a timestamp that is further away than 2^63": (build_batch([(b"k", b"v", -(2**63))]), "INVALID_TIMESTAMP"),
    "a timestamp of -1000": (build_batch([(b"k", b"v", -1000)]), "accepted"),
    "no timestamp": (build_batch([(b"k", b"v", -1)]), "accepted"),
    "too large": (raw(encode_record(0, 0, b"k", bytes(1_100_000))), "MESSAGE_TOO_LARGE"),
    "too large and damaged": (having("I", 17, 1, raw(bytes(1_100_000)), crc=False), "MESSAGE_TOO_LARGE"),
}  # fmt: skip


@pytest.mark.parametrize("pos", [0, 7])
@pytest.mark.parametrize("name", KAFKA_AGREES)
def test_as_apache_kafka_does(name: str, pos: int) -> None:
    batch, expected = KAFKA_AGREES[name]
    view = memoryview(bytes(pos) + batch)
    try:
        validate_header(view[pos:], len(view) - pos, RULES, NOW)
        found = "accepted"
    except KafkaError as fault:
        # Where Kafka itself fails (UNKNOWN_SERVER_ERROR) we name the client's error.
        found = fault.code.name if expected != "not accepted" else expected
    assert found == expected


HOSTILE_COUNTS = (RECORDS_MAX + 1, 2**31 - 1)


def claiming(batch: bytes, count: int) -> bytes:
    """Return the batch, whose header now claims this many records."""
    if len(batch) < 61 or batch[16] != 2:
        return batch
    right = crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")
    return having("i", 57, count, having("i", 23, count - 1, batch, crc=right), crc=right)


@pytest.mark.parametrize("count", HOSTILE_COUNTS)
@pytest.mark.parametrize("rules", [RULES, STAMPED], ids=["create", "stamped"])
@pytest.mark.parametrize("name", KAFKA_AGREES)
def test_no_header_makes_a_leader_count_up_to_what_it_claims(
    name: str, rules: RecordRules, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hostile column of the table: whatever else a header says, its count takes neither time nor memory."""
    made = 0

    def make(*values: Any) -> RecordError:
        nonlocal made
        made += 1
        return tuple.__new__(RecordError, values)

    looked_at = []
    monkeypatch.setattr("ottla.protocol.records.validate.RecordError", make)
    monkeypatch.setattr("ottla.protocol.records.validate.skim_records", lambda *args: looked_at.append(args))
    batch = claiming(KAFKA_AGREES[name][0], count)
    view = memoryview(batch)
    try:
        header = validate_header(view, len(view), rules, NOW)
    except KafkaError:
        assert made <= RECORD_ERRORS_MAX
    else:
        assert header[12] < RECORDS_MAX, "accepted"
    assert not looked_at


@pytest.mark.parametrize("codec", range(5))
def test_a_count_is_taken_up_to_what_the_codec_can_hold(codec: int) -> None:
    size = 700
    most = min(size * EXPANSION_MAX[codec] // 7, RECORDS_MAX if codec else 2**31)
    payload = b"\x04\x22\x4d\x18\x60".ljust(size, b"\0")  # the first bytes of an lz4 frame of independent blocks
    assert verdict(raw(payload, most, attributes=codec)) == "accepted"
    assert verdict(raw(payload, most + 1, attributes=codec)) == "INVALID_RECORD"


def test_real_records_are_never_too_many_for_their_bytes() -> None:
    for codec in range(5):
        payload = b"".join(encode_record(delta, 0, None, None) for delta in range(20_000))
        batch = raw(payload, 20_000, compression=codec)
        assert verdict(batch) == "accepted"
        assert validate_records(memoryview(batch), RULES, NOW) == 20_000


def test_checks_yield_after_a_turns_worth_of_records_and_stop_at_the_first_fault() -> None:
    records = [encode_record(delta, 0, b"k", b"v") for delta in range(3 * RECORDS_A_TURN)]
    turns = list(check_records(BatchView(memoryview(raw(b"".join(records), len(records)))), RULES, NOW, Turn()))
    assert turns == [None] * 4  # one, because the header says that it is long
    records[RECORDS_A_TURN + 5] = b"\xff" * 9
    work = check_records(BatchView(memoryview(raw(b"".join(records), len(records)))), RULES, NOW, Turn())
    assert [next(work), next(work)] == [None, None]
    with pytest.raises(KafkaError, match=f"record {RECORDS_A_TURN + 5}"):
        next(work)


def test_a_batch_of_exactly_the_largest_size_is_accepted() -> None:
    assert verdict(GOOD, RecordRules(max_message_bytes=len(GOOD))) == "accepted"
    assert verdict(GOOD, RecordRules(max_message_bytes=len(GOOD) - 1)) == "MESSAGE_TOO_LARGE"


def test_a_transactional_batch_needs_a_producer() -> None:
    assert verdict(raw(RECORD, attributes=0x10)) == "INVALID_RECORD"
    assert verdict(raw(RECORD, attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0)) == "accepted"


def test_the_future_is_judged_to_the_millisecond_and_names_the_records() -> None:
    edge = build_batch([(b"k", b"v", NOW), (b"k", b"v", NOW + HOUR_MS), (b"k", b"v", NOW + 1)])
    late = build_batch([(b"k", b"v", NOW), (b"k", b"v", NOW + HOUR_MS + 1), (b"k", b"v", NOW + 1)], compression=1)
    assert verdict(edge) == "accepted"
    assert verdict(late, STAMPED) == "accepted"
    with pytest.raises(RecordsRejected) as caught:
        validate_header(memoryview(late), len(late), RULES, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [1]


def test_log_append_time_from_a_client_is_refused_where_the_topic_sets_it() -> None:
    batch = raw(RECORD + SECOND, count=2, attributes=0x08)
    with pytest.raises(RecordsRejected) as caught:
        validate_header(memoryview(batch), len(batch), STAMPED, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1]


@pytest.mark.parametrize(
    "batch, rules, kind, time",
    [
        (GOOD, STAMPED, 1, NOW + 5),
        (GOOD, RULES, 0, -1),
        (raw(RECORD, attributes=0x08), RULES, 0, -1),
    ],
)
def test_the_topic_decides_the_timestamp_type(batch: bytes, rules: RecordRules, kind: int, time: int) -> None:
    data = bytearray(batch)
    header = validate_header(memoryview(data), len(data), rules, NOW)
    patch_offset(data, 0, 70, header[1], 3)
    assert restamp(data, 0, header, rules, NOW + 5) == time
    check_batch(memoryview(data), 0, len(data))
    view = BatchView(memoryview(data))
    assert view.timestamp_type == kind
    assert view.max_timestamp == (time if kind else NOW)


def reject(batch: bytes, rules: RecordRules) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate_records(memoryview(batch), rules, NOW)
    return caught.value


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    rules = RecordRules(compacted=True)
    assert rules.needs_records and not RULES.needs_records
    fault = reject(build_batch([(b"k", b"v", NOW), (None, b"v", NOW), (b"", b"v", NOW), (None, b"v", NOW)]), rules)
    assert isinstance(fault, RecordsRejected) and fault.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in fault.record_errors] == [1, 3]


def test_the_past_is_judged_where_the_topic_has_a_bound() -> None:
    rules = RecordRules(timestamp_before_max_ms=1000)
    assert rules.needs_records
    assert not RecordRules(timestamp_before_max_ms=1000, log_append_time=True).needs_records
    fault = reject(build_batch([(b"k", b"v", NOW), (b"k", b"v", NOW - 1001), (b"k", b"v", NOW - 1000)]), rules)
    assert isinstance(fault, RecordsRejected) and fault.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in fault.record_errors] == [1]
    unbounded = RecordRules(check_records=True, timestamp_before_max_ms=TIMESTAMP_BOUND_NONE)
    assert validate_records(memoryview(build_batch([(b"k", b"v", -(2**60))])), unbounded, NOW) == 1


DEEP: dict[str, Callable[[], bytes]] = {
    "count over the records": lambda: raw(RECORD, count=2),
    "count under the records": lambda: raw(RECORD + SECOND),
    "same offset twice": lambda: raw(SECOND + SECOND, count=2),
    "offset delta 7": lambda: raw(encode_record(7, 0, b"k", b"v")),
    "garbage": lambda: raw(b"\xff" * 30),
    "record cut short": lambda: raw(RECORD[:-2]),
    "gzip of garbage": lambda: raw(b"garbage" * 4, attributes=1),
    "snappy of garbage": lambda: raw(b"garbage" * 4, attributes=2),
    "lz4 of garbage": lambda: raw(b"garbage" * 4, attributes=3),
    "zstd of garbage": lambda: raw(b"garbage" * 4, attributes=4),
    "zstd cut short": lambda: raw(compress(4, RECORD)[:-3], attributes=4),
    "over the limit": lambda: raw(encode_record(0, 0, b"k", bytes(5000)), compression=1),
}


@pytest.mark.parametrize("name", DEEP)
def test_records_that_cannot_be_right_are_invalid(name: str) -> None:
    fault = reject(DEEP[name](), RecordRules(check_records=True, max_decompressed_bytes=4000))
    assert fault.code is ErrorCode.INVALID_RECORD


@given(st.integers(0, 2**32), st.data())
def test_damaged_batches_are_refused_or_whole(_: int, data: st.DataObject) -> None:
    batch = bytearray(
        build_batch([(b"key", b"value", NOW), (None, None, NOW)], compression=data.draw(st.integers(0, 4)))
    )
    for at in data.draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=3)):
        batch[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):  # half of them have a valid CRC, so that the fields are reached
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    rules = RecordRules(check_records=True, max_decompressed_bytes=100_000)
    try:
        header = validate_header(memoryview(batch), len(batch), rules, NOW)
        size = header[1] + 12
        assert size <= len(batch) and header[12] > 0
        assert validate_records(memoryview(batch)[:size], rules, NOW) == header[12]
    except KafkaError as fault:
        assert fault.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


@given(st.binary(max_size=150))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert verdict(data) != "accepted"
