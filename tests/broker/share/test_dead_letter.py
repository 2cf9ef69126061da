"""Dead letters without a broker: which topic may have them, their headers, their batches, and copies of their records."""

from __future__ import annotations

import pytest

from ottla.broker.share.dead_letter_queue import (
    RECORDS_A_BATCH_MAX,
    DeadLetterSource,
    Letter,
    QueueTopic,
    batch_of,
    copies_from,
    letters_of,
    why_unusable,
)
from ottla.broker.share.in_flight import AcquiredBatch, RecordState, Run
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import GZIP

SOURCE = DeadLetterSource("g", "orders", 3, 0)
LETTERS = [Letter(7, 2, "rejected"), Letter(9, 5, "used up")]
ROOM = 1 << 20


def test_a_letter_names_the_offset_the_count_and_the_reason_of_each_record() -> None:
    late = Run(7, 7, RecordState.ARCHIVING, 5, AcquiredBatch(1))
    rejected = Run(2, 3, RecordState.ARCHIVING, 1, AcquiredBatch(2))
    rejected.is_rejected = True
    assert list(letters_of([late, rejected])) == [
        Letter(2, 1, "Offset rejected by client."),
        Letter(3, 1, "Offset rejected by client."),
        Letter(7, 5, "Offset delivery count exceeded the threshold."),
    ]


def test_a_letter_has_kafkas_headers_after_those_of_the_copy() -> None:
    (copy,) = BatchView(memoryview(build_batch([(b"k", b"v", 1, [("h", b"1")])], base_offset=9))).records()
    data, count = batch_of(SOURCE, LETTERS, {9: copy}, ROOM, 1_000)
    first, second = BatchView(memoryview(data)).records()
    assert count == 2
    assert (first.key, first.value, first.timestamp) == (None, None, 1_000)
    assert list(first.headers) == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"rejected"),
    ]
    assert (second.key, second.value, second.timestamp) == (b"k", b"v", 1_000)
    assert [name for name, _ in second.headers][:2] == ["h", "__dlq.errors.topic"]


def test_a_batch_is_as_large_as_the_topic_allows_and_has_one_letter_at_least() -> None:
    letters = [Letter(offset, 1, "rejected") for offset in range(1_000)]
    data, count = batch_of(SOURCE, letters, {}, 2_000, 0)
    assert len(data) <= 2_000 < len(batch_of(SOURCE, letters[: count + 1], {}, ROOM, 0)[0])
    assert batch_of(SOURCE, letters, {}, 1, 0)[1] == 1
    assert batch_of(SOURCE, letters, {}, ROOM, 0)[1] == RECORDS_A_BATCH_MAX


def test_copies_are_of_the_offsets_that_are_asked_for() -> None:
    rows = [(b"%d" % number, b"v" * 100, 1) for number in range(4)]
    data = build_batch(rows, base_offset=10) + build_batch(rows, base_offset=20, compression=GZIP)
    found, end = copies_from(data, [5, 11, 13, 22, 30], ROOM)
    assert ({offset: record.key for offset, record in found.items()}, end) == ({11: b"1", 13: b"3", 22: b"2"}, 24)


def test_a_batch_that_is_too_large_in_memory_or_damaged_has_no_copies() -> None:
    large = build_batch([(None, b"v" * 100_000, 1)], base_offset=10, compression=GZIP)
    damaged = bytearray(build_batch([(None, b"v", 1)], base_offset=11))
    damaged[-4:] = b"\xff" * 4
    assert copies_from(large + damaged, [10, 11], 50_000) == ({}, 12)


@pytest.mark.parametrize(
    ("topic", "word"),
    [
        (QueueTopic("", None, "dlq.", True), "no dead-letter topic"),
        (QueueTopic("__dlq", True, "", False), "begins with __"),
        (QueueTopic("other", False, "dlq.", False), "has no errors.deadletterqueue.group.enable"),
        (QueueTopic("other", True, "dlq.", False), "does not begin with"),
        (QueueTopic("dlq.t", None, "dlq.", False), "does not exist"),
        (QueueTopic("dlq.t", None, "dlq.", True), None),
        (QueueTopic("other", True, "", False), None),
        (QueueTopic("dlq.t", True, "dlq.", False), None),
    ],
)
def test_a_topic_can_have_dead_letters_by_kafkas_rules(topic: QueueTopic, word: str | None) -> None:
    why = why_unusable(topic)
    assert why is None if word is None else why is not None and word in why
