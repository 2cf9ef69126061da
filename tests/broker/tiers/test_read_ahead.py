"""Reading ahead: a consumer that reads on waits for the store once, also where a segment ends, and for single reads nothing is read ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ottla.broker.tiers import read_ahead
from ottla.broker.tiers.local_layout import LocalLayoutSegment
from ottla.broker.tiers.read_ahead import ENDS_MAX
from ottla.broker.tiers.tier_reads import TieredRecords
from ottla.protocol.records.batch import iter_batches
from tests.broker.tiers.harness import TierHarness

CHUNK_BYTES = 400


async def tiered(tmp_path: Path, monkeypatch: Any) -> TierHarness:
    """A log of which all sealed segments are in the store alone."""
    monkeypatch.setattr(LocalLayoutSegment, "chunk_bytes", CHUNK_BYTES)
    harness = TierHarness(tmp_path)
    await harness.round()
    harness.log.local_start_offset = harness.log.segments.active.base_offset
    return harness


def end_of(found: TieredRecords) -> int:
    return [*iter_batches(found.records)][-1].next_offset


async def test_a_consumer_that_reads_on_finds_its_chunks_in_memory(tmp_path: Path, monkeypatch: Any) -> None:
    harness = await tiered(tmp_path, monkeypatch)
    reads, partition, offset, waited = harness.reads(), harness.partition, 0, 0
    there = b""
    while offset < harness.log.local_start_offset:
        before = harness.store.requests
        found = await reads.read(partition, harness.log, offset, 200, read_committed=False)
        waited += harness.store.requests > before and offset > 0
        there += bytes(found.records)
        offset = end_of(found)
        await harness.tasks_end()
    assert harness.log.segments.active.base_offset == offset and len(harness.log.segments) > 3
    sealed = [harness.log.segments[index] for index in range(len(harness.log.segments) - 1)]
    assert there == b"".join(bytes(each.file.view()[: each.file.size]) for each in sealed)
    assert waited <= 1, "the second read has the others read ahead"
    assert harness.store.requests == sum(-(-each.file.size // CHUNK_BYTES) for each in sealed), "none twice"


async def test_the_ends_of_the_last_reads_alone_are_remembered(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(read_ahead, "ENDS_MAX", min(2, ENDS_MAX))
    harness = await tiered(tmp_path, monkeypatch)
    reads = harness.reads()
    for offset in reversed(range(10)):
        await reads.read(harness.partition, harness.log, offset, 1, read_committed=False)
        await harness.tasks_end()
    assert len(reads._ahead._ends) == 2


async def test_the_time_of_reads_and_the_threads_are_shown_by_kafkas_names(tmp_path: Path, monkeypatch: Any) -> None:
    harness = await tiered(tmp_path, monkeypatch)
    reads = harness.reads()
    for _ in range(2):
        await reads.read(harness.partition, harness.log, 0, 1, read_committed=False)
    shown = {family.name.rpartition("_remotelogreader")[2]: family.samples[-1].value for family in reads.metrics()}
    assert shown["fetchrateandtimems_count"] == 2
    assert (shown["taskqueuesize"], shown["avgidlepercent"]) == (0, 1.0)
    assert harness.metric("kafka_server_brokertopicmetrics_remotelogsizecomputationtime") == 0


async def test_nothing_is_read_ahead_of_single_reads(tmp_path: Path, monkeypatch: Any) -> None:
    harness = await tiered(tmp_path, monkeypatch)
    reads = harness.reads()
    for offset in (0, 0):
        await reads.read(harness.partition, harness.log, offset, 1, read_committed=False)
        await harness.tasks_end()
    assert harness.store.requests == 1


async def test_a_store_that_is_away_behind_the_read_is_no_fault_of_it(tmp_path: Path, monkeypatch: Any) -> None:
    harness = await tiered(tmp_path, monkeypatch)
    reads = harness.reads()
    for name in [each for each in harness.store.objects if "/" in each and "/00000000000000000000-" not in each]:
        del harness.store.objects[name]
    offset, end = 0, harness.log.segments[1].base_offset
    while offset < end:
        found = await reads.read(harness.partition, harness.log, offset, 200, read_committed=False)
        offset = end_of(found)
        await harness.tasks_end()
