"""The plan of a read, made for a cluster of three topics that is a table in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.spark import planning
from ottla.spark.client.cluster import BlockingCluster, Topic
from ottla.spark.client.offsets import EARLIEST, LATEST
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Range, TopicPartition

TOPICS = [Topic("__consumer_offsets", 1, True), Topic("orders", 2, False), Topic("orders-old", 1, False)]
#: No record is as new as this time (ms). Older times stand for the offset with the same number.
NOW = 1000


class FakeCluster:
    def topics(self, names: Iterable[str] | None = None) -> list[Topic]:
        return [topic for topic in TOPICS if names is None or topic.name in names]

    def topic_ids(self, names: Iterable[str]) -> dict[str, Any]:
        return {}


def _offsets(cluster: Any, times: Mapping[TopicPartition, int], isolation: int) -> dict[TopicPartition, int]:
    words = {EARLIEST: 5, LATEST: 50}
    return {place: words.get(time, -1 if time >= NOW else time) for place, time in times.items()}


def _ranges(monkeypatch: pytest.MonkeyPatch, **options: str) -> list[Range]:
    monkeypatch.setattr(planning, "list_offsets", _offsets)
    return planning.batch_ranges(cast(BlockingCluster, FakeCluster()), ConnectorOptions(options))


def test_a_pattern_is_for_the_whole_name_and_never_for_internal_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ranges(monkeypatch, subscribePattern="orders") == [Range("orders", 0, 5, 50), Range("orders", 1, 5, 50)]
    assert {part.topic for part in _ranges(monkeypatch, subscribePattern=".*")} == {"orders", "orders-old"}


def test_offsets_by_partition_are_for_each_partition_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _ranges(monkeypatch, assign='{"orders": [0, 1]}', startingOffsets='{"orders": {"0": 7, "1": -2}}')
    assert [part.start for part in found] == [7, 5]
    with pytest.raises(ConnectorError, match="and orders-1 is missing"):
        _ranges(monkeypatch, subscribe="orders", startingOffsets='{"orders": {"0": 7}}')
    with pytest.raises(ConnectorError, match="and orders-1 is not one of them"):
        _ranges(monkeypatch, assign='{"orders": [0]}', startingOffsets='{"orders": {"0": 7, "1": 8}}')


def test_a_partition_that_the_topic_does_not_have_cannot_be_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectorError, match="orders-2, and the topic has 2 partitions"):
        _ranges(monkeypatch, assign='{"orders": [2]}')


def test_a_start_later_than_every_record_is_an_error_unless_the_user_wants_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = {"subscribe": "orders-old", "startingTimestamp": str(NOW)}
    with pytest.raises(ConnectorError, match="orders-old-0 has no record at or after 1000"):
        _ranges(monkeypatch, **late)
    assert [part.start for part in _ranges(monkeypatch, **late, startingOffsetsByTimestampStrategy="latest")] == [50]


def test_an_end_later_than_every_record_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [part.end for part in _ranges(monkeypatch, subscribe="orders-old", endingTimestamp=str(NOW))] == [50]
    assert [part.end for part in _ranges(monkeypatch, subscribe="orders-old", endingTimestamp="20")] == [20]
