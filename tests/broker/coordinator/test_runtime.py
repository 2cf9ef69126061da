"""The runtime as a shard and its clients see it: elections, loading in steps, waiting answers, refused appends, timers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ottla.broker.coordinator import shard as shards
from ottla.broker.coordinator import turns
from ottla.broker.coordinator.context import REPLIES_A_TURN
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.group import GroupRecordCodec, offset_commit_record
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import OffsetCommitValue
from ottla.protocol.records.builder import build_batch
from ottla.server.network.context import Reply
from tests.broker.coordinator.memory_log import MemoryLog
from tests.manual_clock import ManualClock

TP = ("__consumer_offsets", 0)
UNREPLAYABLE = -7


class Counter:
    """A shard that remembers the offsets committed, in order."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.replayed: list[tuple[int, int, int | None]] = []
        self.markers: list[tuple[int, bool]] = []
        self.loaded = 0
        self.failed: list[Any] = []

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        if value is not None and value.offset == UNREPLAYABLE:
            raise ValueError("no state follows from this")
        self.replayed.append((offset, producer_id, None if value is None else value.offset))

    def replay_failed(self, key: Any) -> None:
        self.failed.append(key)

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        self.markers.append((producer_id, committed))

    def on_loaded(self, now_ms: int) -> Outcome:
        self.loaded += 1
        return Outcome()

    def on_unloaded(self) -> Outcome:
        return Outcome()


def record(number: int) -> tuple[Any, Any]:
    return offset_commit_record("g", "t", 0, OffsetCommitValue(offset=number))


def commit(shard: Counter, now_ms: int, *numbers: int) -> Outcome:
    return Outcome([record(number) for number in numbers], response=("committed", *numbers))


class CoordinatorRuntimeHarness:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.runtime = CoordinatorRuntime(TP[0], self.log, self.clock, GroupRecordCodec(), Counter, 5_000)

    def load_at_most(self, records: int) -> None:
        """Bound how many records are loaded in one turn of the loop."""
        self.runtime.turns.loads = turns.TurnQueue(self.clock, records, turns.RECORDS_BETWEEN_CLOCKS)

    def run_at_most(self, timers: int) -> None:
        """Bound how many timers run in one turn of the loop."""
        self.runtime.turns.timers = turns.TurnQueue(self.clock, timers, 1)

    def write(self, *numbers: int) -> Any:
        return self.runtime.write(0, commit, lambda error: error.code, *numbers)

    def read(self) -> Any:
        return self.runtime.read(0, lambda shard: len(shard.replayed), lambda error: error.code)


@pytest.fixture
def harness() -> CoordinatorRuntimeHarness:
    return CoordinatorRuntimeHarness()


def test_a_partition_led_elsewhere_is_not_coordinated_here(harness: CoordinatorRuntimeHarness) -> None:
    assert harness.write(1) == ErrorCode.NOT_COORDINATOR
    assert harness.log.end_offset(TP) == 0


