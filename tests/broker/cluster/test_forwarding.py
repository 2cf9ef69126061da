"""Clients' requests that a broker forwards (KIP-590), over real connections: client, broker, controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cluster.channels import ControllerAddress, ControllerChannel, forward
from ottla.controller.raft.metadata_log import TOPIC as METADATA_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.server.network.route import Route
from ottla.server.world import RealWorld
from tests.controller.node import Node, forwarded, running
from tests.ports import free_ports
from tests.server.tiny_node import TinyNode, request, tiny_node, until

VERSION = 7
CORRELATION_ID = 77
RESPONSE_HEADER_BYTES = 5
NO_TAGS = b"\0"
#: One tagged field, number 9, of three bytes, as a later version of Kafka might have it.
A_TAG = b"\x01\x09\x03new"
TWO_TOPICS = CreateTopicsRequest(
    topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("orders", "no good")]
)
Answer = Callable[[EnvelopeRequest], Any]


class FakeController:
    """Keeps the envelopes that arrive, and answers them as the test says."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.envelopes: list[EnvelopeRequest] = []

    async def handle(self, envelope: EnvelopeRequest, context: Any) -> Any:
        self.envelopes.append(envelope)
        answer = self.answer(envelope)
        return await answer if asyncio.iscoroutine(answer) else answer


@asynccontextmanager
async def fake_controller(answer: Answer) -> AsyncIterator[tuple[FakeController, TinyNode]]:
    fake = FakeController(answer)
    served = Route(ApiKey.CREATE_TOPICS, lambda request, context: None, max_version=VERSION - 1)
    async with tiny_node(Route(ApiKey.ENVELOPE, fake.handle), served) as node:
        yield fake, node


@asynccontextmanager
async def broker(locate: Callable[[], ControllerAddress | None]) -> AsyncIterator[tuple[TinyNode, ControllerChannel]]:
    """A listener that forwards to the controller that `locate` returns."""
    real = RealWorld(asyncio.get_running_loop())
    channel = ControllerChannel(real.world, 9, locate)
    apis = (ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_QUORUM, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    try:
        async with tiny_node(*(Route(api, partial(forward, channel), takes_frame=True) for api in apis)) as node:
            node.api_versions.controller_versions = lambda: channel.versions
            yield node, channel
    finally:
        channel.close()
        await real.close()


def at(port: int) -> Callable[[], ControllerAddress]:
    return lambda: ControllerAddress(1, "127.0.0.1", port)


def create_topics(tags: bytes = NO_TAGS, correlation_id: int = CORRELATION_ID) -> bytes:
    """Return a frame whose body, or whose body's last struct, ends with these tagged fields."""
    return request(ApiKey.CREATE_TOPICS, VERSION, encode(TWO_TOPICS, VERSION)[:-1] + tags, correlation_id)


def answer_body(tags: bytes = NO_TAGS) -> bytes:
    return encode(CreateTopicsResponse(topics=[CreatableTopicResult(name="orders")]), VERSION)[:-1] + tags


def answered(body: bytes, correlation_id: int = CORRELATION_ID) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=correlation_id.to_bytes(4, "big") + NO_TAGS + body)


def errors(frame: bytes) -> list[tuple[str, ErrorCode]]:
    assert int.from_bytes(frame[:4], "big") == CORRELATION_ID
    response = decode(CreateTopicsResponse, frame[RESPONSE_HEADER_BYTES:], VERSION)
    return [(topic.name, ErrorCode(topic.error_code)) for topic in response.topics]


async def test_an_unknown_tagged_field_of_a_request_reaches_the_controller() -> None:
    async with fake_controller(lambda _: answered(answer_body())) as (fake, node), broker(at(node.port)) as (front, _):
        client = await front.client()
        sent = create_topics(A_TAG)
        client.send(sent)
        await client.frame()
        (envelope,) = fake.envelopes
        assert envelope.request_data == sent[4:], "byte by byte, from the header to the end"
        assert envelope.client_host_address == b"\x7f\0\0\1"
        client.close()


async def test_an_unknown_tagged_field_of_a_response_reaches_the_client() -> None:
    async with (
        fake_controller(lambda _: answered(answer_body(A_TAG))) as (_, node),
        broker(at(node.port)) as (front, _),
    ):
        client = await front.client()
        client.send(create_topics())
        assert await client.frame() == CORRELATION_ID.to_bytes(4, "big") + NO_TAGS + answer_body(A_TAG)
        client.close()


