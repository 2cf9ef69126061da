"""The topic of a registry that was made a moment ago: a broker may not know it yet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client import topics
from ottla.client.cluster_error import ClusterError
from ottla.client.consumer import Consumed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import Record
from ottla.registry import log
from ottla.registry.log import LogPlace, SchemaLog, place_from
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
            raise ClusterError(f"topic {topic}: no such topic", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
    with pytest.raises(ClusterError, match="no such topic"):
        await SchemaLog(cast("Any", LateBroker(9)), cast("Any", LateBroker(9)), "_schemas", "fence")._create()


class LossyReader:
    """Reads one record of each list, and None is a log that ends before the position."""

    def __init__(self, reads: list[bytes | None]) -> None:
        self.reads, self.place, self.recreated = reads, LogPlace(b"t" * 16, 5), []
        self.sought: list[int] = []

    def seek(self, place: tuple[str, int], offset: int) -> None:
        self.sought.append(offset)
        self.place = self.place._replace(offset=offset)

    async def poll(self) -> list[Consumed]:
        if not self.reads:
            await asyncio.Event().wait()
        value = self.reads.pop(0)
        if value is None:
            raise ClusterError("offset 6 of partition _schemas-0", code=ErrorCode.OFFSET_OUT_OF_RANGE)
        self.place = self.place._replace(offset=self.place.offset + 1)
        key = b'{"keytype": "MODE", "subject": "%s"}' % value
        return [Consumed("_schemas", 0, [Record(0, 0, key, b'{"mode": "READONLY"}', ())])]


async def test_a_log_that_has_lost_its_end_is_read_again_and_a_write_waits_for_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: Any = SchemaLog(cast("Any", LateBroker(0)), cast("Any", LateBroker(0)), "_schemas", "fence")
    reader = made._reader = LossyReader([b"lost", None, b"kept", b"kept too"])

    async def list_offsets(cluster: Any, name: str, timestamp: int, partitions: Any) -> dict[int, int]:
        return {0: 0 if timestamp == topics.EARLIEST else 2}

    async def topic(name: str) -> Any:
        return SimpleNamespace(topic_id=b"t" * 16)

    monkeypatch.setattr(topics, "list_offsets", list_offsets)
    made._writing.topic = topic
    made.place = reader.place
    waiting = asyncio.create_task(made.sync())
    following = asyncio.create_task(made.follow())
    async with asyncio.timeout(30):
        assert await waiting == LogPlace(b"t" * 16, 2)
    following.cancel()
    assert set(made.state.modes) == {"kept", "kept too"} and reader.sought == [0]
    assert [row.message for row in caplog.records if row.levelname == "ERROR"] == [
        "topic _schemas has no offset 6 any more: its records are read again"
    ]


def test_a_place_is_read_back_and_what_is_none_is_none() -> None:
    place = LogPlace(bytes(range(16)), 2**40)
    assert place_from(place.text()) == place
    assert [
        place_from(text) for text in ("", "7", ":7", "x:7", "AAAAAAAAAAAAAAAAAAAAAA:", "AAAAAAAAAAAAAAAAAAAAAA:x")
    ] == [None] * 6
