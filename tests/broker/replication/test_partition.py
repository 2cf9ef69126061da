"""One replica's roles, watermark and waiting lists, on a real log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker.fetch.session import FetchPartition, FetchSession
from ottla.broker.replication.delayed_produce import DelayedProduce
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import TimerWheel
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.manual_clock import ManualClock

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


class Flushes:
    """A `GroupFlush` whose flushes happen when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Partition] = []

    def request(self, partition: Partition) -> None:
        self.asked.append(partition)

    def run(self, *, failed: bool = False) -> None:
        for partition in self.asked:
            if not failed and partition.leader_log is not None:
                partition.leader_log.flush(NOW_MS)
            partition.flushed(failed)
        self.asked.clear()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    files = OsFiles()
    opened = open_log(
        LogSpec(files, Mappings(), str(tmp_path / "t-0"), "t", 0, TOPIC_ID, LogConfig(min_insync_replicas=2)),
        clean=True,
    )
    yield opened
    opened.close()


@pytest.fixture
def flushes() -> Flushes:
    return Flushes()


@pytest.fixture
def partition(clock: ManualClock, flushes: Flushes) -> Partition:
    return made_partition(1, "t", 0, TOPIC_ID, Wakeups(clock), flushes, 30_000)


def lead(
    partition: Partition, log: Log, *, epoch: int = 1, replicas: tuple[int, ...] = (1,), isr: tuple[int, ...] = (1,)
) -> None:
    partition.become_leader(log, epoch, epoch, replicas, isr, NOW_MS)


class Fetch:
    """Waits for a session's change."""

    def __init__(self) -> None:
        self.fresh: dict[FetchPartition, None] = {}
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def expire(self) -> None:
        raise AssertionError("nothing ends the wait here")


def watching(partition: Partition, replica_id: int = -1, fetch_offset: int = 0) -> tuple[FetchSession, Fetch]:
    """A session in which the partition is idle, and its fetch that waits."""
    wanted = FetchPartition(partition.topic, partition.topic_id, partition.index, fetch_offset, 1024)
    session = FetchSession({(partition.topic, partition.index): wanted}, replica_id=replica_id)
    session.settle(wanted, partition.watchers)
    session.waiting = fetch = Fetch()
    return session, fetch


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action()
    return caught.value.code


def test_a_lone_leader_commits_what_it_appends_at_once(partition: Partition, log: Log) -> None:
    lead(partition, log)
    appended = partition.append(batch([b"a", b"b"]), -1, NOW_MS)
    assert (appended.first_offset, appended.last_offset) == (0, 1)
    assert partition.is_committed(1)
    assert log.high_watermark == 2