async def test_a_real_controller_reads_past_what_it_does_not_know(tmp_path: Path) -> None:
    async with running(tmp_path) as node, broker(at(node.port)) as (front, _):
        client = await front.client()
        client.send(create_topics(A_TAG))
        assert errors(await client.frame()) == [
            ("orders", ErrorCode.NONE),
            ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]
        client.send(create_topics())
        assert errors(await client.frame())[0] == ("orders", ErrorCode.TOPIC_ALREADY_EXISTS)
        client.close()


async def test_a_forwarded_request_with_a_spare_byte_at_its_end_is_served(tmp_path: Path) -> None:
    """librdkafka 2.16 ends AlterUserScramCredentials with a spare byte, which Apache Kafka ignores."""
    async with running(tmp_path) as node, broker(at(node.port)) as (front, _):
        client = await front.client()
        client.send(create_topics(NO_TAGS + b"\0"))
        assert errors(await client.frame())[0] == ("orders", ErrorCode.NONE)
        client.close()


async def test_answers_come_under_the_clients_own_correlation_ids(tmp_path: Path) -> None:
    async with running(tmp_path) as node, broker(at(node.port)) as (front, _):
        one, other = await front.client(), await front.client()
        for number in range(3):
            one.send(create_topics(correlation_id=1000 + number))
            other.send(create_topics(correlation_id=5 - number))
        assert await one.correlation_ids(3) == [1000, 1001, 1002]
        assert await other.correlation_ids(3) == [5, 4, 3]
        one.close()
        other.close()


async def test_a_client_id_that_is_no_utf8_is_forwarded_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as node, broker(at(node.port)) as (front, _):
        client = await front.client()
        client.send(create_topics().replace(b"test", b"t\xffst"))
        assert errors(await client.frame())[0] == ("orders", ErrorCode.NONE)
        client.close()


async def test_not_controller_is_asked_again_where_the_controller_is_now() -> None:
    refused = EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    async with (
        fake_controller(lambda _: refused) as (former, former_node),
        fake_controller(lambda _: answered(answer_body())) as (active, active_node),
    ):
        port = former_node.port
        async with broker(lambda: ControllerAddress(1, "127.0.0.1", port)) as (front, channel):
            client = await front.client()
            client.send(create_topics())
            await until(lambda: len(former.envelopes) > 1)
            port = active_node.port
            channel.leader_changed(2, 2)
            assert errors(await client.frame()) == [("orders", ErrorCode.NONE)]
            assert active.envelopes == former.envelopes[:1], "the same bytes"
            client.close()


async def test_not_controller_in_the_answer_itself_is_the_clients_to_read() -> None:
    """The envelope alone says whether the broker has to retry: it does not look into the inner response."""
    topics = [CreatableTopicResult(name="orders", error_code=ErrorCode.NOT_CONTROLLER)]
    body = encode(CreateTopicsResponse(topics=topics), VERSION)
    async with fake_controller(lambda _: answered(body)) as (fake, node), broker(at(node.port)) as (front, _):
        client = await front.client()
        client.send(create_topics())
        assert errors(await client.frame()) == [("orders", ErrorCode.NOT_CONTROLLER)]
        assert len(fake.envelopes) == 1
        client.close()


