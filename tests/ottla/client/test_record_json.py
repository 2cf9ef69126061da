"""Records as JSON lines: written and read again they are the same, and an error names what is wrong in a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.values import from_line, to_line
from ottla.protocol.records.record import NewRecord, Record

NOW = 1_700_000_000_000
blobs = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
header_keys = st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape"))


@given(
    st.builds(
        Record, st.integers(0, 2**62), st.integers(-1, 2**62), blobs, blobs,
        st.lists(st.tuples(header_keys, blobs), max_size=3).map(tuple),
    ),
    st.integers(0, 1000),
)  # fmt: skip
def test_what_consume_prints_produce_reads(record: Record, partition: int) -> None:
    line = to_line("topic", partition, record)
    assert "\n" not in line
    incoming = from_line(line, NOW)
    assert incoming.record == NewRecord(record.key, record.value, record.timestamp, record.headers)
    assert incoming.partition == partition


def test_what_is_left_out_is_null_or_now() -> None:
    assert from_line("{}", NOW) == (NewRecord(None, None, NOW), None)


@pytest.mark.parametrize(
    "line, value",
    [
        ('{"value": {"b": [1, 2.5, null], "a": "ü"}}', '{"b":[1,2.5,null],"a":"ü"}'),
        ('{"value": 17}', "17"),
        ('{"value": false}', "false"),
        ('{"value": ""}', ""),
    ],
)
def test_values_that_are_json_are_written_as_json(line: str, value: str) -> None:
    assert from_line(line, NOW).record.value == value.encode()


def test_headers_may_be_an_object() -> None:
    assert from_line('{"headers": {"a": "1", "b": null}}', NOW).record.headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    "line, said",
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "object"),
        ("null", "object"),
        ('{"vlaue": 1}', "vlaue"),
        ('{"timestamp": "now"}', "timestamp"),
        ('{"timestamp": true}', "timestamp"),
        ('{"timestamp": -2}', "timestamp"),
        ('{"timestamp": 9223372036854775808}', "timestamp"),
        ('{"partition": 1.5}', "partition"),
        ('{"partition": -1}', "partition"),
        ('{"value_base64": "***"}', "value_base64"),
        ('{"key_base64": 5}', "key_base64"),
        ('{"headers": 5}', "headers"),
        ('{"headers": [5]}', "headers"),
        ('{"headers": [{"value": "v"}]}', "header has no key"),
    ],
)
def test_wrong_lines_say_what_is_wrong(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_line(line, NOW)
