"""Sequences, epochs and transactions of producers, as Kafka 4.3 judges them."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import EndTxnMarker
from ottla.storage.errors import CorruptFile
from ottla.storage.producers.producer_snapshots import decode, encode
from ottla.storage.producers.producer_states import Origin, ProducerState, ProducerStates

COMMIT, ABORT = EndTxnMarker(True, 0), EndTxnMarker(False, 0)


class Partition:
    """Append batches with sequence numbers and keep the offset."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.offset = 0

    def send(
        self,
        sequence: int,
        count: int = 1,
        *,
        pid: int = 1,
        epoch: int = 0,
        txn: bool = False,
        origin: Origin = Origin.CLIENT,
    ) -> str:
        try:
            found = self.producers.check(pid, epoch, sequence, count, txn, origin, self.offset)
        except KafkaError as error:
            return error.code.name
        if found is not None:
            return f"duplicate of {found.first_offset}"
        first = self.offset
        self.offset += count
        self.producers.update(pid, epoch, sequence, first, self.offset - 1, 1000 + first, txn)
        return f"at {first}"

    def end(self, marker: EndTxnMarker, *, pid: int = 1, epoch: int = 0, version: int = 0) -> str:
        try:
            new = self.producers.check_marker(pid, epoch, marker, version)
        except KafkaError as error:
            return error.code.name
        aborted = self.producers.end_transaction(pid, epoch, marker, self.offset, 1000)
        self.offset += 1
        return ("again" if not new else "aborted" if aborted else "ended") + f" at {self.offset - 1}"


def test_sequences_in_order_are_appended() -> None:
    p = Partition()
    assert [p.send(0, 3), p.send(3, 1), p.send(4, 10)] == ["at 0", "at 3", "at 4"]


@pytest.mark.parametrize("sequence", [0, 1, 2, 4, 5, 100])
def test_a_gap_or_a_step_back_is_out_of_order(sequence: int) -> None:
    p = Partition()
    p.send(0, 3)
    assert p.send(sequence, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert p.send(3) == "at 3"


def test_each_of_the_last_five_batches_sent_again_is_a_duplicate_and_the_sixth_is_not() -> None:
    p = Partition()
    for i in range(6):
        p.send(i * 2, 2)
    assert [p.send(i * 2, 2) for i in range(6)] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"] + [
        f"duplicate of {i * 2}" for i in range(1, 6)
    ]


