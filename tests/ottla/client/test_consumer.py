"""What a consumer gives out of the batches that a broker sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ottla.client.cluster import ClusterClient
from ottla.client.consumer import READ_COMMITTED, Consumer
from ottla.client.fetched import Batches
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from tests.manual_clock import ManualClock

NOW = 1_700_000_000_000
PLACE = ("t", 0)


class NoCluster:
    """A cluster that nothing is asked of."""

    world = SimpleNamespace(clock=ManualClock())


NO_CLUSTER = cast(ClusterClient, NoCluster())


def data(offset: int, *values: bytes, pid: int = -1) -> bytes:
    rows = [(None, value, NOW) for value in values]
    if pid < 0:
        return build_batch(rows, base_offset=offset)
    return build_batch(rows, base_offset=offset, producer_id=pid, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, pid: int, *, committed: bool) -> bytes:
    return end_txn_batch(
        committed=committed, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=NOW, base_offset=offset
    )


async def taken(
    consumer: Consumer, *batches: bytes, aborted: list[tuple[int, int]] | None = None
) -> list[bytes | None]:
    rows = [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted or []]
    part = PartitionData(partition_index=0, records=b"".join(batches), aborted_transactions=rows)
    position = consumer.positions[PLACE]
    fetched = Batches(*PLACE, position, consumer._take(PLACE, part), consumer.positions[PLACE], b"t" * 16, 0)
    return [record.value for record in await consumer._decoded(fetched)]


async def test_records_before_the_position_and_after_the_end_stay_out() -> None:
    consumer = Consumer(NO_CLUSTER, {PLACE: 2}, {PLACE: 5})
    assert await taken(consumer, data(0, b"0", b"1", b"2"), data(3, b"3", b"4", b"5", b"6")) == [b"2", b"3", b"4"]
    assert consumer.positions == {PLACE: 7}


async def test_aborted_records_stay_out_until_their_marker() -> None:
    consumer = Consumer(NO_CLUSTER, {PLACE: 0}, isolation_level=READ_COMMITTED)
    values = await taken(
        consumer,
        data(0, b"aborted", pid=1),
        data(1, b"committed", pid=2),
        data(2, b"plain"),
        data(3, b"aborted too", pid=1),
        marker(4, 1, committed=False),
        data(5, b"next transaction", pid=1),
        marker(6, 2, committed=True),
        marker(7, 1, committed=True),
        aborted=[(1, 0)],
    )
    assert values == [b"committed", b"plain", b"next transaction"]
    assert consumer.positions == {PLACE: 8}


async def test_a_batch_cut_by_the_fetch_is_left_for_the_next() -> None:
    consumer = Consumer(NO_CLUSTER, {PLACE: 0})
    assert await taken(consumer, data(0, b"0"), data(1, b"1")[:-1]) == [b"0"]
    assert consumer.positions == {PLACE: 1}
