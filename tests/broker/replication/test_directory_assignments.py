"""The places of replicas are reported to a controller that knows directories, and to no other."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from ottla.broker.replication import to_controller
from ottla.broker.replication.to_controller import MV_DIRECTORIES, DirectoryAssignments
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsResponse,
    DirectoryDataResponse,
    TopicDataResponse,
)
from ottla.server.world import RealWorld
from tests.server.tiny_node import until

TOPIC, DIRECTORY = b"\1" * 16, b"\2" * 16


async def test_a_replicas_directory_is_reported_once_the_metadata_version_knows_directories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Below 3.7-IV2 a controller of Apache Kafka rejected the request twice a second, and logged each rejection."""
    monkeypatch.setattr(to_controller, "DIRECTORY_RETRY_MS", 5)
    real = RealWorld(asyncio.get_running_loop())
    row = Mock(partition_index=3, error_code=0)
    response: Any = AssignReplicasToDirsResponse(
        directories=[DirectoryDataResponse(id=DIRECTORY, topics=[TopicDataResponse(topic_id=TOPIC, partitions=[row])])]
    )
    controller: Any = Mock(request=AsyncMock(return_value=response))
    image: Any = Mock(features=Mock(metadata_version=MV_DIRECTORIES - 1))
    looks = 0

    def look() -> Any:
        nonlocal looks
        looks += 1
        return image

    assignments = DirectoryAssignments(real.world, 1, controller, lambda: 7, look)
    assignments.assign(TOPIC, 3, DIRECTORY)
    await until(lambda: looks >= 3)
    assert not controller.request.called
    image.features.metadata_version = MV_DIRECTORIES
    await until(lambda: controller.request.called)
    (request,) = controller.request.call_args.args
    assert [(each.id, each.topics[0].topic_id) for each in request.directories] == [(DIRECTORY, TOPIC)]
    await real.close()
