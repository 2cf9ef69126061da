"""The parts of a request that only its handler checks, over a real connection: duplicates, names and ids, missing fields,
permissions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.controller.handlers.envelope import FORWARDABLE
from ottla.controller.routes import ROUTES
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import create_acls, delete_acls, describe_cluster, envelope
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import incremental_alter_configs as iac
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.server.network.client import Channel
from ottla.server.network.context import RequestContext
from tests.controller.node import CLUSTER_ID, Node, create, forwarded, running


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[tuple[Node, Channel]]:
    async with running(directory) as node:
        channel = Channel(node.real.world, "127.0.0.1", node.port)
        try:
            yield node, channel
        finally:
            channel.close()


def errors(results: list[Any]) -> list[tuple[str, str | None]]:
    return sorted((ErrorCode(each.error_code).name, each.error_message) for each in results)


async def test_creating_the_same_topic_twice_in_one_request_creates_none(tmp_path: Path) -> None:
    async with connected(tmp_path) as (node, channel):
        names = ["twice", "once", "twice", "__cluster_metadata"]
        topics = [ct.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        response = await channel.request(ct.CreateTopicsRequest(topics=topics))
        assert errors(response.topics) == [
            ("INVALID_REQUEST", "Creation of internal topic __cluster_metadata is prohibited."),
            ("INVALID_REQUEST", "Duplicate topic name."),
            ("NONE", None),
        ]
        assert set(node.metadata.loader.image.topics.names) == {"once"}


async def test_topics_that_are_created_in_several_turns_are_answered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.controller.decisions.topics.PARTITIONS_PER_TURN", 20)
    async with connected(tmp_path) as (node, channel):
        topics = [ct.CreatableTopic(name=f"t{n}", num_partitions=10, replication_factor=1) for n in range(7)]
        response = await channel.request(ct.CreateTopicsRequest(topics=topics))
        assert [(each.name, each.error_code) for each in response.topics] == [(f"t{n}", 0) for n in range(7)]
        assert set(node.metadata.loader.image.topics.names) == {f"t{n}" for n in range(7)}
        more = [CreatePartitionsTopic(name=f"t{n}", count=30, assignments=None) for n in range(7)]
        added = await channel.request(CreatePartitionsRequest(topics=more, timeout_ms=10_000))
        assert [(each.name, each.error_code) for each in added.results] == [(f"t{n}", 0) for n in range(7)]
        assert {len(topic.partitions) for topic in node.metadata.loader.image.topics} == {30}


async def test_no_time_to_decide_is_no_decision(tmp_path: Path) -> None:
    async with connected(tmp_path) as (node, channel):
        topics = [ct.CreatableTopic(name="late", num_partitions=1, replication_factor=1)]
        response = await channel.request(ct.CreateTopicsRequest(topics=topics, timeout_ms=0))
        assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "late" not in node.metadata.loader.image.topics


async def test_topics_are_deleted_by_name_or_by_id_but_not_by_both(tmp_path: Path) -> None:
    async with connected(tmp_path) as (node, channel):
        await create(channel, "a", "b", "c", "d")
        ids = dict(node.metadata.loader.image.topics.names)
        states = [
            dt.DeleteTopicState(name="a"),
            dt.DeleteTopicState(topic_id=ids["b"]),
            dt.DeleteTopicState(name="c", topic_id=ids["c"]),
            dt.DeleteTopicState(name="d"),
            dt.DeleteTopicState(topic_id=ids["d"]),
            dt.DeleteTopicState(),
            dt.DeleteTopicState(name="ghost"),
            dt.DeleteTopicState(topic_id=b"\x05" * 16),
        ]
        response = await channel.request(dt.DeleteTopicsRequest(topics=states, timeout_ms=5_000))
        assert errors(response.responses) == [
            ("INVALID_REQUEST", "Neither topic name nor id were specified."),
            ("INVALID_REQUEST", "The provided topic name maps to an ID that was already supplied."),
            ("INVALID_REQUEST", "You may not specify both topic name and topic id."),
            ("NONE", None),
            ("NONE", None),
            ("UNKNOWN_TOPIC_ID", "This server does not host this topic ID."),
            ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."),
        ]
        assert set(node.metadata.loader.image.topics.names) == {"c", "d"}
        old = await channel.request(dt.DeleteTopicsRequest(topic_names=["c", "c", "d"], timeout_ms=5_000), version=4)
        assert sorted(each.error_code for each in old.responses) == [0, ErrorCode.INVALID_REQUEST]
        assert set(node.metadata.loader.image.topics.names) == {"c"}


async def test_deleting_can_be_switched_off(tmp_path: Path) -> None:
    async with connected(tmp_path) as (node, channel):
        await create(channel, "a")
        object.__setattr__(node.node.controller.settings, "delete_topic_enable", False)
        request = dt.DeleteTopicsRequest(topic_names=["a"], timeout_ms=5_000)
        assert (await channel.request(request, version=4)).responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert (await channel.request(request, version=2)).responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_partitions_asked_for_twice_are_not_added(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, channel):
        await create(channel, "a")
        topics = [CreatePartitionsTopic(name="a", count=count, assignments=None) for count in (5, 6)]
        response = await channel.request(CreatePartitionsRequest(topics=topics, timeout_ms=5_000))
        assert errors(response.results) == [("INVALID_REQUEST", "Duplicate topic name.")]


@pytest.mark.parametrize(
    ("kind", "configs", "message"),
    [
        (2, [("retention.ms", 0, None)], "Null value not supported for : retention.ms"),
        (2, [("retention.ms", 0, "1"), ("retention.ms", 0, "2")], "Error due to duplicate config keys"),
        (99, [("a", 0, "b")], "Unknown resource type 99"),
        (8, [("root", 0, "INFO")], "Unexpected resource type BROKER_LOGGER."),
    ],
)
async def test_senseless_config_changes_are_refused(
    kind: int, configs: list[tuple[str, int, str | None]], message: str, tmp_path: Path
) -> None:
    async with connected(tmp_path) as (_, channel):
        await create(channel, "1")
        changes = [iac.AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in configs]
        resource = iac.AlterConfigsResource(resource_type=kind, resource_name="1", configs=changes)
        response = await channel.request(iac.IncrementalAlterConfigsRequest(resources=[resource]))
        assert errors(response.responses) == [("INVALID_REQUEST", message)]
        twice = await channel.request(iac.IncrementalAlterConfigsRequest(resources=[resource, resource]))
        assert errors(twice.responses) == [("INVALID_REQUEST", "Duplicate resource.")]


async def test_without_an_authorizer_there_are_no_acls_to_change(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, channel):
        made = await channel.request(create_acls.CreateAclsRequest(creations=[create_acls.AclCreation()]))
        gone = await channel.request(delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter()]))
        for result in (made.results[0], gone.filter_results[0]):
            assert (result.error_code, result.error_message) == (
                ErrorCode.SECURITY_DISABLED,
                "No Authorizer is configured.",
            )


async def test_a_controller_describes_controllers_and_nothing_else(tmp_path: Path) -> None:
    async with connected(tmp_path) as (node, channel):
        await node.wait(lambda: 1 in node.metadata.loader.image.cluster.controllers)
        response = await channel.request(describe_cluster.DescribeClusterRequest(endpoint_type=2))
        assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, 1)
        assert [(each.broker_id, each.port) for each in response.brokers] == [(1, node.port)]
        wrong = await channel.request(describe_cluster.DescribeClusterRequest(endpoint_type=1))
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"request_principal": b"\x00\x09junk"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"123"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"\x00\x13\x00\x63\x00\x00\x00\x01\xff\xff\x00"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": b"\x00\x3f\x00\x01\x00\x00\x00\x01\xff\xff\x00"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"\x00\x13\x00\x02\x00\x00\x00\x01\xff\xff\x7f\xff"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"\x00"}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_bad_envelope_is_answered_and_the_connection_lives_on(
    fields: dict[str, Any], code: ErrorCode, tmp_path: Path
) -> None:
    async with connected(tmp_path) as (_, channel):
        given: dict[str, Any] = {
            "request_data": b"\x00\x13\x00\x02\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00",
            "request_principal": b"\x00\x00\x05User\x02a\x00\x00",
            "client_host_address": b"\x7f\x00\x00\x01",
        }
        answer = await channel.request(envelope.EnvelopeRequest(**given | fields))
        assert ErrorCode(answer.error_code) is code
        good = await channel.request(envelope.EnvelopeRequest(**given))
        assert (good.error_code, good.response_data) == (0, b"\x00\x00\x00\x01" + bytes(8))


async def test_the_quorum_is_described_through_an_envelope_too(tmp_path: Path) -> None:
    from tests.broker.cluster.test_lifecycle import Client

    async with connected(tmp_path) as (node, _):
        topics = [TopicDataRequest(topic_name="__cluster_metadata", partitions=[PartitionIndex(partition_index=0)])]
        context = RequestContext(ApiKey.DESCRIBE_QUORUM, 2, "tool", Client())
        response = await forwarded(node.channel, context, DescribeQuorumRequest(topics=topics))
        assert response.topics[0].partitions[0].leader_id == 1


def test_what_brokers_forward_is_served() -> None:
    from_quorum = {ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
    tokens = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
    assert {key for key, _ in ROUTES} >= FORWARDABLE - from_quorum - tokens, "tokens are another issue's"
