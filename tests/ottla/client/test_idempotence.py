"""Sequence numbers, batches and verdicts of an idempotent producer, without I/O."""

from __future__ import annotations

import pytest

from ottla.client.idempotence import (
    BATCH_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
    SEQUENCES,
    BatchVerdict,
    IdempotentBatches,
    ProducerIdentity,
    Sequences,
    add_partitions,
    produce_request,
    record_bytes,
    refused_partitions,
    verdict_on,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.record import NewRecord

ONE, OTHER = ("t", 0), ("t", 1)


def record(value: bytes) -> NewRecord:
    return NewRecord(None, value, 1_700_000_000_000)


def batches(*values: bytes) -> IdempotentBatches:
    """Sealed records of one partition."""
    made = IdempotentBatches()
    made.identity = ProducerIdentity(77, 3)
    for value in values:
        made.add(ONE, record(value), record_bytes(record(value)))
    made.seal()
    return made


def head(made: IdempotentBatches) -> tuple[int, list[bytes | None]]:
    """Base sequence and values of the next batch, as its partition gets them."""
    view = BatchView(memoryview(made.next_batch(ONE)), 0)
    assert (view.producer_id, view.producer_epoch) == (77, 3)
    return view.base_sequence, [each.value for each in view.iter_records()]


def test_sequence_numbers_begin_again_behind_the_last_one() -> None:
    sequences = Sequences()
    sequences.take(ONE, SEQUENCES - 1)
    assert [sequences.take(ONE, 3), sequences.take(ONE, 1), sequences.take(OTHER, 1)] == [SEQUENCES - 1, 2, 0]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, BatchVerdict.WRITTEN),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, BatchVerdict.WRITTEN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, BatchVerdict.AGAIN),
        (ErrorCode.KAFKA_STORAGE_ERROR, BatchVerdict.AGAIN),
        (ErrorCode.MESSAGE_TOO_LARGE, BatchVerdict.TOO_LARGE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, BatchVerdict.FENCED),
        (ErrorCode.PRODUCER_FENCED, BatchVerdict.FENCED),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, BatchVerdict.REJECTED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, BatchVerdict.REJECTED),
        (30_000, BatchVerdict.REJECTED),
    ],
)
def test_an_error_code_is_a_verdict_on_the_batch(code: int, verdict: BatchVerdict) -> None:
    assert verdict_on(code) is verdict


def test_a_batch_is_the_same_in_each_attempt_and_the_next_one_follows_it() -> None:
    made = batches(b"a", b"b")
    made.add(ONE, record(b"c"), 1)
    made.seal()
    first = made.next_batch(ONE)
    assert made.answered(ONE, ErrorCode.REQUEST_TIMED_OUT)[0] is BatchVerdict.AGAIN
    assert made.next_batch(ONE) == first and head(made) == (0, [b"a", b"b"])
    assert made.answered(ONE, ErrorCode.NONE)[1].numbers == [1, 2]
    assert head(made) == (2, [b"c"]) and made.unacknowledged == [3]
    assert made.answered(ONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)[0] is BatchVerdict.WRITTEN
    assert not made.sealed and not made.unacknowledged


def test_a_batch_that_is_too_large_becomes_two_with_the_same_sequence_numbers() -> None:
    made = batches(b"a", b"b", b"c")
    assert made.answered(ONE, ErrorCode.MESSAGE_TOO_LARGE)[0] is BatchVerdict.TOO_LARGE
    assert head(made) == (0, [b"a"])
    assert made.answered(ONE, ErrorCode.MESSAGE_TOO_LARGE)[0] is BatchVerdict.REJECTED, "one record cannot be divided"
    made.answered(ONE, ErrorCode.NONE)
    assert head(made) == (1, [b"b", b"c"])


def test_what_was_rejected_is_not_acknowledged() -> None:
    made = batches(b"a")
    assert made.answered(ONE, ErrorCode.PRODUCER_FENCED)[0] is BatchVerdict.FENCED
    assert made.unacknowledged == [1]


def test_a_record_fits_until_the_batch_is_full_and_any_fits_into_an_empty_one() -> None:
    made = IdempotentBatches()
    assert made.fits(ONE, 2 * BATCH_BYTES_MAX)
    made.add(ONE, record(b"a"), BATCH_BYTES_MAX - 10)
    assert made.fits(ONE, 10) and not made.fits(ONE, 11) and made.fits(OTHER, 11)
    assert made.collected_bytes == BATCH_BYTES_MAX - 10
    made.seal()
    assert made.fits(ONE, 11) and made.collected_bytes == 0


def test_the_size_of_a_record_has_its_headers() -> None:
    assert record_bytes(NewRecord(b"kk", None, 0)) == RECORD_OVERHEAD_BYTES + 2
    assert record_bytes(NewRecord(None, b"v", 0, (("h", b"xyz"), ("i", None)))) == RECORD_OVERHEAD_BYTES + 1 + 4 + 1


def test_requests_name_each_topic_once() -> None:
    places = [ONE, ("u", 5), OTHER]
    sent = produce_request(
        dict.fromkeys(places, b"x"), 1000, transactional_id="tx", topic_ids={"t": b"1" * 16, "u": b"2" * 16}
    )
    assert [(row.name, row.topic_id[:1], [part.index for part in row.partition_data]) for row in sent.topic_data] == [
        ("t", b"1", [0, 1]),
        ("u", b"2", [5]),
    ]
    assert (sent.acks, sent.transactional_id) == (-1, "tx")
    added = add_partitions("tx", ProducerIdentity(77, 3), places).v3_and_below_topics
    assert [(row.name, row.partitions) for row in added] == [("t", [0, 1]), ("u", [5])]


def test_a_partition_that_was_not_attempted_is_not_the_one_that_was_refused() -> None:
    rows = [
        AddPartitionsToTxnPartitionResult(0, ErrorCode.OPERATION_NOT_ATTEMPTED),
        AddPartitionsToTxnPartitionResult(1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", rows)])
    assert refused_partitions(response) == [(OTHER, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
