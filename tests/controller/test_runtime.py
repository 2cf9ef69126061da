"""The active controller on a log that commits when the test says so: when each request is answered, and what a lost leadership
undoes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from ottla.controller.decisions.control_state import ControlSettings
from ottla.controller.decisions.heartbeats import Heartbeats
from ottla.controller.decisions.index import INDEX_UNITS, ClusterIndex
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN, left_by_broker
from ottla.controller.decisions.outcome import USER_RECORDS_MAX, Outcome
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.loader import UNITS_A_TURN, MetadataLoader
from ottla.controller.periodic import ScheduledTasks
from ottla.controller.runtime import Controller
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    BeginTransactionRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.protocol.messages.shared_structs import Feature
from ottla.protocol.work import do_now
from ottla.server.network.context import Reply
from tests.controller.harness import CLUSTER_ID
from tests.manual_clock import ManualClock

GRACE_MS = ControlSettings(1, CLUSTER_ID).lost_connection_grace_ms


class Batch:
    def __init__(self, base_offset: int, values: Sequence[bytes], epoch: int, is_control: bool = False) -> None:
        self.is_control = is_control
        self.base_offset = base_offset
        self.last_offset = base_offset + len(values) - 1
        self.epoch = epoch
        self.records = values


class HandLog:
    """A log of batches in memory, which `commit` commits."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.committed = 0
        self.failing = False
        self.before_append: Callable[[], None] = lambda: None
        self.on_append: Callable[[], None] = lambda: None
        self.resigned: list[int] = []

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append_atomic(self, records: list[bytes], *, epoch: int) -> int:
        if self.failing:
            raise OSError("no space left")
        self.before_append()
        self.batches.append(Batch(self.log_end_offset, records, epoch))
        last_offset = self.batches[-1].last_offset
        self.on_append()
        return last_offset

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)


class Quorum:
    """One controller and its log."""

    def __init__(self, log: HandLog | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.log = HandLog() if log is None else log
        self.loader = MetadataLoader()
        control = ControlSettings(node_id=1, cluster_id=CLUSTER_ID, **settings)
        self.controller = Controller(1, self.clock, Random(1), self.log, self.loader, control)
        self.scheduled_tasks = ScheduledTasks(self.controller)

    def commit(self, count: int | None = None) -> None:
        """Deliver the next batches, all by default."""
        end = len(self.log.batches) if count is None else self.log.committed + count
        batches = self.log.batches[self.log.committed : end]
        self.log.committed = end
        if batches:
            do_now(self.loader.handle_commit(batches))
            self.controller.committed()

    def elect(self, epoch: int) -> None:
        """Make this controller the leader: everything before its epoch and the first record of the epoch are committed."""
        self.log.batches.append(Batch(self.log.log_end_offset, [b"leader"], epoch, is_control=True))
        self.commit()
        self.controller.leader_changed(1, epoch)

    def write(self, *records: Any, answer: str = "done") -> Reply:
        return self.controller.write(lambda state: Outcome(list(records), answer))


def active(**settings: int) -> Quorum:
    quorum = Quorum(**settings)
    quorum.elect(1)
    quorum.commit()
    return quorum


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16))


def refusal(reply: Reply) -> str:
    error = reply.take()
    assert isinstance(error, KafkaError)
    return error.code.name


def test_a_standby_refuses_and_says_who_leads() -> None:
    quorum = Quorum()
    with pytest.raises(KafkaError, match="no controller appears to be active"):
        quorum.write(topic("a"))
    quorum.controller.leader_changed(3, 5)
    with pytest.raises(KafkaError, match="the active controller appears to be node 3") as refused:
        quorum.write(topic("a"))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


def test_an_answer_waits_for_its_commit_and_a_read_for_what_it_could_have_seen() -> None:
    quorum = active()
    first, second = quorum.write(topic("a")), quorum.write(topic("b"))
    read = quorum.write(answer="read")
    assert not first.done and not second.done and not read.done
    assert "b" in quorum.controller.state.image.topics, "decisions go on from what is not committed yet"
    assert "a" not in quorum.loader.image.topics
    quorum.commit(1)
    assert first.done and not second.done and not read.done
    quorum.commit()
    assert second.done and read.take() == "read"
    assert quorum.write(answer="at once").take() == "at once"


