"""Share partitions whose next records are only in remote storage: members get them, and nothing that the log or the state has left behind meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from ottla.broker.replication.partition import Partition
from ottla.broker.share.remote_records import RemoteRecords
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import end_txn_batch
from ottla.server.clock import TICK_MS
from ottla.server.network.context import Reply
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.retention import delete_records
from ottla.storage.log_files import AbortedTxn
from tests.broker.records import batch
from tests.broker.replication.test_partition import NOW_MS
from tests.broker.share.test_led_partition import ACCEPT, RELEASE, WAIT_MS, Broker, acquired, error_of
from tests.broker.share.test_transcripts import ShareTranscript
from tests.broker.tiers.harness import TierHarness

T = TypeVar("T")


class Kept(NamedTuple):
    records: bytes
    aborted: list[AbortedTxn]


class HeldReads:
    """Remote storage that has the first offsets of a log. Its reads end when the test says so."""

    def __init__(self, log: Log, local_start: int) -> None:
        self.offsets: list[int] = []
        self.fault: KafkaError | None = None
        self.first: tuple[int, int, int] | None = None
        self.aborted: list[AbortedTxn] = []
        self._held: list[Callable[[], None]] = []
        self.kept = {at: bytes(log.read(at, max_bytes=1 << 20).records) for at in range(local_start)}
        log.local_start_offset = local_start

    async def read(self, partition: Partition, own: Log, offset: int, max_bytes: int, *, read_committed: bool) -> Kept:
        self.offsets.append(offset)
        if self.fault is not None:
            raise self.fault
        return Kept(self.kept[offset], self.aborted if read_committed else [])

    async def search(self, partition: Partition, own: Log, timestamp: int) -> tuple[int, int, int] | None:
        return self.first

    def begin(self, partition: Partition, work: Coroutine[Any, Any, T], done: Callable[[T | KafkaError], None]) -> None:
        found: T | KafkaError
        try:
            work.send(None)
        except StopIteration as end:
            found = end.value
        except KafkaError as error:
            found = error
        self._held.append(lambda: done(found))

    def come_back(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    made.clock.advance(0)
    yield made
    made.log.close()


def tiered(broker: Broker, local_start: int) -> HeldReads:
    reads = broker.remote_reads = HeldReads(broker.log, local_start)
    broker.led = broker.load()
    broker.clock.advance(0)
    return reads


def come_back(broker: Broker, reads: HeldReads) -> None:
    reads.come_back()
    broker.clock.advance(0)


def test_a_fetch_waits_for_remote_records_and_the_next_ones_go_on_across_the_border(broker: Broker) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        broker.produce(value)
    reads, size = tiered(broker, 3), len(batch([b"a"]))
    answer = broker.fetch("m", WAIT_MS, max_bytes=size)
    assert isinstance(answer, Reply) and not answer.done
    come_back(broker, reads)
    assert acquired(answer) == [(0, 0, 1)]
    assert acquired(broker.fetch("m", max_bytes=2 * size)) == [(1, 2, 1)], "what was read is kept"
    assert acquired(broker.fetch("m", WAIT_MS)) == [(3, 3, 1)]
    assert reads.offsets == [0]


def test_a_fetch_that_does_not_wait_leaves_the_records_to_the_next_one(broker: Broker) -> None:
    broker.produce(b"a")
    reads = tiered(broker, 1)
    assert acquired(broker.fetch("m")) == []
    assert acquired(broker.fetch("n")) == []
    come_back(broker, reads)
    assert acquired(broker.fetch("n")) == [(0, 0, 1)]
    assert reads.offsets == [0], "one read for all members"


def test_a_record_that_was_released_is_read_again(broker: Broker) -> None:
    broker.produce(b"a")
    broker.produce(b"b")
    reads = tiered(broker, 2)
    broker.fetch("m")
    come_back(broker, reads)
    assert acquired(broker.fetch("m")) == [(0, 1, 1)]
    broker.acknowledge("m", 0, 0, RELEASE)
    broker.acknowledge("m", 1, 1, ACCEPT)
    broker.clock.advance(0)
    assert acquired(broker.fetch("n")) == [(0, 0, 2)]


def test_records_that_the_log_has_deleted_while_they_were_read_are_not_delivered(broker: Broker) -> None:
    for value in (b"a", b"b", b"c"):
        broker.produce(value)
    reads = tiered(broker, 2)
    answer = broker.fetch("m", WAIT_MS)
    assert isinstance(answer, Reply)
    delete_records(broker.log, 1)
    come_back(broker, reads)
    assert acquired(answer) == [(1, 2, 1)]


def test_what_comes_back_to_a_broker_that_leads_in_another_epoch_is_not_delivered(broker: Broker) -> None:
    broker.produce(b"a")
    reads = tiered(broker, 1)
    answer = broker.fetch("m", WAIT_MS)
    assert isinstance(answer, Reply)
    broker.lead(2)
    come_back(broker, reads)
    assert error_of(answer) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.led = broker.load()
    broker.clock.advance(0)
    assert acquired(broker.fetch("m")) == []
    assert reads.offsets == [0, 0], "the next leader reads for itself"


def test_nothing_above_the_high_watermark_is_delivered(broker: Broker) -> None:
    for value in (b"a", b"b", b"c"):
        broker.produce(value)
    reads = tiered(broker, 3)
    broker.log.high_watermark = 2
    broker.fetch("m")
    come_back(broker, reads)
    assert acquired(broker.fetch("m")) == [(0, 1, 1)]
    assert acquired(broker.fetch("m")) == []


def test_the_store_says_which_records_were_aborted(broker: Broker) -> None:
    """The local log has no markers below its start offset, so that by it the transaction would be a committed one."""
    broker.read_committed = True
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    broker.log.producers.requires_verification = False
    broker.partition.append(memoryview(batch([b"x", b"y"], **options)), -1, NOW_MS)
    marker = end_txn_batch(committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS)
    broker.partition.append(memoryview(marker), -1, NOW_MS, Origin.COORDINATOR)
    broker.produce(b"z")
    reads = tiered(broker, 4)
    reads.aborted = [AbortedTxn(7, 0, 2, 2)]
    broker.fetch("m")
    come_back(broker, reads)
    assert acquired(broker.fetch("m")) == [(2, 3, 1)]


def test_a_store_that_is_away_is_an_error_and_the_next_fetch_tries_again(broker: Broker) -> None:
    broker.produce(b"a")
    reads = tiered(broker, 1)
    reads.fault = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    answer = broker.fetch("m", WAIT_MS)
    come_back(broker, reads)
    assert error_of(answer) == ErrorCode.KAFKA_STORAGE_ERROR
    reads.fault = None
    answer = broker.fetch("m", WAIT_MS)
    come_back(broker, reads)
    assert acquired(answer) == [(0, 0, 1)]


def test_a_read_without_records_because_of_the_quota_is_begun_again_and_is_no_error(broker: Broker) -> None:
    broker.produce(b"a")
    reads = tiered(broker, 1)
    kept, reads.kept[0] = reads.kept[0], b""
    answer = broker.fetch("m", WAIT_MS)
    assert isinstance(answer, Reply)
    come_back(broker, reads)
    assert not answer.done
    reads.kept[0] = kept
    come_back(broker, reads)
    come_back(broker, reads)
    assert acquired(answer) == [(0, 0, 1)]


def test_a_fetch_whose_wait_is_over_before_the_store_answers_acquires_nothing(broker: Broker) -> None:
    broker.produce(b"a")
    reads = tiered(broker, 1)
    answer = broker.fetch("m", WAIT_MS)
    assert isinstance(answer, Reply)
    broker.clock.advance(WAIT_MS + TICK_MS)
    assert answer.done and acquired(answer) == []
    come_back(broker, reads)
    assert broker.led.state.in_flight.size == 0


def test_a_group_that_begins_by_time_begins_in_remote_storage(tmp_path: Path) -> None:
    made = ShareTranscript(tmp_path)
    made.partition.append(memoryview(batch([b"a", b"b"])), -1, NOW_MS)
    reads = made.leaders.remote_reads = HeldReads(made.log, 2)
    reads.first = (NOW_MS, 1, 0)
    found: list[int | KafkaError] = []
    context: Any = None
    made.leaders._reset(context, made.partition, made.log, "by_duration:PT1H", found.append)
    assert found == []
    reads.come_back()
    assert found == [1]
    made.log.close()


async def read_remote(harness: TierHarness, offset: int) -> bytes:
    """Return the records from `offset` on, by a real read of remote storage."""
    partition: Any = harness.partition
    remote = RemoteRecords(harness.reads(), partition, lambda: None)
    end = harness.log.local_start_offset
    assert remote.read(harness.log, offset, end, 500, read_committed=True) is None
    await harness.tasks_end()
    found = remote.read(harness.log, offset, end, 500, read_committed=True)
    assert found is not None
    return bytes(found.records)


async def test_each_offset_is_read_as_the_log_had_it_and_damaged_bytes_never(tmp_path: Path) -> None:
    harness = TierHarness(tmp_path)
    own, end = harness.log, harness.log.segments.active.base_offset
    await harness.round()
    there = [bytes(own.read(offset, max_bytes=500, up_to_offset=end).records) for offset in range(end)]
    own.local_start_offset = end
    last = harness.log.segments[-2].base_offset
    for offset in (0, 1, last, end - 1):
        assert await read_remote(harness, offset) == there[offset]
    name = min(name for name in harness.store.objects if name.endswith(".log"))
    damaged = bytearray(harness.store.objects[name])
    damaged[80] ^= 1
    harness.store.objects[name] = bytes(damaged)
    with pytest.raises(KafkaError) as caught:
        await read_remote(harness, 0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
