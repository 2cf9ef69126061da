"""Conditions on JSON, and the process that evaluates them and regular expressions on values."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ottla.client.consumer import Consumed
from ottla.client.failures import Failure
from ottla.console import value_filter
from ottla.console.json_path import CONDITION_CHARS_MAX, read_condition
from ottla.console.matching import Query, RecordFilter
from ottla.console.record_view import Decoded
from ottla.console.value_filter import EXPRESSION_CHARS_MAX, VALUE_BYTES_MAX, Expressions, ValueFilter
from ottla.protocol.records.record import Record

ORDER = {
    "id": 7,
    "paid": True,
    "who": {"first name": "ann", "x.y": None},
    "lines": [{"sku": "a-1", "n": 2.5}, {"sku": "b-2", "n": 10}],
    "text": "12",
}


@pytest.mark.parametrize(
    "condition",
    [
        "$.id = 7", "id==7", "$.id != 8", "$.id >= 7", "$.id < 7.5", "$.paid = true", "$.paid", "$['who']['first name'] = ann",
        '$.who["first name"] = "ann"', "$.who['x.y'] = null", "$.lines[*].sku = b-2", "$.lines[-1].n > 9", "$.lines.*.n = 2.5",
        "$.lines[0].sku ~ a-", "$.text = 12", "$.text ~ 1", "$ != 1", "lines[1]", "$.*.*.n = 10",
    ],
)  # fmt: skip
def test_a_condition_that_holds(condition: str) -> None:
    assert read_condition(condition).holds(ORDER)


@pytest.mark.parametrize(
    "condition",
    [
        "$.id = 8", "$.paid = 1", "$.id > ann", "$.text > 1", "$.lines[2]", "$.lines.sku", "$.id.x", "$.who[0]", "$.none != 1",
        "$.lines[*].n ~ 2", "$.who ~ ann", "$.id < null",
    ],
)  # fmt: skip
def test_a_condition_that_does_not_hold(condition: str) -> None:
    assert not read_condition(condition).holds(ORDER)


@pytest.mark.parametrize(
    "text", ["", "=", "$.", "$..a", "$.a b", "$.a[", "$.a[x]", "[?(@.a)]", "a" * (CONDITION_CHARS_MAX + 1)]
)
def test_what_is_no_path_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Failure, match="JSON path"):
        read_condition(text)


# -- The process ---------------------------------------------------------------------------------------------------------

Make = Callable[..., ValueFilter]


@pytest.fixture
async def make_filter() -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:

        def make(**expressions: str) -> ValueFilter:
            made = ValueFilter(Expressions(**expressions))
            stack.push_async_callback(made.close)
            return made

        yield make


async def test_keys_and_values_are_looked_at_by_all_that_is_asked_for(make_filter: Make) -> None:
    found = make_filter(key="^k[0-9]$", value="(?i)ANN", path="$.id = 7")
    value = json.dumps(ORDER).encode()
    pairs = [(b"k1", value), (b"kk", value), (None, value), (b"k2", None), (b"k3", b'{"id": 7}'), (b"k4", b"ann [")]
    assert await found.verdicts(pairs) == b"+-----"
    assert await found.verdicts([]) == b""


async def test_values_that_are_hostile_match_nothing_or_are_not_looked_at(make_filter: Make) -> None:
    found = make_filter(path="$.a = 1")
    deep, digits = b"[" * 200_000, b'{"a": ' + b"1" * 100_000 + b"}"
    pairs = [(None, deep), (None, digits), (None, b"\xff\xfe"), (None, b"x" * VALUE_BYTES_MAX), (None, b'{"a": 1}')]
    assert await found.verdicts(pairs) == b"---?+"
    many = [(None, b'{"a": %d}' % (number % 2)) for number in range(2 * value_filter.RECORDS_MAX + 3)]
    assert (await found.verdicts(many)).count(b"+") == value_filter.RECORDS_MAX + 1


async def test_an_expression_that_takes_too_long_ends_its_process_alone(
    make_filter: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_filter, "ANSWER_S_MAX", 0.001)
    slow = make_filter(value="((a?){30}){30}x")
    with pytest.raises(Failure, match="cannot be applied to 15 records: it takes more than"):
        await slow.verdicts([(None, b"a" * (VALUE_BYTES_MAX - 1))] * 15)
    monkeypatch.undo()
    assert await slow.verdicts([(None, b"ay"), (None, b"aax")]) == b"-+"


def test_an_expression_that_is_none_is_refused_before_a_process_is_started() -> None:
    for wrong in ({"key": "("}, {"value": "a)|(b"}, {"value": "x" * (EXPRESSION_CHARS_MAX + 1)}, {"path": "$.."}):
        with pytest.raises(Failure):
            ValueFilter(Expressions(**wrong))


async def test_without_the_package_the_matcher_of_the_tree_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    answers = value_filter.FilterAnswers()
    sizes = [(1, 3), (1, -1), (1, 5)]
    question = {"key": "k", "value": "b.c", "path": "", "sizes": sizes}
    (answer,) = answers([json.dumps(question).encode(), b"kb\nckkabxc!"])
    assert answer == b"--+"


def in_schema(value: bytes) -> bytes:
    return b"\0\0\0\0\x01" + value


async def test_values_of_a_registry_are_decoded_before_they_are_looked_into_and_the_others_are_counted() -> None:
    rows = [Record(number, 0, None, in_schema(b"%d" % number), ()) for number in range(3)]

    async def decode(records: Any) -> Decoded:
        found: Decoded = {each.value: ("avro schema 1", json.dumps({"n": each.offset})) for each in records[:2]}
        return found | {records[2].value: ("not decoded: no schema", None)}

    filtered = RecordFilter(Query("t", path="$.n >= 1"), decode)
    try:
        hits = await filtered.hits(Consumed("t", 0, rows))
        assert [each.record.offset for each in hits] == [1] and filtered.not_seen == 1
    finally:
        await filtered.close()
