"""The story of a partition's replica: its leaders, why its ISR changed, truncations, and its disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import transcripts
from tests.broker.replication.harness import TOPIC, ReplicationHarness


class StoryHarness:
    """A script that runs commands of the harness. Its result are the stories of the brokers' replicas."""

    def __init__(self, harness: ReplicationHarness) -> None:
        self.harness = harness
        self._interpreter = transcripts.Interpreter(harness.commands(), harness.drain)

    def run(self, *commands: str) -> None:
        for command in commands:
            self._interpreter.run(command)

    def story(self, broker_id: int) -> list[str]:
        partition = self.harness.brokers[broker_id].partition
        return [f"{line.cause}: {line.text}" for line in partition.stories.of((TOPIC, 0))]


@pytest.fixture
def stories(tmp_path: Path) -> Iterator[StoryHarness]:
    harness = ReplicationHarness(tmp_path)
    yield StoryHarness(harness)
    harness.close()


def test_a_follower_that_lags_is_named_with_the_property(stories: StoryHarness) -> None:
    stories.run("topic min_isr=2", "produce 1 3", "fetch 2", "fetch 3")
    stories.run("pass 20s", "fetch 2", "fetch 2", "pass 20s", "controller")
    causes = [line.split(":")[0] for line in stories.story(1)]
    assert causes == ["metadata", "replica.lag.time.max.ms", "metadata"]
    assert "Shrinking ISR from 1,2,3 to 1,2 in t-0." in stories.story(1)[1]
    assert stories.story(2)[0].startswith("metadata: Follower t-0 starts at leader epoch 0")


def test_a_leader_that_dies_is_the_previous_leader_in_the_story_of_the_next(stories: StoryHarness) -> None:
    stories.run("topic min_isr=2", "produce 1 3", "fetch 2", "fetch 3", "fetch 2", "fetch 3", "fence 1", "metadata 2 3")
    assert "Leader t-0 starts at leader epoch 1" in stories.story(2)[-1] and "Previous leader 1" in stories.story(2)[-1]
    assert "Current leader is 2. Previous leader 1" in stories.story(3)[-1]


def test_an_epoch_that_goes_back_prints_the_story(stories: StoryHarness, caplog: pytest.LogCaptureFixture) -> None:
    stories.run("topic min_isr=2", "fence 1", "metadata 2")
    partition = stories.harness.brokers[2].partition
    with pytest.raises(AssertionError, match="t-0: leader epoch would go back from 1"):
        partition.become_follower(partition.log, 1, 0, 0, (1, 2, 3), (1, 2, 3))
    assert any("The story of partition ('t', 0): " in record.getMessage() for record in caplog.records)