def test_a_long_log_is_loaded_in_steps_and_requests_meanwhile_are_answered_with_load_in_progress(
    harness: CoordinatorRuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.load_at_most(16)
    monkeypatch.setattr(shards, "READ_BYTES", 300)
    harness.runtime.on_elected(0, 1)
    for number in range(20):
        harness.write(number)
    harness.runtime.on_resigned(0)
    harness.clock.advance(0)
    harness.runtime.on_elected(0, 2)
    assert harness.write(99) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.runtime.active_partitions() == []
    harness.clock.advance(0)
    assert harness.runtime.active_partitions() == [0]
    shard = harness.runtime.shard(0)
    assert [value for _, _, value in shard.replayed] == list(range(20))
    assert shard.loaded == 1


def test_leadership_lost_while_loading_leaves_nothing_behind(
    harness: CoordinatorRuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.load_at_most(16)
    harness.runtime.on_elected(0, 1)
    for number in range(50):
        harness.write(number)
    harness.runtime.on_resigned(0)
    harness.runtime.on_elected(0, 2)
    loading_shard = harness.runtime._contexts[0].shard
    harness.runtime.on_resigned(0)
    before = len(loading_shard.replayed)
    harness.clock.advance(10)
    assert harness.read() == ErrorCode.NOT_COORDINATOR
    assert len(loading_shard.replayed) <= before + 1


def test_going_on_as_leader_in_a_later_epoch_keeps_the_shard(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    shard = harness.runtime.shard(0)
    harness.runtime.on_elected(0, 2)
    assert harness.runtime.shard(0) is shard


def test_answers_leave_in_the_order_of_their_offsets_as_the_watermark_moves(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.hold = True
    answers: list[Any] = []
    harness.write(1).when_done(answers.append)
    harness.write(2, 3).when_done(answers.append)
    harness.read().when_done(answers.append)
    harness.log.committed[TP] = 1
    harness.runtime._contexts[0]._committed()
    assert answers == [("committed", 1)]
    harness.log.release(TP)
    assert answers == [("committed", 1), ("committed", 2, 3), 3]


def test_waiting_answers_fail_when_leadership_goes(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.hold = True
    answers: list[Any] = []
    harness.write(1).when_done(answers.append)
    harness.read().when_done(answers.append)
    harness.runtime.on_resigned(0)
    assert answers == [ErrorCode.NOT_COORDINATOR] * 2
    harness.log.release(TP)
    assert len(answers) == 2


def many_replies(harness: CoordinatorRuntimeHarness, answers: list[Any], count: int) -> None:
    """Make a decision that answers `count` requests, as the end of a group's rebalance does."""
    replies: list[Reply[Any]] = [Reply() for _ in range(count)]
    for reply in replies:
        reply.when_done(answers.append)
    numbered = list(zip(replies, range(count), strict=True))
    harness.runtime.write_all(lambda shard, now_ms: Outcome([record(1)], replies=numbered))


@pytest.mark.parametrize("is_held", [False, True])
def test_the_many_replies_of_one_decision_leave_in_turns_and_in_order(
    harness: CoordinatorRuntimeHarness, is_held: bool
) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.hold = is_held
    answers: list[Any] = []
    many_replies(harness, answers, 3 * REPLIES_A_TURN + 5)
    if is_held:
        harness.clock.turn()
        assert not answers
        harness.log.release(TP)
    for turns_done in (1, 2, 3):
        assert answers == list(range(turns_done * REPLIES_A_TURN))
        harness.clock.turn()
    assert answers == list(range(3 * REPLIES_A_TURN + 5))


def test_replies_that_wait_for_their_turn_fail_when_leadership_goes(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    answers: list[Any] = []
    many_replies(harness, answers, REPLIES_A_TURN + 2)
    harness.runtime.on_resigned(0)
    assert [each.code for each in answers[REPLIES_A_TURN:]] == [ErrorCode.NOT_COORDINATOR] * 2
    harness.clock.advance(0)
    assert len(answers) == REPLIES_A_TURN + 2


def test_an_answer_that_is_not_committed_in_time_is_given_up(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.hold = True
    answers: list[Any] = []
    harness.write(1).when_done(answers.append)
    harness.clock.advance(3_000)
    harness.write(2).when_done(answers.append)
    harness.clock.advance(2_000)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    harness.log.release(TP)
    assert answers[1:] == [("committed", 2)]


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refused_append_changes_nothing(
    harness: CoordinatorRuntimeHarness, refused: ErrorCode, answered: ErrorCode
) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.refuse = KafkaError(refused)
    assert harness.write(1) == answered
    harness.log.refuse = None
    assert harness.read() == 0


def test_what_follows_is_decided_only_after_the_replay(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    seen: list[int] = []

    def decide(shard: Counter, now_ms: int) -> Outcome:
        def then() -> Outcome:
            seen.append(len(shard.replayed))
            return Outcome([record(8)], response=len(shard.replayed))

        return Outcome([record(7)], then=then)

    assert harness.runtime.write(0, decide, lambda error: error.code) == 1
    assert seen == [1]
    assert harness.read() == 2


def test_many_records_that_need_not_be_one_batch_are_cut_to_the_topic_s_limit(
    harness: CoordinatorRuntimeHarness,
) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.bytes_max = 500
    outcome = Outcome([record(number) for number in range(50)], atomic=False)
    harness.runtime.write_all(lambda shard, now_ms: outcome)
    assert len(harness.log.batches[TP]) > 3
    assert [value for _, _, value in harness.runtime.shard(0).replayed] == list(range(50))


def test_records_of_unknown_types_are_skipped_and_transactions_end_at_their_marker(
    harness: CoordinatorRuntimeHarness,
) -> None:
    codec = GroupRecordCodec()
    key, value = codec.encode(*record(1))
    harness.log.append(TP, build_batch([(b"\x7f\x00newer", b"?", 0)]))
    harness.log.append(
        TP, build_batch([(key, value, 0)], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    )
    harness.log.append(
        TP,
        build_batch(
            [(b"\0\0\0\1", b"\0\0\0\0\0\0", 0)], producer_id=9, producer_epoch=0, transactional=True, control=True
        ),
    )
    harness.runtime.on_elected(0, 1)
    shard = harness.runtime.shard(0)
    assert shard.replayed == [(1, 9, 1)]
    assert shard.markers == [(9, True)]


def test_partitions_taken_over_at_once_share_what_loading_may_take_of_a_turn() -> None:
    harness, partitions = CoordinatorRuntimeHarness(), range(17)
    harness.load_at_most(64)
    codec = GroupRecordCodec()
    for partition in partitions:
        for first in range(0, 200, 50):
            records = [(*codec.encode(*record(first + number)), 0) for number in range(50)]
            harness.log.append((TP[0], partition), build_batch(records))
    for partition in partitions:
        harness.runtime.on_elected(partition, 1)
    loaded = [0]
    while len(harness.runtime.active_partitions()) < len(partitions):
        loaded.append(sum(len(context.shard.replayed) for context in harness.runtime._contexts.values()))
        harness.clock.turn()
    assert max(after - before for before, after in pairwise(loaded)) <= 64
    assert len(loaded) > 17 * 200 / 64


def test_timers_of_all_partitions_share_what_they_may_take_of_a_turn() -> None:
    harness, partitions = CoordinatorRuntimeHarness(), range(17)
    harness.run_at_most(5)
    for partition in partitions:
        harness.runtime.on_elected(partition, 1)
        for number in range(4):
            harness.runtime.shard(partition).timers.schedule(number, 100, lambda: Outcome([record(1)]))
    harness.clock.advance(99)
    run = [0]
    harness.clock.now_ms += 1
    while run[-1] < 17 * 4:
        harness.clock.turn()
        run.append(sum(len(harness.runtime.shard(partition).replayed) for partition in partitions))
        assert len(run) < 17 * 4, "the timers stand still"
    assert max(after - before for before, after in pairwise(run)) <= 5


def test_timers_end_their_turn_when_its_time_is_up_and_go_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = CoordinatorRuntimeHarness()
    harness.runtime.on_elected(0, 1)
    shard = harness.runtime.shard(0)
    for number in range(20):
        shard.timers.schedule(number, 100, lambda: Outcome([record(1)]))
    harness.clock.advance(99)
    monkeypatch.setattr(harness.clock, "mono_ns", iter(range(0, 1 << 60, turns.TURN_NS // 5)).__next__)
    harness.clock.now_ms += 1
    harness.clock.turn()
    assert 0 < len(shard.replayed) <= 5
    harness.clock.advance(0)
    assert len(shard.replayed) == 20


def test_a_timer_that_is_set_while_others_wait_for_their_turn_is_not_forgotten() -> None:
    harness = CoordinatorRuntimeHarness()
    harness.run_at_most(1)
    harness.runtime.on_elected(0, 1)
    timers = harness.runtime.shard(0).timers
    rang: list[str] = []

    def ring(name: str, following: str = "") -> Outcome:
        rang.append(name)
        if following:
            timers.schedule(following, 10, lambda: ring(following))
        return Outcome()

    for name in ("a", "b", "c"):
        timers.schedule(name, 100, lambda name=name: ring(name, f"after {name}"))
    harness.clock.advance(100)
    timers.schedule("d", 5, lambda: ring("d"))
    harness.clock.advance(20)
    assert rang == ["a", "b", "c", "d", "after a", "after b", "after c"]


def test_loading_ends_its_turn_when_its_time_is_up_whatever_the_number_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = CoordinatorRuntimeHarness()
    codec = GroupRecordCodec()
    harness.log.append(TP, build_batch([(*codec.encode(*record(number)), 0) for number in range(500)]))
    monkeypatch.setattr(harness.clock, "mono_ns", iter(range(0, 1 << 60, turns.TURN_NS // 5)).__next__)
    harness.runtime.on_elected(0, 1)
    # The clock advances a fifth of a turn's budget between two reads of it.
    assert len(harness.runtime._contexts[0].shard.replayed) <= 5 * turns.RECORDS_BETWEEN_CLOCKS


def test_a_record_that_cannot_be_read_or_replayed_costs_its_key_and_not_the_partition(
    harness: CoordinatorRuntimeHarness,
) -> None:
    key, _ = GroupRecordCodec().encode(*record(1))
    unreplayable, replayable = (GroupRecordCodec().encode(*record(number)) for number in (UNREPLAYABLE, 2))
    harness.log.append(TP, build_batch([(key, b"\0\x63of a newer version", 0), (*unreplayable, 0), (*replayable, 0)]))
    harness.runtime.on_elected(0, 1)
    shard = harness.runtime.shard(0)
    assert [key.group for key in shard.failed] == ["g", "g"]
    assert [value for _, _, value in shard.replayed] == [2]
    assert harness.write(3) == ("committed", 3)


def test_a_record_that_was_appended_and_cannot_be_replayed_has_the_shard_loaded_again(
    harness: CoordinatorRuntimeHarness,
) -> None:
    harness.runtime.on_elected(0, 1)
    harness.write(1)
    with pytest.raises(ValueError, match="no state follows"):
        harness.write(UNREPLAYABLE)
    assert harness.read() == ErrorCode.NOT_COORDINATOR
    harness.clock.advance(0)
    shard = harness.runtime.shard(0)
    assert [value for _, _, value in shard.replayed] == [1]
    assert [key.group for key in shard.failed] == ["g"]
    assert harness.write(2) == ("committed", 2)


def test_what_another_one_wrote_into_the_log_counts_after_the_shard_is_loaded_again(
    harness: CoordinatorRuntimeHarness,
) -> None:
    harness.runtime.on_elected(0, 1)
    harness.write(1)
    harness.log.append(TP, build_batch([(*GroupRecordCodec().encode(*record(5)), 0)]))
    harness.runtime.reload(0)
    harness.runtime.reload(1)  # the partition has another leader
    assert [value for _, _, value in harness.runtime.shard(0).replayed] == [1, 5]
    assert harness.write(2) == ("committed", 2)


def test_a_log_that_cannot_be_read_fails_the_shard_until_the_next_election(harness: CoordinatorRuntimeHarness) -> None:
    harness.log.append(TP, build_batch([(b"\0\1cut", b"", 0)]))
    harness.runtime.on_elected(0, 1)
    assert harness.read() == ErrorCode.NOT_COORDINATOR
    harness.log.batches.clear()
    harness.runtime.on_elected(0, 2)
    assert harness.read() == 0


class TestTimers:
    def setup_method(self) -> None:
        self.harness = CoordinatorRuntimeHarness()
        self.harness.runtime.on_elected(0, 1)
        self.timers = self.harness.runtime.shard(0).timers
        self.rang: list[tuple[int, str]] = []

    def ring(self, name: str) -> Any:
        def rang() -> Outcome:
            self.rang.append((self.harness.clock.now_ms, name))
            return Outcome()

        return rang

    def test_each_rings_once_at_its_time(self) -> None:
        self.timers.schedule("b", 20, self.ring("b"))
        self.timers.schedule("a", 10, self.ring("a"))
        self.harness.clock.advance(100)
        assert self.rang == [(10, "a"), (20, "b")]

    def test_a_postponed_one_rings_at_the_new_time_only(self) -> None:
        self.timers.schedule("a", 10, self.ring("a"))
        self.harness.clock.advance(9)
        assert self.timers.postpone("a", 10)
        self.harness.clock.advance(100)
        assert self.rang == [(19, "a")]
        assert not self.timers.postpone("a", 1)

    def test_one_moved_earlier_rings_earlier(self) -> None:
        self.timers.schedule("a", 1_000, self.ring("late"))
        self.timers.schedule("a", 5, self.ring("early"))
        self.harness.clock.advance(2_000)
        assert self.rang == [(5, "early")]

    def test_a_cancelled_one_is_silent(self) -> None:
        self.timers.schedule("a", 10, self.ring("a"))
        self.timers.cancel("a")
        self.harness.clock.advance(100)
        assert self.rang == []

    def test_none_rings_after_leadership_is_lost(self) -> None:
        self.timers.schedule("a", 10, self.ring("a"))
        self.harness.runtime.on_resigned(0)
        self.harness.clock.advance(100)
        assert self.rang == []

    def test_a_callback_may_schedule_itself_again(self) -> None:
        def again() -> Outcome:
            self.rang.append((self.harness.clock.now_ms, "again"))
            self.timers.schedule("a", 10, again)
            return Outcome()

        self.timers.schedule("a", 10, again)
        self.harness.clock.advance(35)
        assert [at_ms for at_ms, _ in self.rang] == [10, 20, 30]

    def test_cancelled_timers_do_not_pile_up(self) -> None:
        for number in range(10_000):
            self.timers.schedule(number, 1_000_000, self.ring("x"))
            self.timers.cancel(number)
        assert len(self.timers._heap) < 200


def test_one_timer_s_failed_write_does_not_stop_the_others(harness: CoordinatorRuntimeHarness) -> None:
    harness.runtime.on_elected(0, 1)
    shard = harness.runtime.shard(0)
    rang: list[str] = []
    shard.timers.schedule("a", 10, lambda: Outcome([record(1)]))
    shard.timers.schedule("b", 20, lambda: rang.append("b") or Outcome())
    harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    harness.clock.advance(30)
    assert rang == ["b"]


def test_one_timer_s_mistake_does_not_stop_the_others(
    harness: CoordinatorRuntimeHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.runtime.on_elected(0, 1)
    timers = harness.runtime.shard(0).timers
    rang: list[str] = []

    def fails() -> Outcome:
        raise RuntimeError("a mistake")

    timers.schedule("a", 10, fails)
    timers.schedule("b", 10, lambda: rang.append("b") or Outcome())
    timers.schedule("c", 20, lambda: rang.append("c") or Outcome())
    harness.clock.advance(30)
    assert rang == ["b", "c"]
    assert [entry.levelname for entry in caplog.records] == ["ERROR"]


def test_one_receiver_s_mistake_does_not_keep_the_others_waiting(
    harness: CoordinatorRuntimeHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.runtime.on_elected(0, 1)
    harness.log.hold = True
    answers: list[Any] = []

    def fails(answer: Any) -> None:
        raise RuntimeError("a mistake")

    harness.write(1).when_done(fails)
    harness.write(2).when_done(answers.append)
    harness.runtime.write_all(lambda shard, now_ms: Outcome([record(3)], committed=lambda: fails(None)))
    harness.runtime.write_all(lambda shard, now_ms: Outcome([record(4)], committed=lambda: answers.append("after")))
    harness.log.release(TP)
    assert answers == [("committed", 2), "after"]
    assert [entry.levelname for entry in caplog.records] == ["ERROR", "ERROR"]


def test_a_watermark_that_moves_inside_of_an_append_decides_nothing_before_the_replay(
    harness: CoordinatorRuntimeHarness,
) -> None:
    """A replica that may join holds the high watermark back for 30 s. The append after that advances it by itself."""
    harness.runtime.on_elected(0, 1)
    harness.log.hold = True
    answers: list[Any] = []
    harness.write(1).when_done(lambda answer: answers.append((answer, harness.write(3))))
    harness.runtime.write_all(lambda shard, now_ms: Outcome(committed=lambda: answers.append(harness.write(4))))
    harness.log.hold = False
    append = harness.log.append

    def append_and_commit(*args: Any) -> int:
        offset = append(*args)
        harness.log.append = append
        harness.log.release(TP)
        return offset

    harness.log.append = append_and_commit
    assert harness.write(2) == ("committed", 2)
    assert answers == []
    harness.clock.advance(0)
    assert answers == [(("committed", 1), ("committed", 3)), ("committed", 4)]
    assert [value for _, _, value in harness.runtime.shard(0).replayed] == [1, 2, 3, 4]
