"""Quotas of remote storage (KIP-956): the bytes copied and read in a second, and no wait is longer than the bytes cost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.tiers.remote_segments import RemoteSegments, TieredPartition
from ottla.broker.tiers.tier_quota import COPIES, FETCHES, UNLIMITED, TierQuota
from ottla.broker.tiers.tier_reads import TieredRecords
from tests.broker.tiers.harness import TOPIC, TierHarness
from tests.manual_clock import ManualClock
from tests.server.tiny_node import until
from tests.storage.logs_for_tests import SMALL, filled

REMOTE = "kafka_server_remotelogmanager_remote_"


def made(limit: int) -> tuple[TierQuota, dict[str, int], ManualClock]:
    configs, clock = {COPIES.limit: limit, COPIES.window_num: 11, COPIES.window_seconds: 1}, ManualClock()
    as_configs: Any = configs
    return TierQuota(as_configs, clock, COPIES), configs, clock


def test_what_the_windows_hold_passes_at_once_and_what_is_more_is_waited_for() -> None:
    quota, _, clock = made(1_000)
    assert quota.wait_ms() == 0
    quota.take(11_000)
    assert quota.wait_ms() == 0
    quota.take(5_000)
    assert quota.wait_ms() == 5_000
    clock.advance(4_999)
    assert quota.wait_ms() == 1
    clock.advance(1)
    assert quota.wait_ms() == 0


def test_a_limit_that_was_too_low_by_mistake_ends_when_it_is_corrected() -> None:
    quota, configs, _ = made(1)
    assert quota.wait_ms() == 0
    quota.take(1 << 30)
    assert quota.wait_ms() > 1_000_000_000
    configs[COPIES.limit] = 1 << 20
    assert quota.wait_ms() == 0
    quota.take(1 << 30)
    assert quota.wait_ms() > 0
    configs[COPIES.limit] = UNLIMITED
    assert quota.wait_ms() == 0


async def test_copies_go_on_when_the_quota_allows_it_and_the_state_says_why_they_wait(tmp_path: Path) -> None:
    harness = TierHarness(tmp_path)
    sizes = [each.file.size for each in list(harness.log.segments)[:-1]]
    harness.configs |= {COPIES.limit: 1_000, COPIES.window_num: 1}
    await harness.round()
    assert harness.state["remote_segments"] == 1
    assert harness.state["waits"] == f"{COPIES.limit} is used up for now" and not harness.state["failing"]
    owed_ms = sizes[0] - 1_000
    assert harness.metric(f"{REMOTE}copy_throttle_time_max", None) == owed_ms
    assert harness.metric(f"{REMOTE}copy_throttle_time_avg", None) == owed_ms
    harness.driver._due.clear()
    await harness.round()
    assert harness.state["remote_segments"] == 1
    harness.clock.advance(owed_ms)
    assert harness.driver._due.is_set(), "a round begins"
    await harness.round()
    assert harness.state["remote_segments"] == 2
    harness.configs[COPIES.limit] = UNLIMITED
    await harness.round()
    assert harness.state["remote_segments"] == len(sizes)


async def test_under_a_quota_partitions_take_turns(tmp_path: Path) -> None:
    harness = TierHarness(tmp_path / "0")
    harness.configs |= {COPIES.limit: 1_000, COPIES.window_num: 1}
    stored = {0: RemoteSegments(), 1: RemoteSegments()}
    topic: Any = harness.driver.topic
    topic.segments = lambda topic_id, index: stored[index]

    async def publish(place: TieredPartition, record: Any) -> None:
        stored[place.partition].replay(record)

    topic.publish = publish
    own = filled(tmp_path / "1", config=replace(SMALL, remote_storage_enable=True))
    own.flush()
    other: Any = SimpleNamespace(**vars(harness.partition) | {"index": 1, "log": own, "leader_log": own})
    harness.driver._replicas.by_name[TOPIC][1] = other
    for copied in ([1, 0], [1, 1], [2, 1], [2, 2]):
        await harness.round()
        assert [len(stored[index].by_id) for index in stored] == copied
        harness.clock.advance(harness.driver.copy_quota.wait_ms())
    own.close()


async def test_a_read_above_the_quota_waits_and_is_answered_without_records_rather_than_late(tmp_path: Path) -> None:
    harness = TierHarness(tmp_path)
    await harness.round()
    harness.log.local_start_offset = harness.log.segments.active.base_offset
    harness.configs |= {FETCHES.limit: 1_000, FETCHES.window_num: 1}
    partition: Any = harness.partition
    reads = harness.reads()

    async def read(advanced_ms: int) -> TieredRecords:
        task = asyncio.create_task(reads.read(partition, harness.log, 0, 1_600, read_committed=False))
        await until(lambda: task.done() or bool(harness.clock.armed))
        harness.clock.advance(advanced_ms)
        return await task

    first = await read(0)
    owed_ms = len(first.records) - 1_000
    assert 500 < owed_ms < 1_000
    assert (await read(500)).records == b""
    assert (await read(owed_ms - 500)).records == first.records
    assert harness.metric("kafka_server_brokertopicmetrics_remotefetchrequests", TOPIC) == 2
    (average, longest) = reads.quota.metrics()
    assert longest.samples[0].value == owed_ms and average.samples[0].value == (2 * owed_ms - 500) / 2
