"""The offset at which a log ended at a time, by its batches."""

from __future__ import annotations

from ottla.local.snapshots.cutting import Known, end_at
from ottla.protocol.records.batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, Header

TIME_MS = 1_000
KNOWN = Known(TIME_MS, leader_epoch=3, producer_ids_end=100, is_internal=False)
NO_PRODUCER = -1


def header(
    offset: int, time_ms: int, *, producer: int = NO_PRODUCER, attributes: int = 0, epoch: int = 0, count: int = 1
) -> Header:
    return (offset, 100, epoch, 2, 0, attributes, count - 1, time_ms, time_ms, producer, 0, 0, count)


def marker(offset: int, time_ms: int, producer: int) -> Header:
    return header(offset, time_ms, producer=producer, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)


def part(offset: int, time_ms: int, producer: int) -> Header:
    """A batch of a transaction."""
    return header(offset, time_ms, producer=producer, attributes=TRANSACTIONAL_BIT)


def cut(known: Known, *batches: Header) -> int:
    return end_at(lambda: batches, known)


def test_a_log_ends_before_the_first_batch_with_a_record_of_after_the_time() -> None:
    assert cut(KNOWN, header(0, 900, count=5), header(5, 1_000), header(6, 1_001), header(7, 990)) == 6
    assert cut(KNOWN, header(0, 900, count=5)) == 5
    assert cut(KNOWN) == 0


def test_what_lies_before_a_marker_of_that_time_was_there_whatever_its_client_wrote_as_its_time() -> None:
    assert cut(KNOWN, header(0, 5_000), part(1, 990, 7), marker(2, 1_000, 7), header(3, 5_000)) == 3


def test_what_lies_behind_a_marker_of_a_later_time_was_not_there_however_old_its_client_says_it_is() -> None:
    known = KNOWN._replace(open=frozenset({7}))
    assert cut(known, part(0, 990, 7), marker(1, 1_001, 7), header(2, 10)) == 1


def test_the_times_of_the_broker_and_of_coordinators_count_as_those_of_markers() -> None:
    dated = header(1, 1_001, attributes=LOG_APPEND_TIME_BIT)
    assert cut(KNOWN, header(0, 5_000), header(1, 999, attributes=LOG_APPEND_TIME_BIT), header(2, 10)) == 3
    assert cut(KNOWN, header(0, 10), dated, header(2, 10)) == 1
    assert cut(KNOWN._replace(is_internal=True), header(0, 10), header(1, 1_001), header(2, 10)) == 1


def test_batches_of_a_leader_or_a_producer_that_the_metadata_did_not_have_yet_were_not_there() -> None:
    assert cut(KNOWN, header(0, 10), header(1, 10, epoch=4)) == 1
    assert cut(KNOWN, header(0, 10, producer=99), header(1, 10, producer=100)) == 1


def test_what_a_group_had_committed_was_there_though_its_records_have_later_times() -> None:
    assert cut(KNOWN._replace(committed=2), header(0, 5_000), header(1, 5_000), header(2, 5_000)) == 2


def test_a_transaction_that_its_coordinator_did_not_know_yet_was_not_there_and_nothing_behind_it() -> None:
    batches = (header(0, 10), part(1, 990, 7), header(2, 10))
    assert cut(KNOWN, *batches) == 1
    assert cut(KNOWN._replace(open=frozenset({7})), *batches) == 3


def test_all_of_a_transaction_whose_commit_was_decided_was_there() -> None:
    batches = (header(0, 5_000), part(1, 5_000, 7), header(2, 5_000), marker(3, 1_001, 7))
    both = frozenset({7})
    assert cut(KNOWN._replace(open=both, prepared={7: 999}), *batches) == 2
    assert cut(KNOWN._replace(open=both), *batches) == 0


def test_a_cut_that_opens_another_unknown_transaction_goes_back_to_its_beginning() -> None:
    batches = (header(0, 10), part(1, 990, 8), part(2, 990, 7), header(3, 1_001), marker(4, 1_002, 8))
    assert cut(KNOWN, *batches) == 1


def test_what_a_producer_wrote_behind_the_marker_of_its_decided_transaction_is_of_one_that_was_not_known() -> None:
    """The coordinator writes the marker of a decided transaction again. That marker would also commit the next transaction."""
    known = KNOWN._replace(open=frozenset({7}), prepared={7: 999})
    before = (part(0, 10, 7), marker(1, 998, 7))
    assert cut(known, *before, part(2, 990, 7), marker(3, 999, 7), part(4, 1_000, 7), header(5, 1_000)) == 4
    assert cut(known, *before, part(2, 990, 7), header(3, 1_000)) == 4
    assert cut(known, *before, part(2, 990, 7), marker(3, 1_001, 7), part(4, 1_000, 7)) == 3