def test_publishers_know_before_the_client_does() -> None:
    quorum = active()
    order = []

    class Publisher:
        def on_metadata_update(self, delta: Any, image: Any) -> None:
            order.append("published")

    quorum.loader.add_publisher(Publisher())
    order.clear()
    reply = quorum.write(topic("a"))

    class Reply:
        def completed(self, response: Any) -> None:
            order.append("answered")

    reply.attach(Reply())
    quorum.commit()
    assert order == ["published", "answered"]


def test_a_lost_leadership_drops_what_was_not_committed() -> None:
    quorum = active()
    kept, lost = quorum.write(topic("kept")), quorum.write(topic("lost"))
    quorum.commit(1)
    quorum.controller.leader_changed(2, 2)
    assert kept.take() == "done"
    assert refusal(lost) == "NOT_CONTROLLER"
    assert set(quorum.controller.image.topics.names) == {"kept"}
    # Another leader appended another record at that offset.
    del quorum.log.batches[quorum.log.committed :]
    quorum.log.append_atomic(encode_metadata([topic("theirs")], 30), epoch=2)
    quorum.commit()
    assert set(quorum.controller.image.topics.names) == {"kept", "theirs"}
    quorum.elect(3)
    quorum.write(topic("ours"))
    assert set(quorum.controller.state.image.topics.names) == {"kept", "theirs", "ours"}


def test_a_leadership_lost_in_the_very_append_leaves_nothing_of_it_behind() -> None:
    """When the first record is appended, the quorum looks at its clock and resigns, as after a long pause."""
    quorum = active()
    quorum.log.on_append = lambda: quorum.controller.leader_changed(-1, 2)
    with pytest.raises(KafkaError) as refused:
        quorum.write(topic("lost"))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not quorum.controller.is_active and "lost" not in quorum.controller.image.topics
    # The next leader never had the record, and appends its own at the same offset.
    quorum.log.on_append = lambda: None
    del quorum.log.batches[quorum.log.committed :]
    quorum.log.append_atomic(encode_metadata([topic("theirs")], 30), epoch=2)
    quorum.commit()
    assert set(quorum.loader.image.topics.names) == {"theirs"}


def test_what_cannot_be_appended_changes_nothing() -> None:
    quorum = active()
    quorum.log.failing = True
    with pytest.raises(KafkaError) as refused:
        quorum.write(topic("a"))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert "a" not in quorum.controller.state.image.topics
    quorum.log.failing = False
    quorum.write(topic("a"))
    quorum.commit()
    assert "a" in quorum.loader.image.topics


def test_a_batch_that_is_too_large_is_refused_by_its_name_and_the_controller_stays_active() -> None:
    """Brokers that got NOT_CONTROLLER would look for another controller, and repeat the request for 30 s."""
    quorum = active()

    def too_large() -> None:
        raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)

    quorum.log.before_append = too_large
    with pytest.raises(KafkaError) as refused:
        quorum.write(topic("a"))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert quorum.controller.is_active and "a" not in quorum.controller.state.image.topics


def test_a_decision_of_which_a_full_disk_refuses_the_rest_is_left_to_the_next_term() -> None:
    """Then a broker may be fenced and still lead partitions; the next active controller looks for the rest of the work."""
    quorum = active()

    def full() -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    quorum.log.on_append = lambda: setattr(quorum.log, "before_append", full)
    with pytest.raises(KafkaError) as refused:
        quorum.write(*(topic(f"t{number}") for number in range(USER_RECORDS_MAX + 1)))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert quorum.log.resigned == [1]
    with pytest.raises(KafkaError):
        quorum.write(topic("one"))
    assert quorum.log.resigned == [1], "what is refused whole is no reason to resign"


