"""Records of a batch: round trips, and bytes that are not records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import HEADERS_A_STEP, Record, encode_record, iter_times, skim_records
from tests.protocol.records.reference import decode_records

NOW = 1_700_000_000_000
blobs = st.none() | st.binary(max_size=20_000)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=300)), max_size=5).map(tuple)
INT64 = st.integers(-(2**62), 2**62)
INT32 = st.integers(-(2**31), 2**31 - 1)


@given(INT32, INT64, blobs, blobs, headers)
def test_what_is_written_is_read(
    delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    data = encode_record(delta, timestamp_delta, key, value, headers)
    assert decode_records(data, 1, 100, NOW) == [Record(100 + delta, NOW + timestamp_delta, key, value, headers)]


def test_header_keys_that_are_not_text_survive() -> None:
    # Kafka's broker does not decode header keys either: b"\xff" must come back as it was.
    raw = encode_record(0, 0, None, b"v", [("X", b"1")]).replace(b"X", b"\xff")
    (record,) = decode_records(raw, 1, 0, 0)
    assert encode_record(0, 0, None, b"v", record.headers) == raw


GOOD = encode_record(0, 0, b"k", b"v")
BROKEN = {
    "length is negative": b"\x01" + GOOD[1:],
    "length is zero": bytes(8),
    "cut short": GOOD[:-1],
    "key longer than the record": GOOD.replace(b"\x02k", b"\x50k"),
    "value longer than the record": GOOD.replace(b"\x02v", b"\x50v"),
    "negative header count": GOOD[:-1] + b"\x01",
    "more headers than bytes": GOOD[:-1] + b"\x70",
    "two billion headers": b"\x18" + GOOD[1:-1] + b"\xfe\xff\xff\xff\x0f",
    "null header key": encode_record(0, 0, b"k", b"v", [("a", b"b")]).replace(b"\x02a", b"\x01a"),
    "fields shorter than the record": bytes([GOOD[0] + 2]) + GOOD[1:] + b"\0",
    "endless varint": b"\xff" * 1000,
    "varlong of eleven bytes": b"\x20\0" + b"\xff" * 11 + bytes(5),
    "bytes left over": GOOD + b"\0",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_broken_records_are_invalid_records(data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        decode_records(data, 1, 0, 0)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_false_count_is_an_invalid_record(count: int) -> None:
    with pytest.raises(KafkaError) as caught:
        decode_records(GOOD, count, 0, 0)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@given(st.binary(max_size=300), st.integers(0, 40))
def test_any_bytes_give_records_or_a_typed_error(data: bytes, count: int) -> None:
    try:
        assert len(decode_records(data, count, 0, 0)) == count
    except KafkaError as fault:
        assert fault.code is ErrorCode.INVALID_RECORD


def outcome(read: Callable[[], list[tuple[int, int, bool]]]) -> list[tuple[int, int, bool]] | str:
    try:
        return read()
    except KafkaError as fault:
        return fault.code.name


def skimmed(data: bytes, count: int, base_timestamp: int, append_time: int | None) -> list[tuple[int, int, bool]]:
    return [tuple(facts) for facts in skim_records(data, count, 5, base_timestamp, append_time) if facts]


rows = st.lists(
    st.tuples(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1), st.none() | st.binary(max_size=200),
              st.none() | st.binary(max_size=200), headers), min_size=1, max_size=5,
)  # fmt: skip


@given(rows, st.integers(-(2**63), 2**63 - 1), st.none() | st.integers(0, 2**62), st.data())
def test_who_skims_records_finds_what_who_decodes_them_finds(
    rows: list[Any], base_timestamp: int, append_time: int | None, data: st.DataObject
) -> None:
    payload = bytearray(b"".join(encode_record(*row) for row in rows))
    for at in data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=2)):
        payload[at] = data.draw(st.integers(0, 255))
    count = len(rows) + data.draw(st.integers(-1, 1))
    sent = bytes(payload)

    def decoded() -> list[tuple[int, int, bool]]:
        records = decode_records(sent, count, 5, base_timestamp, append_time)
        return [(record.offset, record.timestamp, record.key is not None) for record in records]

    expected = outcome(decoded)
    assert outcome(lambda: skimmed(sent, count, base_timestamp, append_time)) == expected
    if not isinstance(expected, str):
        assert all(-(2**63) <= timestamp < 2**63 for _, timestamp, _ in expected)
        assert list(iter_times(sent, count, 5, base_timestamp, append_time)) == [row[:2] for row in expected]


@given(st.binary(max_size=300), st.integers(0, 40))
def test_any_bytes_are_skimmed_or_a_typed_error(data: bytes, count: int) -> None:
    assert outcome(lambda: skimmed(data, count, NOW, None)) == outcome(
        lambda: [(r.offset, r.timestamp, r.key is not None) for r in decode_records(data, count, 5, NOW)]
    )
    outcome(lambda: [(*times, True) for times in iter_times(data, count, 5, NOW)])


def test_skimming_stops_now_and_then_among_many_headers() -> None:
    many = encode_record(0, 0, b"k", b"v", [("", None)] * (3 * HEADERS_A_STEP))
    assert list(skim_records(many, 1, 0, NOW)) == [None, None, (0, NOW, True)]
