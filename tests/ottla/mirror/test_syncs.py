"""Pairs of offsets: which ones are kept, and how they translate a group's offset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.emitting import Emitter, SyncEmitter
from ottla.mirror.formats import (
    TOPICS_HEADER,
    Checkpoint,
    OffsetSync,
    TopicIds,
    heartbeat_record,
    read_checkpoint,
    read_offset_sync,
)
from ottla.mirror.syncs import OFFSET_LAG_MAX, SyncStore, SyncWriter, worth_a_pair
from ottla.protocol.records.record import NewRecord, Record

PLACE = ("t", 0)
IDS, SOURCE_AGAIN, TARGET_AGAIN = (TopicIds(*(bytes([n]) * 16 for n in row)) for row in ((1, 2), (3, 2), (1, 4)))


def store(*pairs: tuple[int, int], ids: TopicIds | None = IDS) -> SyncStore:
    made = SyncStore()
    for pair in pairs:
        made.add(OffsetSync(PLACE, *pair, ids))
    return made


def read(row: NewRecord) -> Record:
    return Record(0, 0, row.key, row.value, row.headers)


def test_an_offset_is_translated_by_the_pair_before_it() -> None:
    made = store((100, 1100), (200, 1250))
    answers = {99: None, 100: 1100, 101: 1101, 199: 1101, 200: 1250, 201: 1251, 9_999: 1251}
    assert {offset: made.translate(PLACE, offset, IDS) for offset in answers} == answers
    assert made.translate(("t", 1), 100, IDS) is None


def test_a_pair_behind_the_newest_makes_those_before_it_void() -> None:
    made = store((100, 1100), (200, 1250), (50, 2000))
    assert [made.translate(PLACE, offset, IDS) for offset in (49, 50, 100, 300)] == [None, 2000, 2001, 2001]


def test_pairs_of_a_topic_that_was_created_again_translate_nothing() -> None:
    """The worker that mirrored the first records was killed before it wrote their pairs, so the next pair goes back in neither
    cluster.
    """
    for again in (SOURCE_AGAIN, TARGET_AGAIN):
        made = store((0, 1000), (50, 1050))
        assert made.translate(PLACE, 50, again) is None
        made.add(OffsetSync(PLACE, 90, 1120, again))
        assert [made.translate(PLACE, offset, again) for offset in (50, 89, 90)] == [None, None, 1120]
        assert made.translate(PLACE, 90, IDS) is None


def test_pairs_of_mirror_maker_have_no_ids_and_are_used_as_it_uses_them() -> None:
    made = store((0, 1000), (50, 1050), ids=None)
    assert made.translate(PLACE, 50, IDS) == 1050
    made.add(OffsetSync(PLACE, 90, 1120, IDS))
    assert [made.translate(PLACE, offset, IDS) for offset in (50, 90)] == [1050, 1120]


@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=400), st.data())
def test_old_pairs_become_sparse_and_no_group_is_sent_ahead(steps: list[int], data: st.DataObject) -> None:
    """A group that lags by n offsets is translated to an offset that lags by little more than 2n, plus the distance between
    pairs.
    """
    made, upstream, pairs = SyncStore(), 0, []
    for step in steps:
        upstream += step
        pairs.append(upstream)
        made.add(OffsetSync(PLACE, upstream, upstream + 7))
    kept = made.kept(PLACE)
    assert len(kept) <= 2 * (upstream.bit_length() + 1)
    asked = data.draw(st.integers(pairs[0], upstream + 10))
    found = made.translate(PLACE, asked, IDS)
    exact = max(pair for pair in pairs if pair <= asked)
    assert found is not None
    assert found <= exact + 8
    lag = upstream - asked
    assert exact + 8 - found <= 2 * max(lag, 0) + 2 * max(steps) + 1


def test_pairs_are_written_first_then_at_each_lag_and_at_a_pause() -> None:
    writer = SyncWriter()
    written = [pair.upstream for n in range(250) for pair in writer.take([OffsetSync(PLACE, n, 500 + n)])]
    assert written == [0, OFFSET_LAG_MAX + 1, 2 * (OFFSET_LAG_MAX + 1)]
    assert [pair.upstream for pair in writer.pause()] == [249]
    assert writer.pause() == []
    assert [pair.upstream for pair in writer.take([OffsetSync(PLACE, 250, 10)])] == [250]


def test_the_first_pair_of_a_topic_that_was_created_again_is_written_at_once() -> None:
    for again in (
        OffsetSync(PLACE, 0, 508, IDS),  # the source's log was cut
        OffsetSync(PLACE, 7, 508, SOURCE_AGAIN),
        OffsetSync(PLACE, 7, 508, TARGET_AGAIN),
        OffsetSync(PLACE, 7, 501, IDS),  # the target's log was cut
    ):
        writer = SyncWriter()
        assert writer.take([OffsetSync(PLACE, n, 500 + n, IDS) for n in range(7)]) == [OffsetSync(PLACE, 0, 500, IDS)]
        assert writer.take([again]) == [again]


def test_a_pair_whose_topic_was_created_again_meanwhile_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset may belong to either topic of the target: the id was requested before and after the transaction."""
    written: list[NewRecord] = []

    async def write(self: Emitter, records: Iterable[NewRecord]) -> None:
        written.extend(records)

    async def ids(names: set[str]) -> dict[str, bytes]:
        return dict.fromkeys(names, TARGET_AGAIN.target)

    monkeypatch.setattr(Emitter, "write", write)
    emitter = SyncEmitter(cast(Any, None), "pairs", ids)
    old, new = OffsetSync(PLACE, 5, 7, IDS), OffsetSync(PLACE, 6, 0, TARGET_AGAIN)
    emitter.take([old])
    asyncio.run(emitter.flush())
    emitter.take([new])
    asyncio.run(emitter.flush())
    assert [read_offset_sync(read(row)) for row in written] == [new]


