"""A node that waits for its quorum logs that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.timers import REMIND_MS, Reminder
from ottla.controller.raft.voters import QuorumEndpoint
from tests.manual_clock import ManualClock


def test_a_replica_without_a_leader_says_every_five_seconds_for_whom_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    servers = (QuorumEndpoint("CONTROLLER", "localhost", 9093),)
    config = RaftConfig(7, b"d" * 16, "c", bootstrap_servers=servers)
    voters = SimpleNamespace(last=SimpleNamespace(ids=()))
    raft = SimpleNamespace(config=config, leader_id=-1, voters=voters)
    clock = ManualClock()
    reminder = Reminder(clock, cast(QuorumState, raft))
    reminder.begin()
    clock.advance(REMIND_MS)
    assert "no voter is known either, and controller.quorum.bootstrap.servers=localhost:9093" in caplog.text
    voters.last.ids = (3, 1)
    clock.advance(REMIND_MS)
    assert "[raft 7] No leader of the quorum is known for 10 s: a majority of the voters 1, 3 has to run" in caplog.text
    raft.leader_id = 3
    caplog.clear()
    clock.advance(3 * REMIND_MS)
    assert not caplog.records
    reminder.stop()
    assert not clock.armed
