"""The only reader of a log's files: the ends of batches, and the ends of index entries."""

from __future__ import annotations

from struct import pack

import pytest

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.builder import build_batch
from ottla.storage.log_files import base_offset, is_space_ahead, offset_entries, spans, time_entries

FIRST, SECOND = (build_batch([(None, b"v" * 9, 0)], base_offset=number) for number in range(2))
WHOLE = [(0, len(FIRST)), (len(FIRST), len(FIRST) + len(SECOND))]


@pytest.mark.parametrize("behind", [b"", FIRST[:60], FIRST[:-1], bytes(10), bytes(70_000)])
def test_batches_end_at_the_end_at_one_that_is_cut_and_at_space_ahead(behind: bytes) -> None:
    view = memoryview(FIRST + SECOND + behind)
    assert list(spans(view)) == WHOLE
    assert list(spans(view, len(FIRST))) == WHOLE[1:]
    assert list(spans(view, end=len(FIRST) + 1)) == WHOLE[:1]


def test_what_can_be_no_batch_is_damage_and_no_end() -> None:
    view = memoryview(FIRST + bytes(100) + b"x" + bytes(10_000))
    assert not is_space_ahead(view, len(FIRST)) and is_space_ahead(view, len(FIRST) + 101)
    found = spans(view)
    assert next(found) == WHOLE[0]
    with pytest.raises(KafkaError, match="no record batch v2 at byte"):
        next(found)


def test_entries_of_indexes_end_where_their_zeros_begin() -> None:
    assert list(offset_entries(pack(">iiii", 4, 70, 9, 150) + bytes(80) + b"\1", 100)) == [(104, 70), (109, 150)]
    assert list(time_entries(pack(">qi", 1_700_000_000_000, 3) + bytes(27), 10)) == [(1_700_000_000_000, 13)]


def test_the_offset_of_a_file_is_in_its_name() -> None:
    assert base_offset("/d/t-0/00000000000000000042.log.deleted") == 42
    assert base_offset("/d/7/leader-epoch-checkpoint") is None
