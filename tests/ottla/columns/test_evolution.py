"""The changes of a schema that a table follows, and the reasons why it does not follow others."""

from __future__ import annotations

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow")

import pyarrow as pa

from ottla.columns.evolution import evolved

INT, L, F, D, S = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
A, AB = pa.struct([("a", INT)]), pa.struct([("a", L), ("b", S)])
#: The columns of a table, the fields that are added, and the columns after that.
FOLLOWED = {
    "the same": ([("a", INT)], [("a", INT)], [("a", INT)]),
    "another order": ([("a", INT), ("b", S)], [("b", S), ("a", INT)], [("a", INT), ("b", S)]),
    "added": ([("a", INT)], [("b", S), ("a", INT)], [("a", INT), ("b", S)]),
    "int to long": ([("a", INT)], [("a", L)], [("a", L)]),
    "long to int": ([("a", L)], [("a", INT)], [("a", L)]),
    "float to double": ([("a", F)], [("a", D)], [("a", D)]),
    "double to float": ([("a", D)], [("a", F)], [("a", D)]),
    "dropped": ([("a", INT), ("b", S)], [("a", INT)], [("a", INT), ("b", S)]),
    "inside of a record": ([("r", A)], [("r", AB)], [("r", AB)]),
    "dropped inside of a record": ([("r", AB)], [("r", A)], [("r", AB)]),
    "inside of a list": ([("r", pa.list_(AB))], [("r", pa.list_(A))], [("r", pa.list_(AB))]),
    "inside of a map": ([("r", pa.map_(S, L))], [("r", pa.map_(S, INT))], [("r", pa.map_(S, L))]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_table_follows(name: str) -> None:
    old, new, then = FOLLOWED[name]
    found = evolved(pa.schema(old), [*pa.schema(new)])
    assert found == pa.schema(then), found
    assert evolved(found, [*pa.schema(old)]) == found, "the former schema still goes into the table"


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
