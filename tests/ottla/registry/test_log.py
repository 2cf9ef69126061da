"""The topic of a registry that was made a moment ago: a broker may not know it yet."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.cli.client import topics
from ottla.cli.errors import CommandFailed
from ottla.protocol.errors import ErrorCode
from ottla.registry import log
from ottla.registry.log import SchemaLog
from tests.manual_clock import ManualClock


class LateBroker:
    """Answers UNKNOWN_TOPIC_OR_PARTITION at first, as a broker does to which the metadata comes late."""

    def __init__(self, misses: int) -> None:
        self.misses, self.brokers, self.asked = misses, {1: None}, 0
        self.world = self
        self.clock = ManualClock()

    async def topic_names(self) -> list[str]:
        return []

    async def partitions(self, topic: str) -> list[int]:
        self.asked += 1
        if self.asked <= self.misses:
            raise CommandFailed(f"topic {topic}: no such topic", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [0]


@pytest.fixture(autouse=True)
def _created(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_topic(*_: Any) -> None:
        return None

    monkeypatch.setattr(topics, "create_topic", create_topic)
    monkeypatch.setattr(log, "LOOK_AGAIN_S", 0.0)


async def test_a_registry_waits_until_both_of_its_brokers_know_the_new_topic() -> None:
    """`ottla dev --registry` ended with UNKNOWN_TOPIC_OR_PARTITION on a machine that was slow."""
    reading, writing = LateBroker(3), LateBroker(2)
    await SchemaLog(cast("Any", reading), cast("Any", writing), "_schemas", "fence")._create()
    assert (reading.asked, writing.asked) == (4, 3)


async def test_a_topic_that_stays_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CREATE_MS_MAX", -1)
    with pytest.raises(CommandFailed, match="no such topic"):
        await SchemaLog(cast("Any", LateBroker(9)), cast("Any", LateBroker(9)), "_schemas", "fence")._create()