def test_the_same_first_sequence_with_another_length_is_no_duplicate() -> None:
    p = Partition()
    p.send(0, 3)
    assert p.send(0, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_sequences_wrap_after_two_to_the_31() -> None:
    p = Partition()
    top = 2**31 - 1
    p.send(0, pid=9)
    assert p.send(top - 1, 2) == "at 1", "a producer that is not known may start anywhere"
    assert p.send(0, 1) == "at 3"
    assert p.send(top - 1, 4, pid=2) == "at 4"
    assert p.send(top - 1, 4, pid=2) == "duplicate of 4"
    assert p.send(2, pid=2) == "at 8"


def test_in_a_log_that_never_had_a_record_a_client_begins_at_sequence_zero() -> None:
    p = Partition()
    assert p.send(17) == "OUT_OF_ORDER_SEQUENCE_NUMBER", "the batch before it was refused, and is on its way again"
    assert p.send(17, epoch=3) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert p.send(17, pid=2, origin=Origin.REPLICATION) == "at 0", "the leader has judged it"
    p = Partition()
    assert [p.send(0, 17), p.send(17)] == ["at 0", "at 17"]


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    p = Partition()
    p.send(0, epoch=3)
    assert p.send(1, epoch=4) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert p.send(0, epoch=4) == "at 1"
    assert p.send(1, epoch=3) == "INVALID_PRODUCER_EPOCH"
    assert p.send(0, epoch=3) == "INVALID_PRODUCER_EPOCH", "no duplicate either: the epoch is another"


def test_a_coordinator_is_checked_for_its_epoch_only() -> None:
    p = Partition()
    assert p.send(-1, epoch=1, txn=True, origin=Origin.COORDINATOR) == "at 0"
    assert p.send(-1, epoch=1, txn=True, origin=Origin.COORDINATOR) == "at 1"
    assert p.send(-1, epoch=0, txn=True, origin=Origin.COORDINATOR) == "INVALID_PRODUCER_EPOCH"


def test_a_plain_batch_inside_an_open_transaction_is_refused() -> None:
    p = Partition()
    p.send(0, txn=True)
    assert p.send(1) == "INVALID_TXN_STATE"
    assert p.end(COMMIT) == "ended at 1"
    assert p.send(1) == "at 2"


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    p = Partition()
    p.send(0, pid=1)
    p.send(0, pid=2, txn=True)
    p.send(0, pid=3, txn=True)
    assert p.producers.first_unstable_offset() == 1
    p.end(COMMIT, pid=2)
    assert p.producers.first_unstable_offset() == 1
    p.producers.on_high_watermark(3)
    assert p.producers.first_unstable_offset() == 1, "the marker is at 3, not below"
    p.producers.on_high_watermark(4)
    assert p.producers.first_unstable_offset() == 2
    assert p.end(ABORT, pid=3) == "aborted at 4"
    p.producers.on_high_watermark(5)
    assert p.producers.first_unstable_offset() == -1


def test_an_aborted_transaction_says_how_far_everything_is_decided() -> None:
    p = Partition()
    p.send(0, pid=1, txn=True)
    p.send(0, pid=2, txn=True)
    first = p.producers.end_transaction(2, 0, ABORT, 2, 0)
    second = p.producers.end_transaction(1, 0, ABORT, 3, 0)
    assert first is not None and (first.first_offset, first.last_offset, first.last_stable_offset) == (1, 2, 0)
    assert second is not None and (second.first_offset, second.last_offset, second.last_stable_offset) == (0, 3, 4)


def test_a_marker_without_records_leaves_no_transaction_behind() -> None:
    p = Partition()
    assert p.end(ABORT, epoch=5) == "ended at 0"
    assert p.producers.first_unstable_offset() == -1
    assert p.send(0, epoch=4) == "INVALID_PRODUCER_EPOCH", "but it fences"
    assert p.send(0, epoch=5) == "at 1"


def test_markers_of_old_epochs_and_old_coordinators_are_refused() -> None:
    p = Partition()
    p.send(0, epoch=2, txn=True)
    assert p.end(COMMIT, epoch=1) == "INVALID_PRODUCER_EPOCH"
    assert p.end(EndTxnMarker(True, 7), epoch=2) == "ended at 1"
    assert p.end(EndTxnMarker(True, 6), epoch=2) == "TRANSACTION_COORDINATOR_FENCED"


def test_with_transaction_version_2_the_marker_must_have_a_new_epoch() -> None:
    p = Partition()
    p.send(0, epoch=2, txn=True)
    assert p.end(COMMIT, epoch=2, version=2) == "INVALID_PRODUCER_EPOCH"
    assert p.end(COMMIT, epoch=3, version=2) == "ended at 1"
    assert p.end(COMMIT, epoch=3, version=2) == "again at 2"


def test_an_expected_transactional_append_starts_at_the_lowest_sequence_seen() -> None:
    p = Partition()
    p.send(0, pid=9)
    p.producers.expect_append(1, 5, 0, 0, supports_epoch_bump=False)
    p.producers.expect_append(1, 3, 0, 0, supports_epoch_bump=False)
    assert p.send(5, txn=True) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert p.send(3, txn=True) == "at 1"
    p.producers.expect_append(2, 3, 0, 0, supports_epoch_bump=True)
    assert p.send(3, pid=2, txn=True) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_silent_producers_are_forgotten_but_not_with_an_open_transaction() -> None:
    p = Partition()
    p.send(0, pid=1)
    p.send(0, pid=2, txn=True)
    p.producers.remove_expired(1000 + 86_400_000, 86_400_000)
    assert sorted(s.producer_id for s in p.producers) == [2]
    assert p.send(77, pid=1) == "at 2", "forgotten, so it may start anywhere"


def test_a_snapshot_gives_the_same_state_back() -> None:
    p = Partition()
    p.send(0, 5, pid=1, epoch=3)
    p.send(0, 2, pid=2, txn=True)
    p.end(EndTxnMarker(True, 9), pid=3, epoch=1)
    again = ProducerStates()
    again.load(decode("x", encode(p.producers)))
    assert list(again) == list(p.producers)
    assert again.first_unstable_offset() == 5
    assert encode(again) == encode(p.producers)


def test_the_snapshot_file_is_kafkas_byte_for_byte() -> None:
    state = ProducerState(
        0x0102030405060708, epoch=9, coordinator_epoch=3, last_timestamp=77, current_txn_first_offset=-1
    )
    data = encode([state])
    assert data.hex() == (
        "0001" + data[2:6].hex() + "00000001"
        "0102030405060708"
        "0009"
        "ffffffff"
        "ffffffffffffffff"
        "00000000"
        "000000000000004d"
        "00000003"
        "ffffffffffffffff"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: d[:9],
        lambda d: d[:-1],
        lambda d: d + b"x",
        lambda d: b"\0\2" + d[2:],
        lambda d: d[:12] + bytes([d[12] ^ 1]) + d[13:],
        lambda d: d[:9] + b"\xff" + d[10:],
    ],
)
def test_a_damaged_snapshot_is_refused(damage: object) -> None:
    p = Partition()
    p.send(0)
    with pytest.raises(CorruptFile):
        decode("x", damage(encode(p.producers)))


def test_errors_name_the_producer_and_what_was_expected() -> None:
    p = Partition()
    p.send(0, pid=42)
    with pytest.raises(KafkaError, match="sequence 9 of producer 42 is out of order: expected 1") as raised:
        p.producers.check(42, 0, 9, 1, False, Origin.CLIENT, p.offset)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_transaction_is_opened_by_an_expected_batch_only() -> None:
    """KIP-890: a batch without a confirmation by the coordinator would open a transaction that nothing ends."""
    states = ProducerStates()
    states.requires_verification = True

    def check(epoch: int, sequence: int, origin: Origin = Origin.CLIENT) -> ErrorCode:
        try:
            states.check(7, epoch, sequence, 1, True, origin, 0)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    assert check(0, 0) is ErrorCode.INVALID_TXN_STATE
    assert check(0, 0, Origin.REPLICATION) is ErrorCode.NONE
    states.expect_append(7, 0, 0, 1_000, supports_epoch_bump=False)
    assert check(1, 0) is ErrorCode.INVALID_TXN_STATE
    assert check(0, 0) is ErrorCode.NONE
    states.update(7, 0, 0, 0, 0, 1_000, True)
    assert check(0, 1) is ErrorCode.NONE
    states.end_transaction(7, 0, EndTxnMarker(True, 1), 1, 1_000)
    assert check(0, 1) is ErrorCode.INVALID_TXN_STATE
