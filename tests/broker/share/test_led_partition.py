"""One share partition at its leader: loading, delayed fetches, writes that fail, locks that time out, and the end of its leadership."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.broker.share.counts import ShareCounts
from ottla.broker.share.fetched import Limits
from ottla.broker.share.fetching import Results, ShareFetching
from ottla.broker.share.group_settings import ShareGroupSettings
from ottla.broker.share.in_flight import RecordState, Run
from ottla.broker.share.led_partition import LedSharePartition, Phase
from ottla.broker.share.remote_records import TieredReads
from ottla.broker.share.share_partition import Acknowledgement, ShareSettings
from ottla.broker.share.share_session import TopicIdPartition
from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import end_txn_batch
from ottla.server.clock import TICK_MS, TimerWheel
from ottla.server.network.context import Answer, Reply
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.retention import delete_records
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes
from tests.broker.share.memory_persister import MemoryPersister
from tests.manual_clock import ManualClock

LOCK_MS = 1_000
WAIT_MS = 500
ACCEPT, RELEASE, REJECT = 1, 2, 3
AT = TopicIdPartition(TOPIC_ID, 0)


class Broker:
    """A `Leadership` of one share partition over a real log."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.wheel = TimerWheel(self.clock)
        self.wakeups = Wakeups(self.clock)
        self.persister = MemoryPersister(self.clock)
        self.counts = ShareCounts()
        #: The requested dead letters, and the functions to call when they are written.
        self.burials: list[tuple[list[Run], Callable[[], None]]] = []
        self.dead_letters = self
        self.remote_reads: TieredReads | None = None
        self.has_dead_letters = False
        self.over: list[LedSharePartition] = []
        self.read_committed = False
        self.mistake: Exception | None = None
        self.partition = made_partition(1, "t", 0, TOPIC_ID, self.wakeups, Flushes(), 30_000)
        self.log = open_log(
            LogSpec(OsFiles(), Mappings(), str(folder / "t-0"), "t", 0, TOPIC_ID, LogConfig()), clean=True
        )
        self.lead(1)
        self.led = self.load()

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        if self.mistake is not None:
            raise self.mistake
        settings = ShareSettings(lock_duration_ms=LOCK_MS, dead_letters=self.has_dead_letters)
        return ShareGroupSettings(settings, self.read_committed, "earliest")

    def write(
        self,
        group_id: str,
        partition: Partition,
        runs: Sequence[Run],
        settings: Callable[[], ShareGroupSettings],
        done: Callable[[], None],
    ) -> None:
        self.burials.append((list(runs), done))

    def ended(self, led: LedSharePartition) -> None:
        self.over.append(led)

    def lead(self, epoch: int) -> None:
        self.partition.become_leader(self.log, epoch, epoch, [1], [1], 0)

    def load(self) -> LedSharePartition:
        led = LedSharePartition(SharePartitionKey("g", TOPIC_ID, 0), self.partition, self)
        led.load(lambda log, policy, found: found(log.log_start_offset))
        return led

    def produce(self, *values: bytes) -> None:
        self.partition.append(memoryview(batch(values)), -1, NOW_MS)
        self.clock.advance(0)

    def fetch(
        self, member: str, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20, others: int = 0
    ) -> Answer[Results]:
        """Fetch like a session that also has `others`, a number of partitions without records."""
        limits = Limits(wait_ms, min_bytes, max_bytes, 500, 500, strict=False)
        answered = self.counts.fetch_begun("g", self.clock)
        led = {AT: self.led}
        for index in range(1, others + 1):
            other = made_partition(1, "t", index, TOPIC_ID, self.wakeups, Flushes(), 30_000)
            led[TopicIdPartition(TOPIC_ID, index)] = LedSharePartition(
                SharePartitionKey("g", TOPIC_ID, index), other, self
            )
            other.become_leader(self.log, 1, 1, [1], [1], 0)
        return ShareFetching(member, led, {}, limits, self.wheel, answered).start()

    def acknowledge(self, member: str, first: int, last: int, kind: int) -> list[KafkaError | None]:
        """Return the outcome in a list, as soon as there is one."""
        outcome: list[KafkaError | None] = []
        self.led.acknowledge(member, [Acknowledgement(first, last, [kind])], outcome.append)
        return outcome


def acquired(answer: Answer[Results]) -> list[tuple[int, int, int]]:
    results = answer.take() if isinstance(answer, Reply) else answer
    assert not isinstance(results, KafkaError)
    found = results[AT].acquired_records if AT in results else []
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in found]


def error_of(answer: Answer[Results]) -> int:
    results = answer.take() if isinstance(answer, Reply) else answer
    assert not isinstance(results, KafkaError)
    return results[AT].error_code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.log.close()


def test_a_fetch_waits_for_the_state_and_then_for_records(broker: Broker) -> None:
    answer = broker.fetch("a", WAIT_MS)
    assert isinstance(answer, Reply) and broker.led.phase == Phase.LOADING
    with pytest.raises(KafkaError):
        broker.acknowledge("a", 0, 0, ACCEPT)
    broker.clock.advance(0)
    assert broker.led.phase == Phase.ACTIVE and not answer.done
    broker.produce(b"x")
    assert acquired(answer) == [(0, 0, 1)]


