"""The log shows an operator when the leader or the ISR of a partition changes, or a follower's log is truncated."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import transcripts
from tests.broker.replication.harness import ReplicationHarness


class Script:
    """A script that runs commands of the harness. Its result is what they write to the log."""

    def __init__(self, harness: ReplicationHarness, caplog: pytest.LogCaptureFixture) -> None:
        self._interpreter = transcripts.Interpreter(harness.commands(), harness.drain)
        self._caplog = caplog

    def run(self, *commands: str) -> list[str]:
        """The lines of these commands, with their levels."""
        self._caplog.clear()
        for command in commands:
            self._interpreter.run(command)
        return [
            f"{record.levelname} {record.getMessage()}"
            for record in self._caplog.records
            if record.name.endswith("state_changes")
        ]


@pytest.fixture
def script(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Script]:
    caplog.set_level(logging.INFO)
    harness = ReplicationHarness(tmp_path)
    yield Script(harness, caplog)
    harness.close()


def test_a_new_partition_has_a_leader_and_followers(script: Script) -> None:
    lines = script.run("topic min_isr=2")
    follower = "starts at leader epoch 0 from offset 0 with partition epoch 0 and high watermark 0."
    assert lines == [
        "INFO Leader t-0 starts at leader epoch 0 from offset 0 with partition epoch 0, high watermark 0, ISR 1,2,3."
        " Previous leader -1",
        f"INFO Follower t-0 {follower} Current leader is 1. Previous leader -1",
        f"INFO Follower t-0 {follower} Current leader is 1. Previous leader -1",
    ]
    assert script.run("metadata 1 2 3") == [], "the same metadata again is no change"


def test_a_follower_that_lags_leaves_the_isr_and_comes_back(script: Script) -> None:
    script.run("topic min_isr=2", "produce 1 3", "fetch 2", "fetch 3")
    shrinking = script.run("pass 20s", "fetch 2", "fetch 2", "pass 20s", "controller")
    assert shrinking == [
        "INFO Shrinking ISR from 1,2,3 to 1,2 in t-0. Leader: (highWatermark: 0, endOffset: 3)."
        " Out of sync replicas: (brokerId: 3, endOffset: 0, lastCaughtUp: 40000 ms ago)",
        "INFO ISR updated to 1,2 and version updated to 1 in t-0",
    ]
    expanding = script.run("fetch 3", "fetch 3", "controller", "metadata 1 2 3")
    assert expanding == [
        "INFO Expanding ISR from 1,2 to 1,2,3 in t-0. Leader: (highWatermark: 3, endOffset: 3). Replica 3 is at endOffset 3",
        "INFO ISR updated to 1,2,3 and version updated to 2 in t-0",
    ]


def test_an_isr_below_min_insync_replicas_is_marked(script: Script) -> None:
    script.run("topic min_isr=3", "produce 1 1", "fetch 2", "fetch 3")
    lines = script.run("pass 31s", "controller")
    assert "INFO ISR updated to 1 (under-min-isr) and version updated to 1 in t-0" in lines


def test_a_proposal_that_the_controller_refuses(script: Script) -> None:
    script.run("topic min_isr=1", "produce 1 1", "fetch 2", "fetch 3", "fence 3", "metadata 1 2", "unfence 3")
    lines = script.run("fetch 3", "fetch 3", "fence 3", "controller")
    assert lines[0].startswith("INFO Expanding ISR from 1,2 to 1,2,3 in t-0")
    assert lines[1] == "INFO Failed to alter ISR to 1,2,3 in t-0: the controller answered INELIGIBLE_REPLICA"


def test_an_unclean_election_takes_back_what_was_committed(script: Script) -> None:
    script.run("topic min_isr=1 replicas=1,2 elr=off", "produce 1 1", "fetch 2", "fetch 2", "fence 2", "metadata 1")
    script.run("produce 1 2", "fence 1", "unfence 2", "allow-unclean", "metadata 2", "produce 2 1 acks=1")
    lines = script.run("unfence 1", "metadata 1", "fetch 1")
    assert lines[0].startswith("INFO Follower t-0 starts at leader epoch ")
    assert lines[1] == "WARNING Truncating t-0 to offset 1 below high watermark 3"