def test_a_controller_without_room_for_what_a_cluster_begins_with_resigns_to_try_again() -> None:
    log = HandLog()

    def full() -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    log.before_append = full
    Quorum(log).elect(1)
    assert log.resigned == [1]


def test_a_controller_that_cannot_replay_what_it_has_appended_resigns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state would lack records of the log; the next term builds its state from the log."""
    quorum = active()

    def fail(self: object, delta: object) -> None:
        raise KeyError("by mistake")

    monkeypatch.setattr(ClusterIndex, "update", fail)
    with pytest.raises(KafkaError) as refused:
        quorum.write(topic("a"))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert quorum.log.resigned == [1]


@pytest.mark.parametrize("failure", [KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE), ValueError("by mistake")])
def test_a_periodic_decision_that_failed_is_tried_again(failure: Exception) -> None:
    quorum = active()
    asked = []

    def fail() -> None:
        asked.append(quorum.clock.now_ms)
        raise type(failure)(*failure.args)  # a new exception each time, so that its traceback does not grow

    write = quorum.controller.write
    quorum.controller.write = lambda decide: fail()
    quorum.clock.advance_to(quorum.controller.settings.leader_imbalance_check_interval_ms + 5_000)
    assert len(asked) > 3
    assert {"no-op", "rebalance", "unclean"} <= set(quorum.scheduled_tasks._timers)
    quorum.controller.write = write
    quorum.clock.advance(2_000)
    assert quorum.controller.is_active


def test_an_error_of_a_decision_is_the_callers_and_leaves_no_trace() -> None:
    quorum = active()

    def decide(state: Any) -> Outcome[None]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

    with pytest.raises(KafkaError, match="no"):
        quorum.controller.write(decide)
    assert quorum.controller.is_active


def test_an_empty_log_is_begun_and_another_is_not_begun_twice() -> None:
    quorum = active()
    assert quorum.loader.image.features.metadata_version == 33
    end = quorum.log.log_end_offset
    quorum.controller.leader_changed(-1, 1)
    quorum.elect(2)
    assert quorum.log.log_end_offset == end + 1, "the leader's own record"


def test_a_transaction_that_a_former_leader_left_open_is_aborted() -> None:
    quorum = active()
    quorum.write(topic("before"))
    quorum.write(BeginTransactionRecord(name="x"), topic("half"))
    quorum.commit()
    quorum.controller.leader_changed(2, 2)
    assert quorum.loader.in_transaction
    quorum.elect(3)
    quorum.commit()
    assert not quorum.loader.in_transaction
    assert set(quorum.loader.image.topics.names) == {"before"}


def test_more_records_than_a_batch_may_hold_are_several_batches() -> None:
    quorum = active()
    before = len(quorum.log.batches)
    quorum.write(*[NoOpRecord() for _ in range(25_000)])
    sizes = [len(batch.records) for batch in quorum.log.batches[before:]]
    assert sizes == [10_000, 10_000, 5_000]


def register(quorum: Quorum, broker_id: int) -> None:
    features = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
    quorum.write(RegisterBrokerRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=False, features=features))
    quorum.commit()


def write_partitions(quorum: Quorum, count: int, replicas: list[int]) -> None:
    """Write topic `a` with this many partitions, 1,000 in a batch; broker 1 leads them, and all replicas are in sync."""
    quorum.write(topic("a"))
    for start in range(0, count, 1_000):
        quorum.write(
            *[
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic("a").topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(start, min(start + 1_000, count))
            ]
        )


def fenced(quorum: Quorum) -> list[int]:
    return sorted(each.id for each in quorum.controller.image.cluster.brokers.values() if each.fenced)


def test_silent_brokers_are_fenced_when_their_sessions_end() -> None:
    quorum = active()
    register(quorum, 1)
    quorum.clock.advance_to(4_000)
    register(quorum, 2)
    quorum.clock.advance_to(9_000)
    assert fenced(quorum) == []
    quorum.clock.advance_to(9_001)
    assert fenced(quorum) == [1]
    quorum.clock.advance_to(13_001)
    assert fenced(quorum) == [1, 2]


def test_a_broker_of_many_partitions_is_fenced_in_many_small_batches() -> None:
    """Before the fix decisions about 10,000 partitions in one turn held the event loop for most of a second."""
    quorum = active()
    for broker_id in (1, 2):
        register(quorum, broker_id)
    many = 5 * PARTITIONS_PER_TURN
    write_partitions(quorum, many, [1, 2])
    quorum.commit()
    before = len(quorum.log.batches)
    quorum.scheduled_tasks.connection_lost(1)
    quorum.clock.advance(GRACE_MS + 100)
    assert fenced(quorum) == [1]
    sizes = [len(batch.records) for batch in quorum.log.batches[before:]]
    assert max(sizes) <= PARTITIONS_PER_TURN + 1 and sum(sizes) == many + 1
    leaders = {p.leader for p in quorum.controller.state.image.topics.by_name("a").partitions.values()}
    assert leaders == {2}


def test_a_broker_whose_connection_breaks_is_fenced_after_the_grace() -> None:
    quorum = active()
    register(quorum, 1)
    quorum.clock.advance_to(1_000)
    quorum.scheduled_tasks.connection_lost(1)
    quorum.clock.advance_to(1_000 + GRACE_MS)
    assert fenced(quorum) == []
    quorum.clock.advance_to(1_001 + GRACE_MS)
    assert fenced(quorum) == [1]


def test_a_new_controller_gives_brokers_without_a_heartbeat_a_whole_session() -> None:
    quorum = active()
    register(quorum, 1)
    quorum.clock.advance_to(8_000)
    quorum.controller.leader_changed(2, 2)
    quorum.clock.advance_to(20_000)
    assert fenced(quorum) == [], "a standby fences no broker"
    quorum.elect(3)
    quorum.clock.advance_to(29_000)
    assert fenced(quorum) == []
    quorum.clock.advance_to(29_001)
    assert fenced(quorum) == [1]


def test_the_broker_of_a_controller_that_lost_the_quorum_is_thought_dead_unless_it_speaks() -> None:
    quorum = active()
    register(quorum, 1)
    register(quorum, 2)
    quorum.commit()
    quorum.controller.leader_changed(2, 2)
    quorum.controller.leader_changed(-1, 3)
    quorum.elect(3)
    quorum.clock.advance_to(GRACE_MS)
    assert fenced(quorum) == []
    quorum.clock.advance_to(GRACE_MS + 1)
    assert fenced(quorum) == [2]


@pytest.mark.parametrize(("grace_ms", "lost"), [(GRACE_MS, [2]), (3_000, [])])
def test_a_broker_of_apache_kafka_outlives_what_breaks_its_connection_if_the_grace_has_time_for_a_heartbeat(
    grace_ms: int, lost: list[int]
) -> None:
    """The broker sends the next heartbeat after broker.heartbeat.interval.ms, also on a new connection."""
    interval_ms = 2_000

    def beats(quorum: Quorum, count: int) -> None:
        for _ in range(count):
            quorum.clock.advance(interval_ms)
            seen.update(fenced(quorum))
            quorum.controller.heartbeats.touch(2, fenced=False, metadata_offset=0, now_ms=quorum.clock.mono_ms())

    seen: set[int] = set()
    quorum = active(lost_connection_grace_ms=grace_ms)
    register(quorum, 2)
    beats(quorum, 1)
    quorum.scheduled_tasks.connection_lost(2)
    beats(quorum, 6)
    assert sorted(seen) == lost

    seen.clear()
    failover = active(lost_connection_grace_ms=grace_ms)
    register(failover, 2)
    failover.controller.leader_changed(2, 2)
    failover.elect(3)
    beats(failover, 6)
    assert sorted(seen) == lost


def test_an_idle_log_gets_a_no_op_record_and_a_busy_one_does_not() -> None:
    quorum = active()
    before = len(quorum.log.batches)
    quorum.clock.advance_to(499)
    assert len(quorum.log.batches) == before
    quorum.clock.advance_to(1_600)
    assert len(quorum.log.batches) == before + 3
    for now_ms in range(1_700, 3_000, 100):
        quorum.clock.advance_to(now_ms)
        quorum.write(topic(str(now_ms)))
    assert len(quorum.log.batches) == before + 3 + 13


def grown(brokers: int, partitions: int) -> Quorum:
    """Return a standby with this many brokers and partitions; the first broker leads all of them."""
    quorum = active()
    for broker_id in range(1, brokers + 1):
        register(quorum, broker_id)
    write_partitions(quorum, partitions, list(range(1, brokers + 1)))
    quorum.commit()
    quorum.controller.leader_changed(2, 2)
    return quorum


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of partitions that were put into an index, for each turn that began with `append(0)`."""
    counts = [0]
    add = ClusterIndex._add

    def counted(index: ClusterIndex, key: Any, partition: Any) -> None:
        counts[-1] += 1
        add(index, key, partition)

    monkeypatch.setattr(ClusterIndex, "_add", counted)
    return counts


