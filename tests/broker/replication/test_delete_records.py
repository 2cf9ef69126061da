"""DeleteRecords waits until every live replica has moved its log start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.api.delete_records import handle
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.server.clock import TimerWheel
from ottla.storage.log.log import Log
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes
from tests.manual_clock import ManualClock


@pytest.fixture
def partition(log: Log) -> Partition:
    """Return a partition that is led here and followed by broker 2, which has all three records."""
    made = made_partition(1, "t", 0, TOPIC_ID, Wakeups(ManualClock()), Flushes(), 30_000)
    made.become_leader(log, 1, 1, (1, 2), (1, 2), NOW_MS)
    made.append(batch([b"a", b"b", b"c"]), -1, NOW_MS)
    made.record_follower_fetch(2, 3, 0, NOW_MS, 1)
    return made


def delete(partition: Partition, *offsets: int) -> Any:
    """Return the reply to a request that names the partition once for each offset."""
    clock = ManualClock()
    directory = SimpleNamespace(path="/data")
    replicas = SimpleNamespace(
        lookup=lambda *key: partition,
        logs=SimpleNamespace(open=SimpleNamespace(directory_of=lambda log: directory)),
        log_start_writes=SimpleNamespace(when_written=lambda directory, done: done(True)),
    )
    broker: Any = SimpleNamespace(
        replicas=replicas,
        internal_topics=frozenset(),
        world=SimpleNamespace(clock=clock),
        wheel=TimerWheel(clock),
        metadata=SimpleNamespace(is_alive=lambda broker_id: True),
    )
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=30_000)
    context: Any = None
    return handle(broker, request, context)


def low_watermarks(response: DeleteRecordsResponse) -> list[int]:
    return [row.low_watermark for row in response.topics[0].partitions]


@pytest.mark.parametrize("offsets", [(2,), (1, 2), (2, 2)])
def test_the_answer_comes_once_when_the_follower_has_moved_its_log_start(
    partition: Partition, caplog: pytest.LogCaptureFixture, offsets: tuple[int, ...]
) -> None:
    """A partition that is named twice waits twice. The second wait must not answer again."""
    reply = delete(partition, *offsets)
    assert not reply.done
    partition.record_follower_fetch(2, 3, 2, NOW_MS, 1)
    assert reply.done and low_watermarks(reply.take()) == [2] * len(offsets)
    assert partition.delayed_deletes == []
    assert caplog.records == []
