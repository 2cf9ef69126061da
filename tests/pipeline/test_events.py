"""Decoding and judging: what is accepted, and what is rejected for which reason. Nothing that a sender writes stops the stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.needs import needs_packages

needs_packages("fastavro")

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.events import (
    AVRO_FRAME,
    RULES,
    SHIPPED_SCHEMAS,
    Event,
    Limits,
    Reason,
    RejectedEvent,
    judge,
    load_schemas,
    parsed,
    to_avro,
    to_json,
)

NOW_MS = 1_800_000_000_000
SCHEMAS = load_schemas(SHIPPED_SCHEMAS)
LIMITS = Limits(SCHEMAS, 120_000, 5_000)
EVENT = Event("id-1", NOW_MS, "anna", "/cart", 1500, "/search")


def verdict(value: bytes | None) -> Event | RejectedEvent:
    return judge(value, NOW_MS, LIMITS)


def reason(value: bytes | None) -> Reason:
    found = verdict(value)
    assert isinstance(found, RejectedEvent)
    return found.reason


def as_json(**changes: Any) -> bytes:
    return json.dumps({**EVENT._asdict(), **changes}).encode()


def test_json_and_both_avro_schemas_give_the_same_event() -> None:
    assert verdict(to_json(EVENT)) == EVENT
    assert verdict(to_avro(EVENT, 2)) == EVENT
    assert verdict(to_avro(EVENT, 1)) == EVENT._replace(referrer=None)


def test_a_new_field_and_a_removed_one_do_not_stop_the_stream() -> None:
    assert verdict(as_json(colour="red")) == EVENT
    assert verdict(as_json(referrer=None)) == EVENT._replace(referrer=None)


def test_the_schemas_have_every_required_field() -> None:
    for schema_id in (1, 2):
        names = {field["name"] for field in parsed(SCHEMAS[schema_id])["fields"]}
        assert names >= {rule.name for rule in RULES if rule.required}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Reason.EMPTY),
        (b"", Reason.EMPTY),
        (b"{", Reason.MALFORMED_JSON),
        (b"\xff\xfe", Reason.MALFORMED_JSON),
        (b"[" * 100_000, Reason.MALFORMED_JSON),
        (b"[1]", Reason.WRONG_TYPE),
        (b"\x00\x00", Reason.MALFORMED_AVRO),
        (to_avro(EVENT, 1)[:-1], Reason.MALFORMED_AVRO),
        (to_avro(EVENT, 1) + b"x", Reason.MALFORMED_AVRO),
        (AVRO_FRAME.pack(0, 77) + b"abc", Reason.UNKNOWN_SCHEMA),
        (AVRO_FRAME.pack(0, -1) + b"abc", Reason.UNKNOWN_SCHEMA),
        (as_json(user=None), Reason.MISSING_FIELD),
        (as_json(duration_ms=1.5), Reason.WRONG_TYPE),
        (as_json(duration_ms=True), Reason.WRONG_TYPE),
        (as_json(event_time_ms=str(NOW_MS)), Reason.WRONG_TYPE),
        (as_json(duration_ms=-1), Reason.OUT_OF_RANGE),
        (as_json(event_time_ms=1 << 70), Reason.OUT_OF_RANGE),
        (as_json(page="cart"), Reason.OUT_OF_RANGE),
        (as_json(event_id="x" * 65), Reason.OUT_OF_RANGE),
        (b'{"event_id":"a","event_time_ms":1,"user":"\\ud800","page":"/","duration_ms":1}', Reason.OUT_OF_RANGE),
        (as_json(event_time_ms=NOW_MS - 120_001), Reason.TOO_LATE),
        (as_json(event_time_ms=NOW_MS + 5_001), Reason.IN_THE_FUTURE),
    ],
)
def test_a_bad_value_has_a_reason(value: bytes | None, expected: Reason) -> None:
    assert reason(value) is expected


def test_the_limits_of_lateness_are_still_good() -> None:
    for event_time_ms in (NOW_MS - 120_000, NOW_MS + 5_000):
        assert verdict(as_json(event_time_ms=event_time_ms)) == EVENT._replace(event_time_ms=event_time_ms)


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda tail: AVRO_FRAME.pack(0, 2) + tail)))
def test_no_bytes_raise(value: bytes) -> None:
    found = verdict(value)
    assert isinstance(found, RejectedEvent)
    found.detail.encode()  # it becomes a header, so it must be valid there


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=2)
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the duration depends on the machine's load, not on the code
@given(st.fixed_dictionaries({}, optional={rule.name: json_values for rule in RULES}))
def test_no_json_raises_and_what_is_accepted_can_be_stored(found: dict[str, Any]) -> None:
    decided = verdict(json.dumps(found).encode())
    if isinstance(decided, Event):
        assert "".join(text for text in decided if isinstance(text, str)).encode() is not None


@pytest.mark.parametrize(
    ("files", "said"),
    [({}, "no Avro schema in"), ({"1.avsc": '{"type":'}, "1.avsc is no Avro"), ({"1.avsc": '"strange"'}, "1.avsc")],
)
def test_a_schema_folder_that_cannot_be_used_is_rejected(tmp_path: Path, files: dict[str, str], said: str) -> None:
    """Otherwise every Avro event would silently become a dead letter."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(PipelineError, match=said):
        load_schemas(str(tmp_path))
