"""The leader's state of a share partition: each rule in a few lines, and random histories against a model of single records."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from ottla.broker.share.fetched import Acquired, Span
from ottla.broker.share.in_flight import RecordState
from ottla.broker.share.share_partition import Acknowledgement, SharePartition, ShareSettings, Update
from ottla.broker.share.share_state import ShareState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.share.model import Checked, Log
from tests.effort import seeds

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
LOCK_MS = 30_000


def a_partition(**settings: int) -> SharePartition:
    return SharePartition(ShareSettings()._replace(**settings), 0, 0)


def acquire(
    partition: SharePartition,
    member: str,
    *batches: tuple[int, int],
    records: int = 500,
    now_ms: int = 0,
    batch_size: int = 500,
    strict: bool = False,
    aborted: Sequence[Span] = (),
) -> list[Acquired]:
    return partition.acquire(
        member,
        partition.next_fetch_offset,
        [Span(*batch) for batch in batches],
        max_records=records,
        batch_size=batch_size,
        now_ms=now_ms,
        strict=strict,
        aborted=aborted,
    )


def acknowledge(partition: SharePartition, member: str, *batches: tuple[int, int, int | list[int]]) -> Update | None:
    lists = [Acknowledgement(first, last, [kind] if isinstance(kind, int) else kind) for first, last, kind in batches]
    return partition.acknowledge(member, lists, 0)


def finish(partition: SharePartition, member: str, *batches: tuple[int, int, int | list[int]]) -> list[StateBatch]:
    update = acknowledge(partition, member, *batches)
    assert update is not None
    partition.written(update)
    return update.batches


def refused(
    code: ErrorCode, partition: SharePartition, member: str, *batches: tuple[int, int, int | list[int]]
) -> None:
    before = repr(partition.in_flight.runs)
    with pytest.raises(KafkaError) as caught:
        acknowledge(partition, member, *batches)
    assert caught.value.code == code
    assert repr(partition.in_flight.runs) == before


def runs(partition: SharePartition) -> list[str]:
    return [repr(run) for run in partition.in_flight.runs]


def test_accepted_records_leave_and_the_start_offset_moves_once_they_are_written() -> None:
    partition = a_partition()
    assert acquire(partition, "a", (0, 9)) == [(0, 9, 1)]
    update = acknowledge(partition, "a", (0, 4, ACCEPT), (5, 9, ACCEPT))
    assert update is not None and update.batches == [(0, 9, RecordState.ACKNOWLEDGED, 1)]
    assert (partition.start_offset, partition.delivery_complete_count) == (0, 10)
    partition.written(update)
    assert (partition.start_offset, partition.delivery_complete_count, partition.next_fetch_offset) == (10, 0, 10)


def test_two_members_never_hold_the_same_record() -> None:
    partition = a_partition()
    assert acquire(partition, "a", (0, 9)) == [(0, 9, 1)]
    assert acquire(partition, "b", (10, 19)) == [(10, 19, 1)]
    assert partition.acquire("c", 0, [Span(0, 19)], max_records=99, batch_size=99, now_ms=0) == []


def test_released_records_are_delivered_again_and_counted() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9))
    assert finish(partition, "a", (0, 9, [1, 1, 2, 2, 2, 1, 3, 1, 1, 1])) == [
        (0, 1, RecordState.ACKNOWLEDGED, 1),
        (2, 4, RecordState.AVAILABLE, 1),
        (5, 5, RecordState.ACKNOWLEDGED, 1),
        (6, 6, RecordState.ARCHIVED, 1),
        (7, 9, RecordState.ACKNOWLEDGED, 1),
    ]
    assert (partition.start_offset, partition.next_fetch_offset) == (2, 2)
    assert acquire(partition, "b", (0, 9)) == [(2, 4, 2)]


def test_a_release_is_not_seen_before_it_is_written() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9))
    update = acknowledge(partition, "a", (0, 9, RELEASE))
    assert update is not None
    assert partition.acquire("b", 0, [Span(0, 9)], max_records=99, batch_size=99, now_ms=0) == []
    refused(ErrorCode.INVALID_RECORD_STATE, partition, "a", (0, 9, ACCEPT))
    partition.written(update)
    assert acquire(partition, "b", (0, 9)) == [(0, 9, 2)]


def test_a_write_that_fails_leaves_the_records_with_their_member() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9))
    update = acknowledge(partition, "a", (0, 9, ACCEPT))
    assert update is not None
    partition.not_written(update, now_ms=LOCK_MS - 1)
    assert runs(partition) == ["0-9 ACQUIRED x1 a"]
    finish(partition, "a", (0, 9, ACCEPT))
    assert partition.start_offset == 10


def test_a_write_that_fails_after_the_lock_has_timed_out_gives_the_records_back() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9))
    update = acknowledge(partition, "a", (0, 9, ACCEPT))
    assert update is not None and partition.time_out(LOCK_MS) is None
    partition.not_written(update, now_ms=LOCK_MS)
    assert runs(partition) == ["0-9 AVAILABLE x1"]


def test_a_lock_that_times_out_gives_the_records_back_at_its_own_time() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9), now_ms=0)
    acquire(partition, "b", (10, 19), now_ms=10)
    assert partition.next_deadline_ms == LOCK_MS
    assert partition.time_out(LOCK_MS - 1) is None
    update = partition.time_out(LOCK_MS)
    assert update is not None and update.batches == [(0, 9, RecordState.AVAILABLE, 1)]
    assert partition.next_deadline_ms == LOCK_MS + 10
    partition.written(update)
    refused(ErrorCode.INVALID_RECORD_STATE, partition, "a", (0, 9, ACCEPT))


def test_a_renewed_lock_begins_again_and_nothing_is_written() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9), now_ms=0)
    assert partition.acknowledge("a", [Acknowledgement(3, 5, [RENEW])], now_ms=100) is None
    update = partition.time_out(LOCK_MS)
    assert update is not None
    assert [batch[:2] for batch in update.batches] == [(0, 2), (6, 9)]
    refused(ErrorCode.INVALID_RECORD_STATE, a_partition_of("a", renew_enabled=False), "a", (0, 9, RENEW))


def a_partition_of(member: str, **settings: int) -> SharePartition:
    partition = a_partition(**settings)
    acquire(partition, member, (0, 9))
    return partition


def test_records_of_a_member_that_is_gone_are_given_back() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9))
    acquire(partition, "b", (10, 19))
    update = partition.release("a")
    assert update is not None and update.batches == [(0, 9, RecordState.AVAILABLE, 1)]
    partition.written(update)
    assert partition.release("a") is None
    assert acquire(partition, "c", (0, 9)) == [(0, 9, 2)]


def test_records_are_archived_after_their_last_delivery() -> None:
    partition = a_partition(delivery_count_limit=2)
    for count in (1, 2):
        assert acquire(partition, "a", (0, 9)) == [(0, 9, count)]
        finish(partition, "a", (0, 9, RELEASE))
    assert (partition.start_offset, partition.next_fetch_offset) == (10, 10)


def test_records_that_fail_again_and_again_are_delivered_in_smaller_parts_and_the_last_time_alone() -> None:
    partition = a_partition(delivery_count_limit=5)
    sizes = []
    for _ in range(5):
        [(first, last, count)] = acquire(partition, "a", (0, 15))
        sizes.append((count, last - first + 1))
        finish(partition, "a", (first, last, RELEASE))
    assert sizes == [(1, 16), (2, 16), (3, 16), (4, 8), (5, 1)]
    assert partition.start_offset == 1, "the first record has had its deliveries"
    assert [acquire(partition, "b", (0, 15))] == [[(1, 1, 5)]]


def test_a_soft_limit_ends_with_a_record_batch_and_a_strict_one_does_not() -> None:
    assert acquire(a_partition(), "a", (0, 4), (5, 9), (10, 14), records=7) == [(0, 9, 1)]
    partition = a_partition()
    assert acquire(partition, "a", (0, 4), (5, 9), records=7, strict=True) == [(0, 6, 1)]
    assert partition.next_fetch_offset == 7
    assert acquire(partition, "b", (5, 9), records=7, strict=True) == [(7, 9, 1)]


def test_new_records_are_locked_in_parts_of_whole_record_batches() -> None:
    batches = [(first, first + 9) for first in range(0, 100, 10)]
    assert acquire(a_partition(), "a", *batches, batch_size=25) == [(0, 29, 1), (30, 59, 1), (60, 89, 1), (90, 99, 1)]


def test_no_more_records_are_in_flight_than_the_setting_allows_up_to_a_record_batch() -> None:
    partition = a_partition(max_record_locks=100)
    batches = [(first, first + 9) for first in range(0, 300, 10)]
    assert acquire(partition, "a", *batches) == [(0, 99, 1)]
    assert not partition.can_acquire
    finish(partition, "a", (50, 59, RELEASE))
    assert partition.can_acquire and partition.next_fetch_offset == 50
    assert acquire(partition, "b", *batches[5:]) == [(50, 59, 2)], "the free record is taken, and none behind the end"


def test_offsets_that_compaction_removed_are_archived() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9), (10, 19))
    finish(partition, "a", (0, 19, RELEASE))
    assert acquire(partition, "a", (12, 19), (25, 29)) == [(12, 19, 2), (20, 29, 1)]
    assert partition.start_offset == 12


def test_records_of_aborted_transactions_are_not_delivered() -> None:
    partition = a_partition()
    acquired = acquire(partition, "a", (0, 29), aborted=[Span(5, 9), Span(20, 29)])
    assert acquired == [(0, 4, 1), (10, 19, 1)]
    refused(ErrorCode.INVALID_RECORD_STATE, partition, "a", (0, 9, ACCEPT))
    finish(partition, "a", (0, 4, ACCEPT), (10, 19, ACCEPT))
    assert partition.start_offset == 30


def test_the_log_start_offset_takes_records_away_whatever_their_state() -> None:
    partition = a_partition()
    acquire(partition, "a", (0, 9))
    acquire(partition, "b", (10, 19))
    update = acknowledge(partition, "a", (0, 9, RELEASE))
    assert update is not None
    partition.move_log_start(5)
    assert partition.start_offset == 5
    partition.move_log_start(15)
    partition.written(update)
    assert runs(partition) == ["15-19 ACQUIRED x1 b"]
    assert acknowledge(partition, "b", (10, 14, ACCEPT)) is None, "they are gone, which is no error"
    partition.move_log_start(50)
    assert (partition.start_offset, partition.next_fetch_offset, partition.in_flight.runs) == (50, 50, [])


def test_a_new_leader_delivers_what_was_not_finished() -> None:
    stored = [StateBatch(5, 9, 2, 1), StateBatch(12, 13, 0, 3), StateBatch(14, 14, 4, 5)]
    partition = SharePartition.load(ShareSettings(), ShareState(7, 0, stored), 0)
    assert runs(partition) == [
        "0-4 AVAILABLE x0",
        "5-9 ACKNOWLEDGED x1",
        "10-11 AVAILABLE x0",
        "12-13 AVAILABLE x3",
        "14-14 ARCHIVED x5",
    ]
    assert acquire(partition, "a", (0, 19)) == [(0, 4, 1), (10, 11, 1)]
    assert acquire(partition, "a", (12, 19)) == [(12, 12, 4)]


def test_finished_records_at_the_start_of_the_stored_state_are_passed() -> None:
    partition = SharePartition.load(ShareSettings(), ShareState(7, 5, [StateBatch(5, 9, 2, 1)]), 5)
    assert (partition.start_offset, partition.next_fetch_offset, partition.state_epoch) == (10, 10, 7)


@pytest.mark.parametrize("batches", [[(3, 4)], [(5, 9), (9, 12)], [(9, 8)]])
def test_stored_batches_that_make_no_sense_are_refused(batches: list[tuple[int, int]]) -> None:
    with pytest.raises(KafkaError):
        SharePartition.load(ShareSettings(), ShareState(0, 5, [StateBatch(*b, 0, 1) for b in batches]), 5)


def test_rejected_and_used_up_records_are_archiving_until_they_have_dead_letters() -> None:
    partition = a_partition_of("a", dead_letters=True, delivery_count_limit=1)
    update = acknowledge(partition, "a", (0, 2, REJECT), (3, 4, RELEASE), (5, 5, GAP), (6, 9, ACCEPT))
    assert update is not None and partition.take_dead() == [], "nothing is sent before the state is written"
    assert [batch[2] for batch in update.batches] == [3, 4, 2]
    partition.written(update)
    assert (partition.start_offset, partition.delivery_complete_count) == (0, 5)
    dead = partition.take_dead()
    assert [(run.first, run.last, run.is_rejected) for run in dead] == [(0, 2, True), (3, 4, False)]
    assert partition.take_dead() == []
    archived = partition.archive(dead)
    assert archived is not None and partition.start_offset == 0
    partition.written(archived)
    assert partition.start_offset == 10


def test_a_new_leader_writes_the_dead_letters_that_may_be_missing() -> None:
    state = ShareState(0, 5, [StateBatch(5, 6, 3, 1), StateBatch(7, 7, 3, 5)])
    partition = SharePartition.load(ShareSettings(), state, 5)
    dead = partition.take_dead()
    assert [(run.first, run.last, run.is_rejected) for run in dead] == [(5, 6, True), (7, 7, False)]
    update = partition.archive(dead)
    assert update is not None
    partition.not_written(update, 0)
    assert partition.start_offset == 8


def test_bad_acknowledgements_change_nothing() -> None:
    partition = a_partition()
    refused(ErrorCode.INVALID_RECORD_STATE, partition, "a", (0, 9, ACCEPT))
    acquire(partition, "a", (0, 9))
    acquire(partition, "b", (10, 19))
    refused(ErrorCode.INVALID_RECORD_STATE, partition, "b", (10, 19, ACCEPT), (0, 9, ACCEPT))
    refused(ErrorCode.INVALID_RECORD_STATE, partition, "a", (0, 9, ACCEPT), (9, 9, RELEASE))
    refused(ErrorCode.INVALID_REQUEST, partition, "a", (0, 9, ACCEPT), (20, 29, ACCEPT))
    refused(ErrorCode.INVALID_REQUEST, partition, "b", (10, 20, ACCEPT))


@pytest.mark.parametrize("seed", range(seeds(40, long=3000)))
def test_random_histories_agree_with_the_model_of_single_records(seed: int) -> None:
    random = Random(seed)
    settings = ShareSettings(
        lock_duration_ms=random.choice([10, 100]),
        delivery_count_limit=random.choice([2, 3, 5, 10]),
        max_record_locks=random.choice([5, 40, 1000]),
        renew_enabled=random.random() < 0.9,
        dead_letters=random.random() < 0.5,
    )
    log = Log()
    checked = Checked(settings, log)
    members = ["a", "b", "c"]
    held: dict[str, list[Acquired]] = {member: [] for member in members}
    crashes = random.random() < 0.5
    for _ in range(150):
        member = random.choice(members)
        step = random.random()
        checked.now_ms += random.choice([0, 0, 1, 3])
        if step < 0.15:
            log.append(random)
        elif step < 0.45:
            records = random.choice([1, 3, 10, 500])
            held[member] += checked.fetch(
                member, records, random.choice([1, 4, 500]), random.randint(1, 5), strict=random.random() < 0.3
            )
        elif step < 0.7 and held[member]:
            checked.acknowledge(member, some_acknowledgements(random, held[member]))
        elif step < 0.75:
            checked.release(member)
        elif step < 0.8:
            checked.time_out()
        elif step < 0.95 and checked.writing:
            checked.end_write(stored=random.random() < 0.8)
        elif step < 0.96 and log.end:
            checked.move_log_start(random.randint(log.start, log.end) if random.random() < 0.3 else log.start)
        elif step < 0.975:
            checked.archive() if checked.burying and random.random() < 0.5 else checked.bury()
        elif crashes and step > 0.985:
            checked.load()
            held = {name: [] for name in members}
    drain(checked)
    assert log.offsets() <= checked.delivered.keys(), "a record was never delivered"
    assert checked.real.start_offset == max(log.end, log.start)


def some_acknowledgements(random: Random, held: list[Acquired]) -> list[Acknowledgement]:
    """Return acknowledgements, mostly of records that the member once got: it may have lost some of them since."""
    chosen = []
    for acquired in sorted(set(held)):
        if random.random() < 0.3:
            continue
        held.remove(acquired)
        first, last, _ = acquired
        if random.random() < 0.2:
            first += random.randint(0, last - first)
        if random.random() < 0.05:
            last += random.randint(1, 40)
        count = last - first + 1
        types = random.choices([0, 1, 2, 3, 4], [1, 6, 6, 1, 2], k=random.choice([1, count]))
        chosen.append(Acknowledgement(first, last, types))
    return chosen


def finish_all(checked: Checked) -> None:
    """Finish all writes that go on, and all dead letters."""
    checked.bury()
    while checked.writing or checked.burying:
        if checked.writing:
            checked.end_write(stored=True)
        else:
            checked.archive()
        checked.bury()


def drain(checked: Checked) -> None:
    """End all failures, and let one member take and accept everything that is left."""
    finish_all(checked)
    checked.now_ms += 1000
    checked.time_out()
    finish_all(checked)
    for _ in range(10_000):
        acquired = checked.fetch("d", 500, 500, 5, strict=False)
        for first, last, _count in acquired:
            assert checked.acknowledge("d", [Acknowledgement(first, last, [ACCEPT])])
        finish_all(checked)
        if not acquired and checked.real.next_fetch_offset >= checked.log.end:
            break
