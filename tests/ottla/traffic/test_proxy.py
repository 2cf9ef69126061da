"""The proxy between a client and a broker that the test plays: addresses, order, logins, and hostile or slow peers."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.api import APIS, ApiKey, encode_request_header, response_header_version
from ottla.protocol.compile import decode, encode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.messages.shared_structs import NodeEndpoint
from ottla.server.network.listener import HANDSHAKE_MS_MAX, LINGER_MS
from ottla.traffic import proxy, relay
from ottla.traffic.addresses import ADDRESSED, has_addresses
from ottla.traffic.messages import read_response_message
from tests.ottla.traffic.conftest import HOST, WAIT_S, Peer, Stage, playing

#: A broker that the proxy does not know before this response.
NEW = 31_999


def request(key: ApiKey, version: int, body: Any, correlation_id: int = 5) -> bytes:
    return encode_request_header(key, version, correlation_id, "c") + encode(body, version)


def response(key: ApiKey, version: int, body: Any, correlation_id: int = 5) -> bytes:
    tags = b"\0" if response_header_version(key, version) else b""
    return correlation_id.to_bytes(4, "big") + tags + encode(body, version)


def heartbeat(correlation_id: int) -> bytes:
    return request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(), correlation_id)


def beaten(correlation_id: int) -> bytes:
    return response(ApiKey.HEARTBEAT, 4, HeartbeatResponse(), correlation_id)


async def both(stage: Stage) -> tuple[Peer, Peer]:
    client = await stage.client()
    return client, await stage.broker()


def addressed(key: ApiKey, version: int, port: int) -> tuple[Any, Any]:
    """A request of the API, and a response with one broker."""
    match key:
        case ApiKey.METADATA:
            return MetadataRequest(), MetadataResponse(brokers=[MetadataResponseBroker(7, HOST, port)])
        case ApiKey.FIND_COORDINATOR:
            found = Coordinator("g", 7, HOST, port)
            old = FindCoordinatorResponse(node_id=7, host=HOST, port=port)
            return FindCoordinatorRequest(), old if version < 4 else FindCoordinatorResponse(coordinators=[found])
        case ApiKey.DESCRIBE_CLUSTER:
            return DescribeClusterRequest(), DescribeClusterResponse(brokers=[DescribeClusterBroker(7, HOST, port)])
        case ApiKey.PRODUCE:
            return ProduceRequest(acks=1), ProduceResponse(node_endpoints=[NodeEndpoint(7, HOST, port)])
        case ApiKey.FETCH:
            return FetchRequest(), FetchResponse(node_endpoints=[NodeEndpoint(7, HOST, port)])
        case ApiKey.SHARE_FETCH:
            return ShareFetchRequest(), ShareFetchResponse(node_endpoints=[NodeEndpoint(7, HOST, port)])
        case _:
            return ShareAcknowledgeRequest(), ShareAcknowledgeResponse(node_endpoints=[NodeEndpoint(7, HOST, port)])


@pytest.mark.parametrize("key", [ApiKey(key) for key in ADDRESSED])
async def test_each_address_of_each_version_leads_to_the_proxy(stage: Stage, key: ApiKey) -> None:
    client, broker = await both(stage)
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        if not has_addresses(key, version):
            continue
        asked, answered = addressed(key, version, stage.broker_port)
        client.send(request(key, version, asked))
        assert await broker.receive() == request(key, version, asked)
        broker.send(response(key, version, answered))
        _, expected = addressed(key, version, stage.port)
        assert read_response_message(key, version, await client.receive()).body == expected
        assert stage.tap.responses[-1] == response(key, version, answered), "recorded as the broker has sent it"


async def test_a_broker_that_is_new_gets_a_port_before_the_client_reads_of_it(stage: Stage) -> None:
    client, broker = await both(stage)
    client.send(request(ApiKey.METADATA, 12, MetadataRequest(None)), heartbeat(6))
    for _ in range(2):
        await broker.receive()
    found = [MetadataResponseBroker(7, HOST, stage.broker_port), MetadataResponseBroker(8, HOST, NEW)]
    broker.send(response(ApiKey.METADATA, 12, MetadataResponse(brokers=found)), beaten(6))
    brokers = read_response_message(ApiKey.METADATA, 12, await client.receive()).body.brokers
    assert await client.receive() == beaten(6), "and what came behind it keeps its place"
    assert brokers[0].port == stage.port
    assert brokers[1].port not in (NEW, stage.port)
    # The broker cannot be reached: its client is disconnected, and the user reads why.
    other = await stage.client(brokers[1].port)
    assert await other.is_closed()
    assert any(str(NEW) in note for note in stage.notes)


async def test_apis_with_addresses_are_not_advertised_beyond_what_can_be_rewritten(stage: Stage) -> None:
    client, broker = await both(stage)
    known = APIS[ApiKey.METADATA].max_version
    for offered, expected in ((known, known), (known + 1, known)):
        rows = [ApiVersion(ApiKey.METADATA, 0, offered), ApiVersion(ApiKey.HEARTBEAT, 0, 99), ApiVersion(500, 0, 3)]
        client.send(request(ApiKey.API_VERSIONS, 4, ApiVersionsRequest()))
        await broker.receive()
        broker.send(response(ApiKey.API_VERSIONS, 4, ApiVersionsResponse(api_keys=rows)))
        got = decode(ApiVersionsResponse, (await client.receive())[4:], 4)
        assert [row.max_version for row in got.api_keys] == [expected, 99, 3]


async def test_an_unknown_api_passes_and_is_recorded_as_it_is(stage: Stage) -> None:
    client, broker = await both(stage)
    unknown = (500).to_bytes(2, "big") + bytes(2) + (9).to_bytes(4, "big") + b"whatever"
    client.send(unknown)
    assert await broker.receive() == unknown
    broker.send((9).to_bytes(4, "big") + b"yes")
    assert await client.receive() == (9).to_bytes(4, "big") + b"yes"
    assert stage.tap.requests == [unknown]
    assert stage.tap.responses == [(9).to_bytes(4, "big") + b"yes"]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_a_produce_without_an_acknowledgement_is_not_waited_for(stage: Stage, version: int) -> None:
    client, broker = await both(stage)
    client.send(request(ApiKey.PRODUCE, version, ProduceRequest("a-transactional-id", acks=0), 1), heartbeat(1))
    for _ in range(2):
        await broker.receive()
    broker.send(beaten(1))
    assert await client.receive() == beaten(1)
    assert stage.tap.responses == [beaten(1)]


async def test_tokens_of_a_login_without_headers_pass_and_are_not_recorded(stage: Stage) -> None:
    client, broker = await both(stage)
    handshake = encode_request_header(ApiKey.SASL_HANDSHAKE, 0, 1, "c") + b"\0\5PLAIN"
    client.send(handshake)
    await broker.receive()
    broker.send((1).to_bytes(4, "big") + bytes(2) + bytes(4))
    await client.receive()
    for token in (b"\0alice\0hunter2-hunter2", b"\0A\0hunter2-hunter2", b"n,,n=alice,r=hunter2-hunter2", b"x"):
        client.send(token)
        assert await broker.receive() == token
        broker.send(b"hunter2-back")
        assert await client.receive() == b"hunter2-back"
    client.send(heartbeat(2))
    await broker.receive()
    broker.send(beaten(2))
    assert await client.receive() == beaten(2)
    assert stage.tap.requests == [handshake, heartbeat(2)]
    assert not any(b"hunter2" in frame for frame in stage.tap.responses)


async def test_garbage_of_a_client_closes_its_connection_alone(stage: Stage) -> None:
    client, broker = await both(stage)
    hostile, its_broker = await both(stage)
    hostile.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await hostile.is_closed()
    assert await its_broker.is_closed()
    client.send(heartbeat(1))
    assert await broker.receive() == heartbeat(1)
    broker.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert await client.is_closed()


async def test_a_side_that_hangs_up_takes_the_other_with_it(stage: Stage) -> None:
    for leaves in range(2):
        ends = await both(stage)
        ends[leaves].writer.close()
        assert await ends[1 - leaves].is_closed()
    async with asyncio.timeout(WAIT_S):
        while len(stage.tap.closings) < 2:
            stage.tap.changed.clear()
            await stage.tap.changed.wait()
    assert sorted(stage.tap.closings) == [1, 2]


async def test_a_broker_that_does_not_read_lets_the_client_wait(stage: Stage) -> None:
    """Otherwise a fast client would fill the proxy's memory."""
    client, broker = await both(stage)
    reading: Any = broker.writer.transport
    reading.pause_reading()
    frame = request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(), 1) + bytes(1_000_000)
    sent = 0
    for _ in range(200):
        client.send(frame)
        try:
            async with asyncio.timeout(0.3):
                await client.writer.drain()
        except TimeoutError:
            break
        sent += 1
    assert sent < 100, "the client could send all of it"
    assert len(stage.tap.requests) < 100
    reading.resume_reading()
    for _ in range(sent + 1):
        assert await broker.receive() == frame


