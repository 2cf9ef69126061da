"""The topic `__remote_log_metadata`: the broker's first partition with remote storage requests it from the controller, and a
barrier in it leaves nothing behind.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.tiers.metadata_topic import MetadataTopic
from ottla.broker.tiers.remote_segments import RemoteSegments, TieredPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.remote_log_records import RemoteLogRecord
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tests.broker.tiers.test_remote_segments import PLACE
from tests.manual_clock import ManualClock

PREFIX = "rlmm.config.remote.log.metadata.topic."


class Controller:
    """A controller that remembers the requested topics, and answers with an error code."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.asked: list[CreateTopicsRequest] = []
        self._code = code

    async def request(self, request: CreateTopicsRequest, timeout_ms: int) -> CreateTopicsResponse:
        self.asked.append(request)
        row = CreatableTopicResult(name="__remote_log_metadata", error_code=self._code, error_message="too few brokers")
        return CreateTopicsResponse(topics=[row])


def topic_of(controller: Controller, properties: dict[str, str]) -> MetadataTopic:
    image = SimpleNamespace(topics=SimpleNamespace(by_name=lambda name: None))
    parts = {
        "configs": SimpleNamespace(node=SimpleNamespace(static=properties)),
        "metadata": SimpleNamespace(image=image),
        "controller": controller,
    }
    return MetadataTopic(
        cast(Any, None), replicas=cast(Any, None), channels=cast(Any, None), writes=cast(Any, None), **cast(Any, parts)
    )


@pytest.mark.parametrize(
    ("properties", "shape", "min_isr", "retention_ms"),
    [
        ({}, (50, 3), "2", "-1"),
        (
            {"num.partitions": "5", "replication.factor": "2", "min.isr": "1", "retention.ms": "9000"},
            (5, 2),
            "1",
            "9000",
        ),
    ],
)
async def test_it_is_made_as_kafka_makes_it_so_that_no_record_is_committed_on_one_disk_alone(
    properties: dict[str, str], shape: tuple[int, int], min_isr: str, retention_ms: str
) -> None:
    controller = Controller()
    await topic_of(controller, {f"{PREFIX}{name}": value for name, value in properties.items()}).follow(
        [(bytes(16), 0)]
    )
    ((wanted,),) = (request.topics for request in controller.asked)
    assert (wanted.num_partitions, wanted.replication_factor) == shape
    configs = {config.name: config.value for config in wanted.configs}
    assert configs["cleanup.policy"] == "delete" and configs["remote.storage.enable"] == "false"
    assert (configs["min.insync.replicas"], configs["retention.ms"]) == (min_isr, retention_ms)


async def test_a_broker_that_needs_nothing_of_it_does_not_make_it() -> None:
    controller = Controller()
    await topic_of(controller, {}).follow([])
    assert not controller.asked


async def test_another_broker_may_have_made_it_and_any_other_answer_is_a_failure() -> None:
    await topic_of(Controller(ErrorCode.TOPIC_ALREADY_EXISTS), {}).follow([(bytes(16), 0)])
    with pytest.raises(KafkaError, match="too few brokers"):
        await topic_of(Controller(ErrorCode.INVALID_REPLICATION_FACTOR), {}).follow([(bytes(16), 0)])


async def test_a_barrier_is_records_of_a_segment_that_is_nowhere_and_leaves_nothing_behind() -> None:
    topic, published = topic_of(Controller(), {}), list[Any]()

    async def publish(place: TieredPartition, *records: RemoteLogRecord) -> None:
        published.extend(records)

    topic._metadata = cast(Any, SimpleNamespace(node_id=1))
    topic._world = cast(Any, SimpleNamespace(clock=ManualClock(7), rng=random.Random(1)))
    cast(Any, topic).publish = publish
    await topic.catch_up(PLACE)
    segments = RemoteSegments()
    seen = []
    for record in published:
        segments.replay(record)
        seen.append(len(segments.by_id))
    assert seen == [1, 1, 0]
