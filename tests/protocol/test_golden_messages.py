"""Bytes and JSON of every message in every version as Apache Kafka writes them, compared with ours (invariant 47)."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import groupby
from typing import Any

import pytest

from ottla.protocol.compile import decode, decoder, encode
from ottla.protocol.json_form import to_json
from ottla.protocol.schema import info_of
from tests.needs import skip_because
from tests.protocol.catalog import DATA, every_version, golden
from tests.protocol.from_json import from_json
from tests.protocol.test_messages import before_4_0
from tests.protocol.tools import make_golden

CASES = {cls: list(cases) for cls, cases in groupby(golden(), lambda case: case.cls)}


@pytest.mark.parametrize("cls", CASES, ids=lambda cls: cls.__name__)
def test_kafkas_bytes_decode_and_encode_back(cls: type[Any]) -> None:
    for case in CASES[cls]:
        assert encode(decode(cls, case.data, case.version), case.version) == case.data, (case.version, case.variant)


@pytest.mark.parametrize("cls", CASES, ids=lambda cls: cls.__name__)
def test_kafkas_json_becomes_kafkas_bytes(cls: type[Any]) -> None:
    """JSON names each field, so this test notices two fields of one type that have changed places."""
    for case in CASES[cls]:
        if case.json == "-":
            continue
        obj = from_json(cls, with_batches(json.loads(case.json)), case.version)
        assert encode(obj, case.version) == case.data, (case.version, case.variant)
        assert decode(cls, case.data, case.version) == obj


@pytest.mark.parametrize("cls", CASES, ids=lambda cls: cls.__name__)
def test_our_json_is_kafkas(cls: type[Any]) -> None:
    for case in CASES[cls]:
        if case.json != "-":
            assert to_json(decode(cls, case.data, case.version), case.version) == json.loads(case.json)


def test_every_version_of_every_message_has_golden_bytes() -> None:
    checked = {(case.cls.__name__, case.version) for case in golden()}
    unchecked = {
        (cls.__name__, version) for cls, version in every_version() if version not in before_4_0(cls)
    } - checked
    # it is new in 4.4, whose kafka-metadata jar is not available
    assert unchecked == {("UnregisterControllerRecord", 0)}


def test_end_of_the_buffer_is_not_the_end_of_the_message() -> None:
    """Frames are decoded where they lie in the receive buffer, with other frames around them."""
    for case in golden():
        if case.variant != 3:
            continue
        around = memoryview(bytearray(b"\x7f" * 7 + case.data + b"\x7f" * 500))
        obj, pos = decoder(case.cls, case.version)(around, 7, 7 + len(case.data))
        assert pos == 7 + len(case.data)
        assert obj == decode(case.cls, case.data, case.version)


@pytest.mark.compat
def test_kafka_still_writes_what_was_checked_in() -> None:
    skip_because(make_golden.missing())
    names = {case.cls.__name__ for case in golden()}
    lines = make_golden.messages().splitlines()
    assert sorted(line.split("\t")[3:] for line in lines) == sorted([case.data.hex(), case.json] for case in golden())
    assert len(names) == len({line.split("\t")[0] for line in lines})
    assert make_golden.facts() == (DATA / "protocol_facts.txt").read_text()


def with_batches(data: Any) -> Any:
    """Put back the record batches of which JSON has only the size; GoldenMessages.java fills them with 0, 1, 2..."""
    if isinstance(data, list):
        return [with_batches(item) for item in data]
    if not isinstance(data, dict):
        return data
    out = {}
    for name, value in data.items():
        if name.endswith("ecordsSizeInBytes"):
            out[name.removesuffix("SizeInBytes")] = b64encode(bytes(range(value))).decode()
        else:
            out[name] = with_batches(value)
    return out


def test_there_are_several_variants_of_each_version() -> None:
    assert all(len(cases) == 4 * len({case.version for case in cases}) for cases in CASES.values())
    assert all(info_of(cls).versions for cls in CASES)