async def test_the_oldest_request_gives_way_to_more_than_are_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "IN_FLIGHT_MAX", 2)
    client, broker = await both(stage)
    client.send(*map(heartbeat, range(4)))
    for _ in range(4):
        await broker.receive()
    broker.send(*map(beaten, range(4)))
    assert [await client.receive() for _ in range(4)] == list(map(beaten, range(4)))
    assert stage.tap.responses == [beaten(2), beaten(3)]


async def test_a_response_that_names_too_many_brokers_opens_no_more_ports(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "BROKERS_MAX", 3)
    client, broker = await both(stage)
    client.send(request(ApiKey.METADATA, 12, MetadataRequest(None)))
    await broker.receive()
    named = [MetadataResponseBroker(i, HOST, 20_000 + i) for i in range(6)]
    broker.send(response(ApiKey.METADATA, 12, MetadataResponse(brokers=named)))
    got = read_response_message(ApiKey.METADATA, 12, await client.receive()).body.brokers
    assert [each.port == 20_000 + i for i, each in enumerate(got)] == [False, False, True, True, True, True]
    assert len(stage.notes) == 1


async def test_a_client_of_tls_that_says_nothing_is_closed_when_a_handshake_would_be_late() -> None:
    async with playing(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as stage:
        silent = await stage.client()
        await until(lambda: stage.proxy._open)
        stage.clock.advance(HANDSHAKE_MS_MAX - 1)
        assert stage.proxy._open == 1
        stage.clock.advance(1)
        assert await silent.is_closed()
        await gone(stage)
    assert any("was not complete in time" in note for note in stage.notes) and stage.brokers.empty()


@pytest.mark.parametrize("said", [b"", b"\0\0\1"])
async def test_a_connection_without_a_whole_request_is_closed_as_a_node_closes_idle_ones(
    stage: Stage, said: bytes
) -> None:
    client, broker = await both(stage)
    await until(lambda: stage.tap.ends)
    client.writer.write(said)
    stage.clock.advance(relay.IDLE_MS_MAX)
    assert await client.is_closed() and await broker.is_closed()
    await gone(stage)


async def test_a_connection_is_idle_from_its_last_frame_on_and_not_while_a_request_is_in_flight(stage: Stage) -> None:
    client, broker = await both(stage)
    client.send(heartbeat(1))
    assert await broker.receive() == heartbeat(1)
    stage.clock.advance(2 * relay.IDLE_MS_MAX)
    broker.send(beaten(1))
    assert await client.receive() == beaten(1)
    stage.clock.advance(relay.IDLE_MS_MAX - 1)
    client.send(heartbeat(2))
    assert await broker.receive() == heartbeat(2)
    broker.send(beaten(2))
    assert await client.receive() == beaten(2)
    stage.clock.advance(relay.IDLE_MS_MAX)
    assert await client.is_closed() and await broker.is_closed()


async def test_a_client_that_does_not_read_its_last_bytes_is_not_waited_for(stage: Stage) -> None:
    client, broker = await both(stage)
    client.send(heartbeat(1), heartbeat(2))
    await broker.receive()
    broker.send(beaten(1) + bytes(64 * 1024 * 1024))
    await broker.writer.drain()
    await until(lambda: len(stage.tap.responses) == 1)
    stage.clock.advance(relay.IDLE_MS_MAX)
    await until(lambda: stage.tap.closings == [1])
    assert stage.proxy._open == 1, "its last bytes are kept for it"
    stage.clock.advance(LINGER_MS)
    await gone(stage)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(0.001)  # the kernel's socket buffers are between the test and the proxy


async def gone(stage: Stage) -> None:
    """Wait until the proxy has no descriptor of a client any more."""
    await until(lambda: not stage.proxy._open)