def test_a_batch_has_a_pair_at_its_ends_and_each_hundred_records() -> None:
    assert [worth_a_pair(count) for count in (1, 2, 101, 250)] == [[0], [0, 1], [0, 100], [0, 100, 200, 249]]


def test_records_have_the_bytes_of_mirror_maker() -> None:
    """The bytes were written by the serializers of OffsetSync, Checkpoint and Heartbeat of Kafka 4.3.1 for the same values."""
    sync = OffsetSync(("t", 1), 2, 3)
    assert sync.record[:2] == (bytes.fromhex("00017400000001"), bytes.fromhex("0000000000000002" + "0000000000000003"))
    checkpoint = Checkpoint("g", ("west.t", 1), 2, 3, "m")
    key, value = checkpoint.record[:2]
    assert key == bytes.fromhex("000167" + "0006776573742e74" + "00000001")
    assert value == bytes.fromhex("0000" + "0000000000000002" + "0000000000000003" + "00016d")
    heartbeat = bytes.fromhex("000161000162"), bytes.fromhex("0000" + "0000000000000005")
    assert heartbeat_record("a", "b", 5)[:2] == heartbeat
    for ids in (None, IDS):  # the ids are in a header, and change neither the key nor the value
        rows = sync._replace(ids=ids), checkpoint._replace(ids=ids)
        assert [row.record[:2] for row in rows] == [sync.record[:2], checkpoint.record[:2]]
        assert (read_offset_sync(read(rows[0].record)), read_checkpoint(read(rows[1].record))) == rows


def test_what_is_no_record_of_a_mirror_is_passed_over() -> None:
    key = b"\0\1g\0\1t\0\0\0\1"
    assert [read_offset_sync(Record(0, 0, *row)) for row in ((b"k", b"v"), (None, b"v"))] == [None, None]
    assert [read_checkpoint(Record(0, 0, key, value)) for value in (b"\0\x09", None)] == [None, None]
    for text in (b"", b"x y", b"\xff \xff", None):
        record = read(OffsetSync(PLACE, 2, 3).record._replace(headers=((TOPICS_HEADER, text),)))
        assert read_offset_sync(record) == OffsetSync(PLACE, 2, 3)
