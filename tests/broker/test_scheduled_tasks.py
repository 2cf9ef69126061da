"""The times at which a broker's scheduled tasks run."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker import scheduled_tasks
from ottla.broker.scheduled_tasks import ScheduledTasks
from tests.manual_clock import ManualClock

INTERVALS = {
    "log.retention.check.interval.ms": 300_000,
    "log.segment.delete.delay.ms": 60_000,
    "replica.high.watermark.checkpoint.interval.ms": 5_000,
    "log.flush.offset.checkpoint.interval.ms": 60_000,
    "log.flush.scheduler.interval.ms": 1_000,
    "replica.lag.time.max.ms": 30_000,
    "producer.id.expiration.check.interval.ms": 600_000,
}


@pytest.mark.parametrize(("change", "runs"), [({}, 10), ({"log.retention.check.interval.ms": 30_000}, 20)])
async def test_the_room_of_deleted_topics_comes_back_after_their_delay_and_not_after_retentions_interval(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, int], runs: int
) -> None:
    """Before the fix a deleted topic kept its room for up to five minutes; in Kafka it is one."""
    monkeypatch.setattr(scheduled_tasks, "FullDisks", Mock())
    clock = ManualClock()
    world: Any = Mock(clock=clock, session_clock=clock)
    logs: Any = Mock(directories=[], flush_due=lambda now_ms: [], open=[])
    replicas: Any = Mock()
    configs: Any = INTERVALS | change
    tasks = ScheduledTasks(world, configs, logs, replicas, Mock(), Mock())
    await tasks.start()
    clock.advance(600_000)
    assert replicas.log_removal.rename.call_count == runs
    await tasks.stop()
