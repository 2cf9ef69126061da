"""The records of `__remote_log_metadata` say which remote segments a partition has, and by which of them its log may be read."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ottla.broker.tiers.objects import epochs_between, epochs_text
from ottla.broker.tiers.remote_segments import (
    Lineage,
    RemoteSegment,
    RemoteSegments,
    RemoteState,
    TieredPartition,
    changed,
    place_of,
    started,
)
from ottla.protocol.errors import MalformedMessage, ProtocolError
from ottla.protocol.internal_topics.remote_log_records import (
    RemotePartitionDeleteMetadataRecord,
    decode_remote_log_record,
    encode_remote_log_record,
    metadata_partition,
)
from tests import histories

ALL = Lineage([(0, 0)], 100)
PLACE = TieredPartition("events", bytes(range(16)), 3)


def segment(name: int, start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        bytes([name] * 16), start, end, 100, 1_000 + end, epochs or ((0, start),), broker_id=1, event_ms=5
    )


def put(segments: RemoteSegments, *copied: RemoteSegment) -> None:
    for each in copied:
        segments.replay(started(PLACE, each))
        segments.replay(changed(PLACE, each.id, RemoteState.COPY_FINISHED, 1, 6))


def test_the_segments_with_aborted_transactions_are_those_of_the_log_from_an_offset_on() -> None:
    segments = RemoteSegments()
    plain = [segment(name, 10 * name, 10 * name + 9)._replace(has_aborted=False) for name in range(1, 6)]
    early, late = segment(11, 0, 14), segment(12, 40, 49)
    lost, partly = segment(13, 40, 49, (1, 40)), segment(14, 20, 39, (0, 20), (1, 30))
    put(segments, *plain, late, lost, partly, early)
    found = [(each.segment.id[0], each.agreed_to) for each in segments.with_aborted(12, ALL)]
    assert found == [(11, 15), (14, 30), (12, 50)]
    assert [each.segment.id[0] for each in segments.with_aborted(15, ALL)] == [14, 12]
    assert [each.segment.id[0] for each in segments.with_aborted(30, ALL)] == [
        12
    ]  # of `partly` the rest is another log's
    assert not list(segments.with_aborted(50, ALL))


def test_a_segment_can_be_read_once_its_copy_is_finished_and_until_its_deletion_begins() -> None:
    segments, one = RemoteSegments(), segment(1, 0, 9)
    segments.replay(started(PLACE, one))
    assert segments.find(4, ALL) is None
    segments.replay(changed(PLACE, one.id, RemoteState.COPY_FINISHED, 1, 6))
    found = segments.find(4, ALL)
    assert found is not None
    assert (found.segment.id, found.agreed_to) == (one.id, 10)
    segments.replay(changed(PLACE, one.id, RemoteState.DELETE_STARTED, 1, 7))
    assert segments.find(4, ALL) is None
    assert one.id in segments.by_id  # its objects may still be there
    segments.replay(changed(PLACE, one.id, RemoteState.DELETE_FINISHED, 1, 8))
    assert not segments.by_id


def test_what_cannot_follow_is_left_out() -> None:
    segments, one = RemoteSegments(), segment(1, 0, 9)
    segments.replay(changed(PLACE, one.id, RemoteState.COPY_FINISHED, 1, 6))  # a copy that has never begun
    assert not segments.by_id
    segments.replay(started(PLACE, one))
    segments.replay(changed(PLACE, one.id, RemoteState.DELETE_STARTED, 1, 6))
    segments.replay(
        changed(PLACE, one.id, RemoteState.COPY_FINISHED, 2, 7)
    )  # sent by a leader that does not know that the copy was given up
    segments.replay(started(PLACE, one))
    assert segments.by_id[one.id].state is RemoteState.DELETE_STARTED
    assert segments.find(4, ALL) is None


def test_a_segment_of_another_lineage_is_not_read() -> None:
    segments = RemoteSegments()
    put(segments, segment(1, 0, 19, (0, 0), (2, 10)))
    lineage = Lineage([(0, 0), (3, 12)], 40)  # after an unclean election epoch 2 is gone
    found = segments.find(5, lineage)
    assert found is not None
    assert found.agreed_to == 10
    assert segments.find(10, lineage) is None
    assert segments.find(15, lineage) is None
    assert segments.covered_to(0, lineage) == 10


def test_of_two_copies_the_one_with_more_is_read() -> None:
    segments = RemoteSegments()
    put(segments, segment(1, 0, 9), segment(2, 5, 29), segment(3, 10, 14))
    found = segments.find(7, ALL)
    assert found is not None
    assert found.segment.id == bytes([2] * 16)
    assert segments.covered_to(0, ALL) == 30
    assert [each.segment.id[0] for each in segments.in_lineage(0, ALL)] == [1, 2]


def test_a_gap_ends_what_is_covered_and_is_stepped_over_by_a_reader() -> None:
    segments = RemoteSegments()
    put(segments, segment(1, 0, 9), segment(2, 12, 19))
    assert segments.covered_to(0, ALL) == 10
    assert segments.covered_to(12, Lineage([(0, 0)], 15)) == 15  # the store has more than the log
    following = segments.following(10, ALL)
    assert following is not None
    assert following.segment.start == 12


class OtherRecords(AssertionError):
    """A reader would get records of another history."""


def play(seed: int) -> None:
    """Play a model: each offset of a log has the epoch in which it was written. Leaders copy, lose the end of the log, and copy
    again.
    """
    rng = random.Random(seed)
    log: list[int] = []
    written: dict[bytes, tuple[int, list[int]]] = {}
    segments, copied_to = RemoteSegments(), 0
    lineage: list[tuple[int, int]] = []
    for epoch in range(rng.randint(1, 6)):
        if log and rng.random() < 0.5:
            del log[rng.randint(0, len(log)) :]
        copied_to = min(copied_to, len(log)) if rng.random() < 0.7 else 0
        log += [epoch] * rng.randint(0, 12)
        lineage = [(log[0], 0)] if log else []
        lineage += [(second, at + 1) for at, (first, second) in enumerate(pairwise(log)) if first != second]
        while copied_to < len(log) and rng.random() < 0.8:
            end = rng.randint(copied_to, len(log) - 1)
            name = rng.randbytes(16)
            epochs = tuple(epochs_between(lineage, copied_to, end + 1))
            put(segments, RemoteSegment(name, copied_to, end, 1, 1, epochs, 1, 1))
            written[name] = copied_to, log[copied_to : end + 1]
            copied_to = end + 1
    for offset, epoch in enumerate(log):
        found = segments.find(offset, Lineage(lineage, len(log)))
        readable = [
            start
            for start, epochs in written.values()
            if start <= offset < start + len(epochs) and epochs[offset - start] == epoch
        ]
        if found is not None:
            start, epochs = written[found.segment.id]
            if epochs[offset - start : found.agreed_to - start] != log[offset : found.agreed_to]:
                raise OtherRecords(f"at {offset}: {epochs} of {start}, the log is {log}")
        assert (found is not None) == bool(readable)


def test_random_histories_of_leaders_are_read_as_they_were_written() -> None:
    histories.play(play, range(150))


def test_records_are_written_as_kafka_writes_them() -> None:
    record = started(PLACE, segment(7, 11, 20, (1, 11), (4, 15))._replace(has_aborted=False))
    value = encode_remote_log_record(record)
    assert value[:3] == b"\x01\x00\x00"  # the versions of frame and type
    assert value[3:].startswith(b"\x07events" + PLACE.topic_id + b"\x00\x00\x00\x03\x00" + bytes([7] * 16) + b"\x00")
    assert value.endswith(b"\x00\x01\x00\x01\x01")  # state, one tagged field: 0, one byte, true
    assert decode_remote_log_record(value) == record
    assert place_of(decode_remote_log_record(value)) == PLACE
    update = changed(PLACE, bytes(16), RemoteState.DELETE_STARTED, 2, 9)
    assert encode_remote_log_record(update)[:3] == b"\x01\x01\x00"
    assert place_of(RemotePartitionDeleteMetadataRecord()) is None


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x00", b"\x02\x00\x00", b"\x01\x09\x00", b"\x01\x00\x01", b"\x01\x00\x00\x07ev"]
)
def test_other_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_remote_log_record(value)
    with pytest.raises(MalformedMessage):
        decode_remote_log_record(b"\xff" * 2)


def test_the_partition_of_the_topic_is_kafkas() -> None:
    """The expected values are Java's: Objects.hash(low, high, partition) of two longs and an int, then murmur2 of its four
    bytes.
    """
    assert {metadata_partition(PLACE.topic_id, each, 50) for each in range(200)} <= set(range(50))
    assert len({metadata_partition(PLACE.topic_id, each, 50) for each in range(200)}) > 25


def test_epochs_of_a_range_begin_in_it_and_none_is_empty() -> None:
    lineage = [(0, 0), (2, 10), (3, 20), (4, 20), (6, 25)]
    assert list(epochs_between(lineage, 5, 22)) == [(0, 5), (2, 10), (4, 20)]
    assert list(epochs_between(lineage, 20, 21)) == [(4, 20)]
    assert epochs_text(lineage[:2], 10) == b"0\n1\n0 0\n"
    assert epochs_text(lineage[:2], 11) == b"0\n2\n0 0\n2 10\n"
