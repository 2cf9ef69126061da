"""Ranges of offsets: the size of a micro-batch and the parts of large ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.spark.ranges import Range, from_json, ids_in, limited, split, to_json


def test_a_micro_batch_is_shared_out_by_how_much_each_partition_has() -> None:
    start, end = {("t", 0): 0, ("t", 1): 100, ("t", 2): 5}, {("t", 0): 900, ("t", 1): 200, ("t", 2): 5}
    assert limited(start, end, 100) == {("t", 0): 90, ("t", 1): 110, ("t", 2): 5}
    assert limited(start, end, 1000) == end


def test_a_partition_with_few_offsets_is_not_forgotten() -> None:
    assert limited({("t", 0): 0, ("t", 1): 0}, {("t", 0): 10_000, ("t", 1): 1}, 10)["t", 1] == 1


def test_large_ranges_are_split_and_empty_ones_left_out() -> None:
    ranges = [Range("t", 0, 0, 100), Range("t", 1, 50, 50), Range("t", 2, 0, 10)]
    parts = split(ranges, 6, None)
    assert len(parts) == 6 and sum(part.size for part in parts) == 110
    assert max(part.size for part in split(ranges, None, 30)) == 25


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2000)), max_size=6),
    st.integers(1, 40) | st.none(),
    st.integers(1, 500) | st.none(),
)
def test_no_offset_is_lost_or_read_twice_by_splitting(
    sizes: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = [Range("t", number, start, start + size) for number, (start, size) in enumerate(sizes)]
    parts = split(ranges, partitions_min, records_max)
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert covered == [(each.partition, offset) for each in ranges for offset in range(each.start, each.end)]


def test_offsets_in_a_checkpoint_have_the_form_of_the_jvm_source() -> None:
    offsets = {("b", 10): 5, ("a", 0): 7}
    ids = {"a": bytes(range(16))}
    kept = to_json(offsets, ids)
    assert kept == {"a": {"0": 7}, "b": {"10": 5}, "@ids": {"a": "AAECAwQFBgcICQoLDA0ODw"}}
    assert (from_json(kept), ids_in(kept)) == (offsets, ids)
    assert (from_json({"a": {"0": 7}}), ids_in({"a": {"0": 7}})) == ({("a", 0): 7}, {})  # as the JVM source writes it