def test_a_replica_that_does_not_lead_refuses_appends(partition: Partition, log: Log) -> None:
    assert refused(lambda: partition.append(batch([b"a"]), 1, NOW_MS)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.become_follower(log, 2, 1, 1, (1, 2), (1, 2))
    assert refused(lambda: partition.append(batch([b"a"]), 1, NOW_MS)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.log_end_offset == 0


def test_too_few_in_sync_replicas_refuse_acks_all_before_appending_and_take_acks_1(
    partition: Partition, log: Log
) -> None:
    lead(partition, log, replicas=(1, 2, 3), isr=(1,))
    assert refused(lambda: partition.append(batch([b"a"]), -1, NOW_MS)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.log_end_offset == 0
    partition.append(batch([b"a"]), 1, NOW_MS)
    assert (log.log_end_offset, log.high_watermark) == (1, 0)  # under min ISR the watermark stands still


def test_acks_all_is_answered_when_the_slowest_in_sync_follower_has_it(
    partition: Partition, log: Log, clock: ManualClock
) -> None:
    lead(partition, log, replicas=(1, 2, 3), isr=(1, 2, 3))
    wheel = TimerWheel(clock)
    last = partition.append(batch([b"a", b"b"]), -1, NOW_MS).last_offset
    answers: list[object] = []
    DelayedProduce([(partition.when_committed, last, answers.append)], 1_000, wheel, lambda: answers.append("done"))
    partition.record_follower_fetch(2, 2, 0, NOW_MS, 1)
    assert answers == [] and log.high_watermark == 0
    partition.record_follower_fetch(3, 2, 0, NOW_MS, 1)
    assert answers == ["done"] and log.high_watermark == 2
    assert len(wheel) == 0


def test_a_watermark_that_never_comes_is_a_timeout_and_leaves_nothing_behind(
    partition: Partition, log: Log, clock: ManualClock
) -> None:
    lead(partition, log, replicas=(1, 2), isr=(1, 2))
    wheel = TimerWheel(clock)
    last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
    answers: list[object] = []
    DelayedProduce([(partition.when_committed, last, answers.append)], 1_000, wheel, lambda: answers.append("done"))
    clock.advance(990)
    assert answers == []
    clock.advance(20)
    assert answers == [ErrorCode.REQUEST_TIMED_OUT, "done"]
    partition.record_follower_fetch(2, 1, 0, NOW_MS, 1)
    assert answers == [ErrorCode.REQUEST_TIMED_OUT, "done"]


def test_losing_leadership_answers_everyone_who_waits(partition: Partition, log: Log, clock: ManualClock) -> None:
    lead(partition, log, replicas=(1, 2), isr=(1, 2))
    last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
    answers: list[object] = []
    DelayedProduce(
        [(partition.when_committed, last, answers.append)], 1_000, TimerWheel(clock), lambda: answers.append("done")
    )
    partition.become_follower(log, 2, 2, 2, (1, 2), (1, 2))
    assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER, "done"]


def test_an_isr_that_shrank_below_the_minimum_after_the_append_holds_the_answer_back(
    partition: Partition, log: Log, clock: ManualClock
) -> None:
    lead(partition, log, replicas=(1, 2, 3), isr=(1, 2))
    last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
    answers: list[object] = []
    DelayedProduce(
        [(partition.when_committed, last, answers.append)], 1_000, TimerWheel(clock), lambda: answers.append("done")
    )
    lead(partition, log, epoch=1, replicas=(1, 2, 3), isr=(1,))
    assert answers == [] and log.high_watermark == 0


def test_an_isr_that_shrank_below_the_minimum_before_the_answer_to_a_committed_append_is_an_error(
    partition: Partition, log: Log, clock: ManualClock
) -> None:
    lead(partition, log, replicas=(1, 2, 3), isr=(1, 2))
    last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
    partition.record_follower_fetch(2, 1, 0, NOW_MS, 1)
    assert log.high_watermark == 1
    lead(partition, log, epoch=1, replicas=(1, 2, 3), isr=(1,))
    answers: list[object] = []
    DelayedProduce(
        [(partition.when_committed, last, answers.append)], 1_000, TimerWheel(clock), lambda: answers.append("done")
    )
    assert answers == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "done"]


class Candidates:
    """Every replica may join, and the controller never answers."""

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        return True

    def submit(self, partition: Partition) -> None:
        raise AssertionError("nothing is proposed here")

    def close(self) -> None:
        return None


def test_a_watermark_that_an_append_raises_calls_back_after_the_append_and_not_inside_it(
    log: Log, clock: ManualClock, flushes: Flushes
) -> None:
    """A replica that could join was waited for, and is late by now. A coordinator appends, and has not replayed that yet."""
    partition = made_partition(1, "t", 0, TOPIC_ID, Wakeups(clock), flushes, 30_000, Candidates())
    partition.become_leader(log, 1, 1, (1, 2, 3), (1, 2), clock.mono_ms())
    for _ in range(2):
        last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
    answers: list[ErrorCode] = []
    partition.when_committed(last, answers.append)
    late = partition.followers[3]
    late.broker_epoch, late.log_end_offset, late.last_caught_up_ms = 1, 0, clock.mono_ms()
    partition.record_follower_fetch(2, 2, 0, clock.mono_ms(), 1)
    assert log.high_watermark == 0
    clock.advance(30_001)
    assert answers == []
    partition.append(batch([b"b"]), -1, NOW_MS)
    assert (log.high_watermark, answers) == (2, [])
    clock.advance(0)
    assert answers == [ErrorCode.NONE]


def broken(*arguments: object) -> None:
    raise ZeroDivisionError


def test_one_callback_that_fails_keeps_no_other_from_being_called(
    partition: Partition, log: Log, clock: ManualClock, flushes: Flushes, caplog: pytest.LogCaptureFixture
) -> None:
    log.update_config(LogConfig(flush_messages=1, min_insync_replicas=2))
    lead(partition, log, replicas=(1, 2), isr=(1, 2))
    answers: list[object] = []
    for callback in (broken, answers.append):
        last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
        partition.when_flushed(last, callback)
        partition.when_committed(last, callback)
    _, fetch = watching(partition)
    flushes.run()
    assert answers == [ErrorCode.NONE]
    partition.record_follower_fetch(2, 2, 0, NOW_MS, 1)
    assert answers == [ErrorCode.NONE] * 2
    clock.advance(0)
    assert fetch.woken == 1, "the watermark is passed on to who reads"
    for callback in (broken, answers.append):
        partition.when_committed(99, callback)
    partition.become_follower(log, 2, 2, 2, (1, 2), (1, 2))
    assert answers[2:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 3


def test_one_waiter_that_fails_keeps_no_other_of_its_turn_from_being_woken(
    partition: Partition, log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    lead(partition, log)
    waiting = [watching(partition)[1] for _ in range(3)]
    waiting[0].wake = broken
    partition.append(batch([b"a"]), 1, NOW_MS)
    clock.advance(0)
    assert [fetch.woken for fetch in waiting] == [0, 1, 1]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_new_leader_epoch_starts_where_the_log_ends(partition: Partition, log: Log) -> None:
    lead(partition, log, epoch=3)
    partition.append(batch([b"a"] * 3), 1, NOW_MS)
    lead(partition, log, epoch=5)
    assert partition.epoch_start_offset == 3
    partition.append(batch([b"b"]), 1, NOW_MS)
    assert log.end_offset_for_epoch(3) == (3, 3)
    assert log.end_offset_for_epoch(5) == (5, 4)


def test_a_leader_whose_watermark_lags_its_epoch_knows_it(partition: Partition, log: Log) -> None:
    lead(partition, log, epoch=1, replicas=(1, 2), isr=(1, 2))
    partition.append(batch([b"a"]), 1, NOW_MS)
    lead(partition, log, epoch=2, replicas=(1, 2), isr=(1, 2))
    partition.become_follower(log, 2, 3, 3, (1, 2), (1, 2))
    lead(partition, log, epoch=4, replicas=(1, 2), isr=(1, 2))
    assert log.high_watermark < partition.epoch_start_offset
    partition.record_follower_fetch(2, 1, 0, NOW_MS, 1)
    assert log.high_watermark >= partition.epoch_start_offset


@pytest.mark.parametrize(
    ("epoch", "expected"), [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_reader_with_another_leader_epoch_is_fenced_or_unknown_by_the_direction(
    partition: Partition, log: Log, epoch: int, expected: ErrorCode
) -> None:
    lead(partition, log, epoch=2)
    assert refused(lambda: partition.local_log(epoch, require_leader=True)) == expected
    assert partition.local_log(2, require_leader=True) is log
    assert partition.local_log(-1, require_leader=True) is log


def test_an_offline_replica_answers_storage_error_to_everybody(partition: Partition, log: Log) -> None:
    lead(partition, log)
    partition.go_offline()
    assert refused(lambda: partition.append(batch([b"a"]), 1, NOW_MS)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(lambda: partition.local_log(-1, require_leader=True)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_waiting_fetch_is_woken_once_for_all_appends_of_a_turn(
    partition: Partition, log: Log, clock: ManualClock
) -> None:
    lead(partition, log)
    session, fetch = watching(partition)
    for _ in range(3):
        partition.append(batch([b"a"]), 1, NOW_MS)
    assert fetch.woken == 0
    assert list(session.active) == list(session.partitions.values())
    clock.advance(0)
    assert fetch.woken == 1


def test_an_idle_partition_of_a_session_is_not_looked_at_until_something_happens_there(
    partition: Partition, log: Log
) -> None:
    lead(partition, log)
    session, _ = watching(partition)
    assert not session.active
    partition.watchers.fire()
    assert list(session.active) == list(session.partitions.values())


def test_flush_messages_1_commits_and_answers_only_what_is_on_the_disk(
    partition: Partition, log: Log, flushes: Flushes
) -> None:
    log.update_config(LogConfig(flush_messages=1))
    lead(partition, log)
    answers: list[object] = []
    for _ in range(3):
        last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
        partition.when_flushed(last, answers.append)
    assert (log.log_end_offset, log.high_watermark, answers) == (3, 0, [])
    flushes.run()  # one flush for all of them
    assert (log.high_watermark, answers) == (3, [ErrorCode.NONE] * 3)


def test_a_failed_flush_acknowledges_nothing(partition: Partition, log: Log, flushes: Flushes) -> None:
    log.update_config(LogConfig(flush_messages=1))
    lead(partition, log)
    answers: list[object] = []
    last = partition.append(batch([b"a"]), -1, NOW_MS).last_offset
    partition.when_committed(last, answers.append)
    flushes.run(failed=True)
    assert (log.high_watermark, answers) == (0, [ErrorCode.KAFKA_STORAGE_ERROR])


def test_flush_messages_above_1_flushes_when_so_many_are_there(
    partition: Partition, log: Log, flushes: Flushes
) -> None:
    log.update_config(LogConfig(flush_messages=3))
    lead(partition, log)
    partition.append(batch([b"a"] * 2), -1, NOW_MS)
    assert not flushes.asked and not partition.wants_flush
    partition.append(batch([b"a"]), -1, NOW_MS)
    assert flushes.asked and partition.wants_flush
    flushes.run()
    assert not partition.wants_flush
