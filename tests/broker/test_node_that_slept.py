"""A node that is broker and controller sleeps with its machine for longer than its session, and wakes up."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.broker.counted_node import CountedNode
from tests.broker.test_files_off_the_loop import create

SESSION_MS = 1_000


@pytest.mark.parametrize("requests", [1, 50])
def test_it_does_not_fence_itself_and_answers_for_its_groups_at_once(
    requests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = CountedNode(
        tmp_path, monkeypatch, broker_session_timeout_ms=str(SESSION_MS), broker_heartbeat_interval_ms="300"
    )
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    try:
        with caplog.at_level(logging.WARNING), node.wire() as wire:
            create(wire, "t")
            deadline = time.monotonic() + 20
            while any(
                each.error_code for each in wire.request(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
            ):
                assert time.monotonic() < deadline
            while wire.request(request, 9).groups[0].error_code:
                assert time.monotonic() < deadline
            for _ in range(3):
                node.loop.call_soon_threadsafe(time.sleep, 1.5 * SESSION_MS / 1000)
                # Requests make a pause: without it the heartbeat that failed in one stall would not be sent again before the
                # next stall.
                for _ in range(requests):
                    assert wire.request(request, 9).groups[0].error_code == 0
    finally:
        node.stop()
    assert "Fencing broker" not in caplog.text
