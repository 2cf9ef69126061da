"""Produce with a transaction: the result of the check of a request still holds when its records are appended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.components import BrokerComponents
from ottla.broker.produce import handler as produce
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.broker.transactions.markers import MarkerRoutes
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.broker.transactions.verify import AppendVerifier
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.control import end_txn_batch
from ottla.protocol.work import Turn
from ottla.server.authorization.authorizer import AllowAll
from ottla.server.network.context import Reply, RequestContext
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes
from tests.manual_clock import ManualClock

PRODUCER_ID = 7
BEFORE_VERSION_2 = 10


class Coordinator:
    """A coordinator that answers when the test says so."""

    config = SimpleNamespace(add_partitions_retry_backoff_ms=20, add_partitions_retry_backoff_max_ms=100)

    def __init__(self) -> None:
        self.asked: list[tuple[Reply, Any]] = []

    def verify_partitions(self, transactional_id: str, producer_id: int, epoch: int, asked: Any) -> Reply:
        pending = Reply(lambda error: {})
        self.asked.append((pending, asked))
        return pending

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        pending, asked = self.asked.pop(0)
        pending.complete(dict.fromkeys(asked, error))


class ProduceHarness:
    """A leader of two partitions of one replica. Its transaction coordinator is slow."""

    def __init__(self, directory: Path, verification_enabled: bool = True) -> None:
        self.clock = ManualClock(NOW_MS)
        self.partitions = [self._partition(directory, index) for index in (0, 1)]
        self.coordinator = Coordinator()
        self.requests: list[ProduceRequest] = []
        routes = cast(MarkerRoutes, SimpleNamespace(node_id=1, clock=self.clock))
        verifier = AppendVerifier(
            routes, cast(TransactionCoordinator, self.coordinator), lambda _: 1, lambda: verification_enabled
        )
        replicas = SimpleNamespace(
            lookup=lambda name, topic_id, index: self.partitions[index],
            find=lambda name, topic_id, index: self.partitions[index],
            get=lambda name, index: self.partitions[index],
        )
        self.broker = SimpleNamespace(
            authorizer=AllowAll(),
            world=SimpleNamespace(clock=self.clock),
            replicas=replicas,
            internal_topics=frozenset(),
            transactions=SimpleNamespace(verifier=verifier),
            wheel=None,
            long_work=SimpleNamespace(turn=Turn()),
            metadata=SimpleNamespace(leader_and_epoch=lambda name, index: (1, 3), node_endpoints=lambda *_: []),
        )

    def _partition(self, directory: Path, index: int) -> Partition:
        log = open_log(
            LogSpec(OsFiles(), Mappings(), str(directory / f"t-{index}"), "t", index, TOPIC_ID, LogConfig()), clean=True
        )
        partition = made_partition(1, "t", index, TOPIC_ID, Wakeups(ManualClock()), Flushes(), 30_000, None)
        partition.become_leader(log, 1, 1, (1,), (1,), NOW_MS)
        return partition

    def close(self) -> None:
        for partition in self.partitions:
            assert partition.log is not None
            partition.log.close()

    def send(self, *rows: tuple[int, int], transactional: bool = True, epoch: int = 0) -> Any:
        """Send one record to each (partition, sequence); return the response, or the Reply for it."""
        data = [
            PartitionProduceData(
                index=index,
                records=memoryview(
                    bytearray(
                        batch(
                            [b"v"],
                            producer_id=PRODUCER_ID,
                            producer_epoch=epoch,
                            base_sequence=sequence,
                            transactional=transactional,
                        )
                    )
                ),
            )
            for index, sequence in rows
        ]
        request = ProduceRequest(
            transactional_id="x",
            acks=1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        )
        self.requests.append(request)
        connection = SimpleNamespace(pause=lambda: SimpleNamespace(end=lambda: None))
        context = SimpleNamespace(api_version=BEFORE_VERSION_2, client_id="c", connection=connection)
        return produce.handle(cast(BrokerComponents, self.broker), request, cast(RequestContext, context))

    def end(self, index: int, *, committed: bool) -> None:
        marker = end_txn_batch(
            committed=committed, producer_id=PRODUCER_ID, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
        )
        self.partitions[index].append(marker, -1, NOW_MS, Origin.COORDINATOR, 0)

    def next_sequence(self, index: int) -> int:
        log = self.partitions[index].log
        assert log is not None
        state = log.producers.states.get(PRODUCER_ID)
        return 0 if state is None else state.last_sequence + 1

    def has_open_transaction(self, index: int) -> bool:
        log = self.partitions[index].log
        assert log is not None
        return log.producers.has_open_transaction(PRODUCER_ID, 0)


def codes(answer: Any) -> list[str]:
    response = answer.take() if isinstance(answer, Reply) else answer
    return [ErrorCode(row.error_code).name for row in response.responses[0].partition_responses]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ProduceHarness]:
    harness = ProduceHarness(tmp_path)
    yield harness
    harness.close()


def test_a_transaction_that_ends_while_the_request_waits_for_another_partition_is_not_opened_again(
    harness: ProduceHarness,
) -> None:
    harness.send((0, 0))
    harness.coordinator.answer()
    assert harness.has_open_transaction(0)
    later = harness.send((0, 1), (1, 0))
    assert [asked for _, asked in harness.coordinator.asked] == [{("t", 1)}]
    harness.end(0, committed=False)
    harness.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert codes(later) == ["INVALID_TXN_STATE", "INVALID_TXN_STATE"]
    log = harness.partitions[0].log
    assert log is not None
    assert not harness.has_open_transaction(0)
    assert log.last_stable_offset == log.log_end_offset == 2


def test_a_request_behind_another_one_is_not_appended_to_a_transaction_that_has_ended(harness: ProduceHarness) -> None:
    harness.send((0, 0))
    harness.coordinator.answer()
    first = harness.send((1, 0))
    behind = harness.send((0, 1))
    harness.end(0, committed=True)
    harness.coordinator.answer()
    assert codes(first) == ["NONE"]
    assert codes(behind) == ["INVALID_TXN_STATE"]
    assert not harness.has_open_transaction(0)


def test_a_batch_sent_again_after_the_end_of_its_transaction_is_still_known(harness: ProduceHarness) -> None:
    harness.send((0, 0))
    harness.coordinator.answer()
    harness.end(0, committed=True)
    again = harness.send((0, 0))
    harness.coordinator.answer()
    assert codes(again) == ["NONE"]
    assert not harness.has_open_transaction(0)


def test_without_verification_every_first_batch_opens_its_transaction(tmp_path: Path) -> None:
    harness = ProduceHarness(tmp_path, verification_enabled=False)
    assert codes(harness.send((0, 0), (1, 0))) == ["NONE", "NONE"]
    harness.end(0, committed=True)
    assert codes(harness.send((0, 1))) == ["NONE"]
    assert harness.has_open_transaction(0)
    harness.close()


def test_an_idempotent_producer_needs_no_word(harness: ProduceHarness) -> None:
    assert codes(harness.send((0, 0), transactional=False)) == ["NONE"]


def test_a_partition_that_becomes_led_while_the_request_waits_for_another_is_not_appended_to(
    harness: ProduceHarness,
) -> None:
    partition = harness.partitions[0]
    log = partition.log
    assert log is not None
    partition.become_follower(log, 2, 2, 2, (1, 2), (2,))
    later = harness.send((0, 0), (1, 0))
    partition.become_leader(log, 3, 3, (1,), (1,), NOW_MS)
    harness.coordinator.answer()
    assert codes(later) == ["NOT_LEADER_OR_FOLLOWER", "NONE"]


def test_the_records_of_a_waiting_request_are_counted_by_its_connection_and_dropped_after_the_append(
    harness: ProduceHarness,
) -> None:
    later = harness.send((0, 0), (1, 0))
    assert later.kept_bytes == 2 * len(batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=0))
    request = harness.requests[-1]
    harness.coordinator.answer()
    assert codes(later) == ["NONE", "NONE"]
    assert [data.records for data in request.topic_data[0].partition_data] == [None, None]