def test_an_elected_controller_indexes_a_bounded_number_of_partitions_in_a_turn_and_is_active_after_the_last(
    indexed: list[int],
) -> None:
    """Before the fix 200,000 partitions in one turn held the loop for most of a second, and with it the quorum, which runs on
    the same loop.
    """
    per_turn = UNITS_A_TURN // INDEX_UNITS
    many = 3 * per_turn + 1
    quorum = grown(2, many)
    quorum.clock.advance(1)
    indexed[:] = [0]
    quorum.elect(3)
    while not quorum.controller.is_active:
        with pytest.raises(KafkaError, match="not the active controller"):
            quorum.write(topic("b"))
        (timer,) = quorum.clock.armed
        indexed.append(0)
        quorum.clock.call(timer)
    assert max(indexed) <= per_turn and len(indexed) == 4 and sum(indexed) == many
    assert len(quorum.controller.state.index.led_by(1)) == many
    quorum.write(topic("b"))
    quorum.commit()
    assert "b" in quorum.loader.image.topics
    index = quorum.controller.state.index
    quorum.controller.leader_changed(2, 4)
    assert index.led_by(1), "it is freed in later turns"
    quorum.clock.advance(1)
    assert not index.led_by(1)


def test_a_leadership_that_is_lost_before_the_index_is_whole_never_begins(indexed: list[int]) -> None:
    quorum = grown(2, 2 * UNITS_A_TURN // INDEX_UNITS)
    quorum.elect(3)
    quorum.controller.leader_changed(2, 4)
    indexed.append(0)
    quorum.clock.advance(1_000)
    assert not quorum.controller.is_active and indexed[-1] == 0
    quorum.elect(5)
    quorum.clock.advance(1)
    assert quorum.controller.is_active and quorum.controller.epoch == 5


def test_a_controller_that_cannot_become_active_resigns(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = grown(2, 10)

    def fail(*_: object) -> None:
        raise KeyError("by mistake")

    monkeypatch.setattr(Heartbeats, "assume", fail)
    quorum.elect(3)
    assert quorum.log.resigned == [3]


def test_the_next_term_looks_at_what_one_broker_left_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = grown(3, 5)
    looked_at: list[tuple[int, int]] = []

    def left(state: Any, broker_id: int) -> list[Any]:
        looked_at.append((turn, broker_id))
        return left_by_broker(state, broker_id)

    monkeypatch.setattr("ottla.controller.periodic.left_by_broker", left)
    quorum.clock.advance(1)
    turn = 0
    quorum.elect(3)
    while due := [timer for timer in quorum.clock.armed if timer.at_ms <= quorum.clock.now_ms]:
        turn += 1
        quorum.clock.call(due[0])
    assert looked_at == [(1, 1), (2, 2), (3, 3)]
