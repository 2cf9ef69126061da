"""Which changes of a schema a table follows, and why it does not follow others."""

from __future__ import annotations

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow")

import pyarrow as pa

from ottla.columns.evolution import aligned, evolved

INT, L, F, D, S = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
A, AB = pa.struct([("a", INT)]), pa.struct([("a", L), ("b", S)])
#: The columns of a table, the fields that come, and the columns then; a value of the fields and that of the columns.
FOLLOWED = {
    "the same": ([("a", INT)], [("a", INT)], [("a", INT)], {"a": 1}, {"a": 1}),
    "another order": ([("a", INT), ("b", S)], [("b", S), ("a", INT)], [("a", INT), ("b", S)], {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
    "added": ([("a", INT)], [("b", S), ("a", INT)], [("a", INT), ("b", S)], {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
    "int to long": ([("a", INT)], [("a", L)], [("a", L)], {"a": 2**40}, {"a": 2**40}),
    "long to int": ([("a", L)], [("a", INT)], [("a", L)], {"a": 1}, {"a": 1}),
    "float to double": ([("a", F)], [("a", D)], [("a", D)], {"a": 0.1}, {"a": 0.1}),
    "double to float": ([("a", D)], [("a", F)], [("a", D)], {"a": 0.5}, {"a": 0.5}),
    "dropped": ([("a", INT), ("b", S)], [("a", INT)], [("a", INT), ("b", S)], {"a": 1}, {"a": 1, "b": None}),
    "inside of a record": ([("r", A)], [("r", AB)], [("r", AB)], {"r": {"a": 1, "b": "x"}}, {"r": {"a": 1, "b": "x"}}),
    "dropped inside of a record": ([("r", AB)], [("r", A)], [("r", AB)], {"r": {"a": 1}}, {"r": {"a": 1, "b": None}}),
    "inside of a list": ([("r", pa.list_(AB))], [("r", pa.list_(A))], [("r", pa.list_(AB))], {"r": [{"a": 1}, None]}, {"r": [{"a": 1, "b": None}, None]}),
    "inside of a map": ([("r", pa.map_(S, L))], [("r", pa.map_(S, INT))], [("r", pa.map_(S, L))], {"r": [("x", 1)]}, {"r": [("x", 1)]}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_table_follows(name: str) -> None:
    old, new, then, value, expected = FOLLOWED[name]
    found = evolved(pa.schema(old), [*pa.schema(new)])
    assert found == pa.schema(then), found
    assert evolved(found, [*pa.schema(old)]) == found, "the former schema still goes into the table"
    rows = pa.array([value, None, value], pa.struct(new)).slice(1)
    made = aligned(rows, pa.struct(then))
    made.validate(full=True)
    assert made.to_pylist() == [None, expected]


REFUSED = {
    "int to text": ([("a", INT)], [("a", S)], "field a was int32, and is string"),
    "long to double": ([("a", L)], [("a", D)], "field a was int64, and is double"),
    "a record to text": ([("r", A)], [("r", S)], "field r was struct"),
    "inside of a record": ([("r", A)], [("r", pa.struct([("a", S)]))], "field r.a was int32, and is string"),
    "inside of a list": ([("r", pa.list_(INT))], [("r", pa.list_(S))], "field r.element was int32"),
    "inside of a map": ([("r", pa.map_(S, INT))], [("r", pa.map_(S, S))], "field r.value was int32"),
    "keys of a map": ([("r", pa.map_(S, INT))], [("r", pa.map_(INT, INT))], "field r was map"),
    "capital letters": ([("id", INT)], [("ID", INT)], "field ID differs from id by capital letters alone"),
    "a time zone": ([("t", pa.timestamp("us"))], [("t", pa.timestamp("us", "UTC"))], "field t was timestamp"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_does_not_follow_and_says_why(name: str) -> None:
    old, new, said = REFUSED[name]
    found = evolved(pa.schema(old), [*pa.schema(new)])
    assert isinstance(found, str) and found.startswith(said), found


def test_a_list_of_nothing_and_a_null_list_stay_what_they_are() -> None:
    kind, wider = (pa.list_(pa.field("item", each)) for each in (INT, L))
    assert aligned(pa.array([[1], None, [], [2, None]], kind).slice(1), wider).to_pylist() == [None, [], [2, None]]