async def test_a_follower_of_the_quorum_sends_describe_quorum_on_to_its_leader(tmp_path: Path) -> None:
    from ottla.server.network.context import RequestContext
    from tests.broker.cluster.test_lifecycle import Client

    ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
    nodes = {node_id: Node(tmp_path / str(node_id), node_id=node_id, ports=ports) for node_id in ports}
    await asyncio.gather(*(node.start() for node in nodes.values()))
    leader_id = nodes[1].metadata.raft.state.leader_id
    looks = [port for node_id, port in ports.items() if node_id != leader_id] + [ports[leader_id]]
    real = RealWorld(asyncio.get_running_loop())
    # The quorum changes its leader: the first two nodes that get the request are not the leader.
    channel = ControllerChannel(
        real.world, 9, lambda: ControllerAddress(0, "127.0.0.1", looks.pop(0) if len(looks) > 1 else looks[0])
    )
    topics = [TopicDataRequest(METADATA_TOPIC, [PartitionIndex(0)])]
    context = RequestContext(ApiKey.DESCRIBE_QUORUM, 2, "tool", Client())
    response = await forwarded(channel, context, DescribeQuorumRequest(topics=topics))
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, leader_id)
    channel.close()
    await real.close()
    await asyncio.gather(*(node.stop() for node in nodes.values()))


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "unknown"])
async def test_no_controller_in_time_is_the_apis_own_timeout(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.cluster.channels.REQUEST_TIMEOUT_MS", 60)
    never = asyncio.Event()

    async def silence() -> None:
        await never.wait()

    async with fake_controller(lambda _: silence()) as (_, node):
        locate = at(node.port) if silent else lambda: None
        async with broker(locate) as (front, _):
            client = await front.client()
            client.send(create_topics())
            expected = ErrorCode.REQUEST_TIMED_OUT
            assert errors(await client.frame()) == [("orders", expected), ("no good", expected)]
            client.close()
        never.set()


@pytest.mark.parametrize(
    "garbage",
    [
        EnvelopeResponse(response_data=None),
        EnvelopeResponse(response_data=b""),
        EnvelopeResponse(response_data=b"\0\0"),
        EnvelopeResponse(response_data=b"\0\0\0\x4d"),
        EnvelopeResponse(response_data=b"\0\0\0\x4d\x01\x00\x7f"),
        answered(answer_body(), correlation_id=CORRELATION_ID + 1),
        EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST),
        EnvelopeResponse(error_code=12345),
    ],
)
async def test_what_is_wrong_between_broker_and_controller_is_an_unknown_server_error(
    garbage: EnvelopeResponse, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_controller(lambda _: garbage) as (_, node), broker(at(node.port)) as (front, _):
        client = await front.client()
        client.send(create_topics())
        expected = ErrorCode.UNKNOWN_SERVER_ERROR
        assert errors(await client.frame()) == [("orders", expected), ("no good", expected)]
        assert "controller" in "".join(r.getMessage() for r in caplog.records if r.levelname == "ERROR")
        client.close()


async def test_a_version_that_the_controller_does_not_serve_closes_the_clients_connection() -> None:
    unsupported = EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    async with fake_controller(lambda _: unsupported) as (_, node), broker(at(node.port)) as (front, _):
        client = await front.client()
        client.send(create_topics())
        assert await client.is_closed_by_peer()


async def test_a_request_that_cannot_be_decoded_closes_the_clients_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as node, broker(at(node.port)) as (front, _):
        for broken in (b"\xff\xff\xff\xff\x0f", b"\x09", b""):
            client = await front.client()
            client.send(request(ApiKey.CREATE_TOPICS, VERSION, broken))
            assert await client.is_closed_by_peer(), broken
        client = await front.client()
        # The tagged fields of the header claim to go on after the end of the frame.
        cut_short = bytes.fromhex("0013 0007 00000000 0004 66757a7a 02 02 75 00 01")
        client.send(len(cut_short).to_bytes(4, "big") + cut_short)
        assert await client.is_closed_by_peer()
        patient = await front.client()
        patient.send(create_topics())
        assert errors(await patient.frame())[0] == ("orders", ErrorCode.NONE)
        patient.close()


async def test_a_client_learns_the_versions_that_the_controller_serves_too() -> None:
    async with fake_controller(lambda _: answered(answer_body())) as (_, node), broker(at(node.port)) as (front, _):
        client = await front.client()

        async def advertised() -> dict[int, tuple[int, int]]:
            ask = ApiVersionsRequest(client_software_name="c", client_software_version="1")
            client.send(request(ApiKey.API_VERSIONS, 3, ask))
            response = decode(ApiVersionsResponse, (await client.frame())[4:], 3)
            return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

        before = await advertised()
        assert before[ApiKey.CREATE_TOPICS] == (2, VERSION)
        assert ApiKey.ALTER_PARTITION_REASSIGNMENTS in before
        client.send(create_topics())
        await client.frame()
        after = await advertised()
        assert after[ApiKey.CREATE_TOPICS] == (2, VERSION - 1)
        assert ApiKey.ALTER_PARTITION_REASSIGNMENTS not in after
        assert after[ApiKey.HEARTBEAT] == before[ApiKey.HEARTBEAT], "served by the broker itself"
        client.close()
