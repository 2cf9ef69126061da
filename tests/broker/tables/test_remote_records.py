"""Records of a table that are in remote storage alone: they are read slice by slice, and a table waits if they cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.replication.partition_log import LedLog
from ottla.broker.tables import remote_records
from ottla.broker.tables.remote_records import REMOTE, RemoteSlices, Slice
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.table_work import TableReport
from tests.broker.tables.test_table_driver import DriverHarness
from tests.ottla.columns.test_batches import data

LOCAL_START = 8


class Stored:
    """Remote storage with a batch of two records at each even offset: a read returns one batch."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.fault: KafkaError | None = None
        self.is_throttled = False

    async def read(self, partition: Any, own: Any, offset: int, max_bytes: int, *, read_committed: bool) -> Any:
        assert read_committed
        self.asked.append((partition.index, offset))
        if self.fault is not None:
            raise self.fault
        aborted = [SimpleNamespace(producer_id=7, first_offset=0)]
        records = b"" if self.is_throttled else data(offset // 2 * 2)
        return SimpleNamespace(records=records, aborted=aborted)


def led(index: int) -> LedLog:
    log = SimpleNamespace(local_start_offset=LOCAL_START)
    return LedLog(cast(Any, SimpleNamespace(index=index, leader_log=log, leader_epoch=1)), cast(Any, log), 1)


LED = {index: led(index) for index in (0, 1, 3)}


async def test_a_slice_ends_at_the_disk_or_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await RemoteSlices().next_slice({1: 3}, LED, cast(Any, Stored()))
    assert found.records is not None
    assert (found.records.first, found.records.next) == (3, LOCAL_START)
    assert found.records.data == data(2) + data(4) + data(6)
    assert found.records.aborted == ((7, 0),)
    monkeypatch.setattr(remote_records, "SLICE_BYTES", len(data(2)) + 1)
    found = await RemoteSlices().next_slice({1: 3}, LED, cast(Any, Stored()))
    assert found.records is not None and found.records.next == 6


async def test_partitions_that_are_led_here_take_turns() -> None:
    slices, stored = RemoteSlices(), Stored()
    turns = [(await slices.next_slice({0: 7, 1: 7, 2: 7, 3: 7}, LED, cast(Any, stored))).partition for _ in range(5)]
    assert turns == [0, 1, 3, 0, 1]
    assert await slices.next_slice({2: 7}, LED, cast(Any, stored)) == Slice()


async def test_a_table_waits_for_what_cannot_be_read_and_for_nothing_else() -> None:
    stored, report = Stored(), TableReport(wanted=((1, 3),), more=True)
    stored.fault = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the store is away")
    found = await RemoteSlices().next_slice({1: 3}, LED, cast(Any, stored))
    waits = found.with_report(report)
    assert (waits.kind, waits.more) == (REMOTE, False) and "the store is away" in waits.waits
    assert found.with_report(TableReport(positions=((1, 9),))).waits == ""
    assert found.with_report(report._replace(kind="store", waits="another reason")).waits == "another reason"
    here = await RemoteSlices().next_slice({1: 3}, LED, None)
    assert "which this broker does not have" in here.with_report(report).waits


@pytest.mark.parametrize("is_throttled", [True, False])
async def test_retention_and_the_quota_are_no_failures(is_throttled: bool) -> None:
    stored = Stored()
    stored.is_throttled = is_throttled
    stored.fault = None if is_throttled else KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    found = await RemoteSlices().next_slice({1: 3}, LED, cast(Any, stored))
    assert (found.records, found.failure) == (None, "")


async def test_a_driver_fetches_what_the_process_has_asked_for_and_sends_it_with_the_next_job() -> None:
    harness, stored = DriverHarness(), Stored()
    harness.driver.remote_reads = cast(Any, stored)
    for index in (0, 1):
        harness.partitions[index].log.local_start_offset = 4
    harness.report = TableReport(wanted=((1, 2),), more=True)
    await harness.work()
    assert [each.fetched for each in harness.jobs[-1].spans] == [None, None] and not stored.asked
    assert [(each.start, each.local_start) for each in harness.jobs[-1].spans] == [(0, 4), (0, 4)]
    assert harness.table.due_ms == 1_000  # at once
    harness.report = TableReport(positions=((0, 7), (1, 5)))
    await harness.work()
    first, second = harness.jobs[-1].spans
    assert stored.asked == [(1, 2)] and first.fetched is None
    assert second.fetched is not None and (second.fetched.first, second.fetched.next) == (2, 4)
    await harness.work()
    assert stored.asked == [(1, 2)]


async def test_a_driver_without_remote_storage_waits_and_offers_the_rest() -> None:
    harness = DriverHarness()
    harness.report = TableReport(wanted=((1, 2),), more=True)
    await harness.work()
    await harness.work()
    assert len(harness.jobs) == 2 and harness.table.kind == REMOTE
    assert harness.table.due_ms > 1_000