def test_a_fetch_is_answered_without_records_when_its_wait_is_over(broker: Broker) -> None:
    answer = broker.fetch("a", WAIT_MS)
    assert isinstance(answer, Reply)
    broker.clock.advance(WAIT_MS + TICK_MS)
    assert answer.done and acquired(answer) == []
    assert not broker.led.waiting


def test_a_mistake_when_a_lock_times_out_is_logged_with_the_share_partition(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    assert acquired(broker.fetch("a")) == [(0, 0, 1)]
    broker.mistake = RuntimeError("a mistake")
    broker.clock.advance(LOCK_MS + TICK_MS)
    assert "LedSharePartition.expire of g:t-0" in caplog.text


@pytest.mark.parametrize("others", [0, 2])
def test_a_minimum_as_large_as_the_limit_is_reached_where_batches_do_not_end_at_it(broker: Broker, others: int) -> None:
    size = len(batch([b"a"]))
    for _ in range(3):
        broker.produce(b"a")
    limit = 2 * size + size // 2
    answer = broker.fetch("a", WAIT_MS, min_bytes=limit, max_bytes=limit, others=others)
    assert not isinstance(answer, Reply)
    assert acquired(answer) == [(0, 1, 1)]


def test_fewer_bytes_than_min_bytes_are_acquired_only_at_the_end_of_the_wait(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    answer = broker.fetch("a", WAIT_MS, min_bytes=1000)
    assert isinstance(answer, Reply) and not answer.done and broker.led.state.in_flight.size == 0
    broker.clock.advance(WAIT_MS + TICK_MS)
    assert acquired(answer) == [(0, 0, 1)]


def test_waiting_fetches_are_served_in_the_order_in_which_they_came(broker: Broker) -> None:
    broker.clock.advance(0)
    first, second = broker.fetch("a", WAIT_MS), broker.fetch("b", WAIT_MS)
    assert isinstance(first, Reply) and isinstance(second, Reply)
    broker.produce(b"x")
    assert first.done and not second.done
    broker.produce(b"y")
    assert acquired(second) == [(1, 1, 1)]


def test_a_fetch_whose_connection_is_gone_acquires_nothing(broker: Broker) -> None:
    broker.clock.advance(0)
    answer = broker.fetch("a", WAIT_MS)
    assert isinstance(answer, Reply)
    answer.cancel()
    broker.produce(b"x")
    assert broker.led.state.in_flight.size == 0 and not broker.led.waiting


def test_an_acknowledgement_is_answered_once_it_is_written(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    broker.persister.is_held = True
    outcome = broker.acknowledge("a", 0, 0, ACCEPT)
    assert outcome == [] and broker.led.state.start_offset == 0
    broker.persister.let_go()
    assert outcome == [None] and broker.led.state.start_offset == 1
    [update] = broker.persister.updates
    assert update.batches == [(0, 0, RecordState.ACKNOWLEDGED, 1)]
    assert (update.leader_epoch, update.start_offset, update.delivery_complete_count) == (1, 0, 1)


def test_a_released_record_wakes_a_waiting_fetch_after_the_write(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    answer = broker.fetch("b", WAIT_MS)
    assert isinstance(answer, Reply)
    broker.persister.is_held = True
    broker.acknowledge("a", 0, 0, RELEASE)
    broker.clock.advance(0)
    assert not answer.done
    broker.persister.let_go()
    broker.clock.advance(0)
    assert acquired(answer) == [(0, 0, 2)]


def test_locks_that_time_out_are_written_and_given_to_the_next(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    broker.clock.advance(LOCK_MS // 2)
    broker.produce(b"y")
    broker.fetch("a")
    answer = broker.fetch("b", 10 * LOCK_MS)
    assert isinstance(answer, Reply)
    broker.clock.advance(LOCK_MS // 2 + TICK_MS)
    assert [update.batches for update in broker.persister.updates] == [[(0, 0, RecordState.AVAILABLE, 1)]]
    assert acquired(answer) == [(0, 0, 2)]
    broker.clock.advance(LOCK_MS // 2 + TICK_MS)
    assert broker.persister.updates[-1].batches == [(1, 1, RecordState.AVAILABLE, 1)]


def test_a_write_that_fails_is_the_clients_error_and_the_member_keeps_the_record(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    broker.persister.error = KafkaError(ErrorCode.NOT_COORDINATOR)
    outcome = broker.acknowledge("a", 0, 0, ACCEPT)
    broker.clock.advance(0)
    assert [error.code for error in outcome if error] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    broker.persister.error = None
    outcome = broker.acknowledge("a", 0, 0, ACCEPT)
    broker.clock.advance(0)
    assert outcome == [None]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_leader_that_the_share_coordinator_refuses_is_over(broker: Broker, code: ErrorCode) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    waiting = broker.fetch("b", WAIT_MS)
    broker.persister.error = KafkaError(code)
    outcome = broker.acknowledge("a", 0, 0, ACCEPT)
    broker.clock.advance(0)
    assert [error.code for error in outcome if error] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert broker.over == [broker.led] and error_of(waiting) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_state_that_cannot_be_read_is_the_error_of_the_waiting_fetch(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.persister.error = KafkaError(ErrorCode.INVALID_REQUEST)
    broker.led = broker.load()
    answer = broker.fetch("a", WAIT_MS)
    broker.clock.advance(0)
    assert error_of(answer) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.over == [broker.led]


def test_a_follower_answers_waiting_fetches_and_acknowledgements_that_it_leads_no_more(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    waiting = broker.fetch("b", WAIT_MS)
    broker.partition.become_follower(broker.log, 2, 2, 2, [1, 2], [1, 2])
    broker.clock.advance(0)
    assert error_of(waiting) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as caught:
        broker.acknowledge("a", 0, 0, ACCEPT)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.clock.advance(LOCK_MS + TICK_MS)
    assert broker.persister.updates == [], "its locks are over, too"


@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.INVALID_REQUEST])
def test_an_acknowledgement_that_is_being_written_when_the_leader_stops_is_answered_that_it_leads_no_more(
    broker: Broker, code: ErrorCode
) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    broker.persister.is_held = True
    outcome = broker.acknowledge("a", 0, 0, ACCEPT)
    broker.led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    broker.persister.error = KafkaError(code)
    broker.persister.let_go()
    assert [error.code for error in outcome if error] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_an_acknowledgement_is_repeated_while_the_share_coordinator_cannot_be_reached(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x")
    broker.fetch("a")
    broker.persister.error = KafkaError(ErrorCode.NETWORK_EXCEPTION)
    outcome = broker.acknowledge("a", 0, 0, ACCEPT)
    broker.clock.advance(0)
    assert [error.code.retriable for error in outcome if error] == [True]


def test_a_new_leader_goes_on_with_what_was_written(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x", b"y", b"z")
    broker.fetch("a")
    broker.acknowledge("a", 0, 0, ACCEPT)
    broker.acknowledge("a", 1, 1, RELEASE)
    broker.clock.advance(0)
    broker.lead(2)
    assert error_of(broker.fetch("a")) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.led = broker.load()
    broker.clock.advance(0)
    assert acquired(broker.fetch("b")) == [(1, 1, 2), (2, 2, 1)]


def test_records_that_the_log_has_deleted_are_delivered_no_more(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.produce(b"x", b"y")
    broker.fetch("a")
    broker.produce(b"z")
    delete_records(broker.log, 2)
    assert acquired(broker.fetch("b")) == [(2, 2, 1)]
    assert broker.acknowledge("a", 0, 1, ACCEPT) == [None]


def test_records_of_an_aborted_transaction_are_left_out_if_the_group_reads_committed_ones(broker: Broker) -> None:
    broker.clock.advance(0)
    broker.read_committed = True
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    broker.log.producers.requires_verification = False
    broker.partition.append(memoryview(batch([b"x", b"y"], **options)), -1, NOW_MS)
    broker.produce(b"z")
    assert acquired(broker.fetch("a")) == [], "the transaction is open"
    marker = end_txn_batch(committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS)
    broker.partition.append(memoryview(marker), -1, NOW_MS, Origin.COORDINATOR)
    assert acquired(broker.fetch("a")) == [(2, 3, 1)]


def test_records_that_are_given_up_while_dead_letters_are_written_have_theirs_together_afterwards(
    broker: Broker,
) -> None:
    broker.has_dead_letters = True
    broker.clock.advance(0)
    broker.produce(b"a", b"b", b"c")
    broker.fetch("a")
    for offset in range(3):
        broker.acknowledge("a", offset, offset, REJECT)
        broker.clock.advance(0)
    ((runs, done),) = broker.burials
    assert [(run.first, run.last) for run in runs] == [(0, 0)]
    done()
    broker.clock.advance(0)
    assert broker.led.state.start_offset == 1
    runs, done = broker.burials[1]
    assert [(run.first, run.last) for run in runs] == [(1, 1), (2, 2)]
    done()
    broker.clock.advance(0)
    assert broker.led.state.start_offset == 3


def test_dead_letters_that_are_written_after_the_last_member_has_left_are_not_written_again(broker: Broker) -> None:
    broker.has_dead_letters = True
    broker.clock.advance(0)
    broker.produce(b"a")
    broker.fetch("a")
    broker.acknowledge("a", 0, 0, REJECT)
    broker.clock.advance(0)
    ((_, done),) = broker.burials
    broker.led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    done()
    broker.clock.advance(0)
    batches = [batch for update in broker.persister.updates for batch in update.batches]
    assert [batch.delivery_state for batch in batches] == [RecordState.ARCHIVING, RecordState.ARCHIVED]
