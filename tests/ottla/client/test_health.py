"""The problems of brokers that `ottla cluster health` lists."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.client.cluster import BrokerTooOld, ClusterClient, NoConnection
from ottla.client.cluster_state import FULL_BYTES, UPGRADE, _broker_problems, describe_cluster, update_features
from ottla.client.errors import ClusterError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from ottla.protocol.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse


class Answering:
    """A cluster whose brokers all give one response."""

    doing = ""

    def __init__(self, answer: DescribeLogDirsResponse | NoConnection) -> None:
        self.answer = answer

    async def request(self, request: Any, node: int) -> DescribeLogDirsResponse:
        if isinstance(self.answer, NoConnection):
            raise self.answer
        return self.answer


def directory(usable_bytes: int, error: ErrorCode = ErrorCode.NONE) -> DescribeLogDirsResponse:
    row = DescribeLogDirsResult(log_dir="/data", error_code=error, total_bytes=1 << 40, usable_bytes=usable_bytes)
    return DescribeLogDirsResponse(results=[row])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (directory(FULL_BYTES), []),
        (directory(-1), []),  # not known, as with a broker of an old Kafka
        (directory(8_192), ["no space left in log directory /data (8192 bytes free)"]),
        (directory(-1, ErrorCode.KAFKA_STORAGE_ERROR), ["log directory /data is offline"]),
        (
            NoConnection("cannot connect to b:9092: Connection refused", ""),
            ["cannot connect to b:9092: Connection refused"],
        ),
    ],
    ids=["room", "unknown", "full", "offline", "no answer"],
)
async def test_what_is_wrong_with_a_broker(answer: DescribeLogDirsResponse | NoConnection, expected: list[str]) -> None:
    found = await _broker_problems(cast(ClusterClient, Answering(answer)), 3)
    assert [(each.place, each.problem) for each in found] == [("broker 3", text) for text in expected]


class OfKafka37:
    """A cluster of brokers of Kafka 3.7: DescribeCluster v1, UpdateFeatures v1."""

    doing = ""
    timeout_ms = 1_000

    async def request(self, request: Any) -> DescribeClusterResponse | UpdateFeaturesResponse:
        if not isinstance(request, DescribeClusterRequest):
            refused = UpdatableFeatureResult("metadata.version", ErrorCode.INVALID_UPDATE_VERSION, "19 is the highest")
            return UpdateFeaturesResponse(results=[refused])
        if request.include_fenced_brokers:
            raise BrokerTooOld("of version 2")
        return DescribeClusterResponse(cluster_id="x")


async def test_an_older_broker_is_asked_without_fenced_brokers() -> None:
    assert (await describe_cluster(cast(ClusterClient, OfKafka37()))).cluster_id == "x"


async def test_what_an_older_broker_says_of_one_feature_is_a_failure() -> None:
    with pytest.raises(ClusterError, match="19 is the highest"):
        await update_features(cast(ClusterClient, OfKafka37()), {"metadata.version": 30}, UPGRADE)
