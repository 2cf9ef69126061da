"""The records that a consumer returns from the batches of a broker."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.consumer import READ_COMMITTED, Consumer
from ottla.client.fetched import Batches
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import AbortedTransaction, PartitionData
from ottla.protocol.records.batch import crc32c
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from tests.manual_clock import ManualClock
from tests.sim.loop import run
from tests.sim.mirror_client import ModelClient, Process
from tests.sim.mirror_model import ModelCluster

NOW = 1_700_000_000_000
PLACE = ("t", 0)


class NoCluster:
    """A cluster that gets no requests."""

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
    batches, fault = consumer._take(PLACE, part)
    assert fault is None
    fetched = Batches(*PLACE, position, batches, consumer.positions[PLACE], b"t" * 16, 0)
    return [record.value async for row in consumer._decoded(fetched) for record in row.records]


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


def broken(batch: bytes, *, crc: bool) -> bytes:
    """Change the value in a batch of one record, and its CRC or not."""
    made = bytearray(batch)
    made[-3:] = b"\xff\xff\xff"
    if crc:
        made[17:21] = crc32c(memoryview(made)[21:]).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("crc", [False, True], ids=["wrong CRC", "malformed record"])
def test_what_is_before_a_batch_that_cannot_be_read_is_given_out_and_the_reader_stands_there(crc: bool) -> None:
    """Java's consumers check CRCs too (check.crcs). A consumer skipped a batch if its records could not be decoded."""
    cluster = ModelCluster("west", random.Random(1))
    log = cluster.create("t", 1).logs[0]
    whole = data(2, b"v2")
    for batch in (data(0, b"v0", b"v1"), broken(whole, crc=crc), data(3, b"v3")):
        log.append(batch, 2 if batch[7] == 0 else 1)
    log.entries[1].data = broken(whole, crc=crc)

    async def main() -> None:
        consumer = Consumer(ModelClient(cluster, Process(cluster.rng)), {PLACE: 0})
        seen: list[bytes | None] = []
        faults: list[KafkaError] = []

        async def read(count: int) -> None:
            async with asyncio.timeout(30):
                while len(seen) < count:
                    try:
                        seen.extend(record.value for row in await consumer.poll() for record in row.records)
                    except KafkaError as fault:
                        faults.append(fault)
                        return

        await read(9)
        await read(9)
        assert seen == [b"v0", b"v1"] and consumer.positions == {PLACE: 2} and len(faults) == 2
        log.entries[1].data = whole
        await read(4)
        assert seen == [b"v0", b"v1", b"v2", b"v3"]

    run(main())
