"""The driver copies segments in time; metrics show which were copied, and why others wait."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.broker.replication.partition_log import LedLog
from ottla.broker.tiers.objects import OWNER
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteState, TieredPartition, changed, started
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.workers import ThreadWorkers
from tests.broker.tiers.harness import AGE_MS, TOPIC, TierHarness
from tests.server.tiny_node import until
from tests.storage.logs_for_tests import SMALL, append, batch

KAFKA = "kafka_server_brokertopicmetrics_"


@pytest.fixture
def harness(tmp_path: Path) -> TierHarness:
    return TierHarness(tmp_path)


def sealed(harness: TierHarness) -> list[int]:
    return [each.file.size for each in list(harness.log.segments)[:-1]]


def log_objects(harness: TierHarness) -> int:
    return sum(name.endswith(".log") for name in harness.store.objects)


async def test_each_sealed_segment_is_copied_and_counted(harness: TierHarness) -> None:
    sizes = sealed(harness)
    assert len(sizes) > 2
    await harness.round()
    assert log_objects(harness) == len(sizes)
    for topic in (TOPIC, None):
        assert harness.metric(f"{KAFKA}remotecopyrequests", topic) == len(sizes)
        assert harness.metric(f"{KAFKA}remotecopybytes", topic) == sum(sizes)
        assert harness.metric(f"{KAFKA}remotelogsizebytes", topic) == sum(sizes)
        assert harness.metric(f"{KAFKA}remotelogmetadatacount", topic) == len(sizes)
        assert harness.metric(f"{KAFKA}remotecopyerrors", topic) == 0
        assert harness.metric(f"{KAFKA}remotecopylagsegments", topic) == 0


async def test_the_state_of_a_partition_names_both_ends_and_what_is_where(harness: TierHarness) -> None:
    sizes, active = sealed(harness), harness.log.segments.active
    before = harness.state
    assert (before["copied_to"], before["remote_segments"], before["lag_segments"]) == (None, 0, len(sizes))
    assert (before["lag_bytes"], before["lag_seconds"], before["waits"]) == (sum(sizes), AGE_MS / 1000, None)
    await harness.round()
    after = harness.state
    assert (after["copied_to"], after["remote_segments"]) == (active.base_offset - 1, len(sizes))
    assert (after["remote_bytes"], after["local_bytes"]) == (sum(sizes), harness.log.segments.size)
    assert (after["lag_segments"], after["lag_bytes"], after["lag_seconds"]) == (0, 0, 0)
    assert (after["topic"], after["partition"], after["copies"], after["failing"]) == (TOPIC, 0, True, False)


async def test_a_store_that_is_away_is_one_error_after_three_rounds_and_is_seen_until_it_is_back(
    harness: TierHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.store.fault = OSError("the store is away")
    levels: list[list[int]] = []
    for _ in range(6):
        caplog.clear()
        await harness.round()
        levels.append([record.levelno for record in caplog.records])
    assert levels == [[logging.WARNING], [], [logging.ERROR], [], [], []]
    assert (harness.state["waits"], harness.state["failing"]) == ("OSError: the store is away", True)
    assert harness.metric("ottla_tier_waits") == 1
    assert harness.metric(f"{KAFKA}remotecopyerrors") == 6
    assert harness.metric(f"{KAFKA}remotecopylagsegments") == len(sealed(harness))
    assert harness.metric("ottla_tier_copy_lag_seconds") == AGE_MS / 1000
    harness.store.fault = None
    await harness.round()
    assert (harness.state["waits"], harness.state["failing"]) == (None, False)
    assert harness.metric("ottla_tier_waits") == 0


async def test_a_copy_that_comes_back_after_it_was_given_up_leaves_no_object(tmp_path: Path) -> None:
    workers, gate = ThreadWorkers(asyncio.get_running_loop()), threading.Event()
    harness = TierHarness(tmp_path, workers=workers)
    await harness.driver.own_store()
    harness.store.during = lambda: gate.wait(30)
    harness.configs[CALL_TIMEOUT] = 10
    await harness.round()
    assert harness.state["waits"] == "no answer within 10 ms"
    gate.set()
    await until(lambda: harness.driver._calls._late[0][0].is_back)
    assert harness.store.objects.keys() == {OWNER}
    harness.configs[CALL_TIMEOUT] = 30_000
    await harness.round()
    assert log_objects(harness) == len(sealed(harness)) and harness.state["waits"] is None
    workers.close()


async def test_a_copy_that_is_finished_while_an_abandoned_one_is_deleted_stays(harness: TierHarness) -> None:
    place = TieredPartition(TOPIC, harness.partition.topic_id, 0)
    abandoned, late = (
        RemoteSegment(bytes([number]) * 16, start, start + 9, 100, 0, ((0, start),), 9, event_ms=0)
        for number, start in ((1, 0), (2, 10))
    )
    segments = harness.segments
    assert segments is not None
    for segment in (abandoned, late):
        segments.replay(started(place, segment))
    finished = changed(place, late.id, RemoteState.COPY_FINISHED, 9, 1)
    harness.store.before_delete = lambda: segments.replay(finished)
    await harness.round()
    assert abandoned.id not in segments.by_id
    assert segments.by_id[late.id].state is RemoteState.COPY_FINISHED


async def test_a_partition_that_another_broker_leads_meanwhile_is_copied_no_further(harness: TierHarness) -> None:
    harness.store.during = lambda: setattr(harness.partition, "leader_epoch", 4)
    await harness.round()
    assert log_objects(harness) == 1


async def test_what_is_behind_a_transaction_that_has_not_ended_waits_and_says_so(harness: TierHarness) -> None:
    begin = harness.log.log_end_offset
    append(harness.log, batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    for fill in range(40):
        append(harness.log, batch(fill=fill))
    harness.log.advance_high_watermark(harness.log.log_end_offset)
    harness.log.flush()
    await harness.round()
    assert harness.state["copied_to"] < begin
    assert harness.state["lag_segments"] > 1
    assert harness.state["waits"] == f"a transaction has not ended at offset {begin}"
    assert harness.metric("ottla_tier_waits") == 0  # no copy has failed


async def test_a_round_that_cannot_begin_is_every_partitions_reason_and_one_error(
    harness: TierHarness, caplog: pytest.LogCaptureFixture
) -> None:
    segments, harness.segments = harness.segments, None
    assert harness.state["waits"] == "the records of __remote_log_metadata are not read to their end yet"
    harness.segments = segments
    harness.fault = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Unable to replicate the partition 3 time(s)")
    for _ in range(5):
        assert not await harness.driver._attempt()
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]
    assert caplog.messages[1].startswith("Segments of all topics are not copied to remote storage")
    assert "Unable to replicate" in harness.state["waits"] and harness.state["failing"]
    harness.fault = None
    assert await harness.driver._attempt()
    assert harness.driver.waits == ""


async def test_where_copies_are_off_nothing_is_behind(tmp_path: Path) -> None:
    harness = TierHarness(tmp_path, replace(SMALL, remote_log_copy_disable=True))
    await harness.round()
    assert (harness.state["copies"], harness.state["lag_segments"], log_objects(harness)) == (False, 0, 0)


def test_what_was_decided_of_a_led_log_holds_as_long_as_it_is_led_in_that_epoch(harness: TierHarness) -> None:
    partition = harness.partition
    led = LedLog(cast(Any, partition), harness.log, 3)
    assert led.still_holds
    partition.leader_epoch = 4
    assert not led.still_holds
    partition.leader_epoch, partition.leader_log = 3, None
    assert not led.still_holds
