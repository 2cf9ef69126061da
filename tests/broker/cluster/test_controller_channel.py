"""The way to the active controller, when it changes while a request is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.cluster.channels import LOSSES_MAX, RETRY_MS_MAX, ControllerAddress, ControllerChannel
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.server.world import RealWorld, World
from tests.manual_clock import ManualClock
from tests.server.tiny_node import tiny_node, until


async def test_a_request_to_a_silent_controller_goes_to_the_next_one_as_soon_as_that_is_known() -> None:
    real = RealWorld(asyncio.get_running_loop())
    async with tiny_node() as silent, tiny_node() as successor:
        leader = ControllerAddress(1, "127.0.0.1", silent.port)
        channel = ControllerChannel(real.world, 9, lambda: leader)
        request = HeartbeatRequest(group_id="g", member_id="wait", generation_id=0)
        answer = asyncio.ensure_future(channel.request(request, timeout_ms=30_000))
        await until(lambda: "wait" in silent.heartbeats.waiting)
        leader = ControllerAddress(2, "127.0.0.1", successor.port)
        channel.leader_changed(2, 2)
        await until(lambda: "wait" in successor.heartbeats.waiting)
        successor.heartbeats.waiting["wait"].complete(HeartbeatResponse(error_code=5))
        assert (await answer).error_code == 5
        channel.close()
    await real.close()


@pytest.mark.parametrize("request_", [EnvelopeRequest(b"", None, b"\x7f\0\0\1"), CreateTopicsRequest()])
async def test_a_request_of_a_client_under_which_controllers_end_does_not_end_the_third(request_: object) -> None:
    real = RealWorld(asyncio.get_running_loop())
    ended: list[int] = []

    class EndsByIt(asyncio.Protocol):
        """A controller that answers ApiVersions, and whose process ends at any other request."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            assert isinstance(self.transport, asyncio.Transport)
            if int.from_bytes(data[4:6], "big") == ApiKey.API_VERSIONS:
                rows = [ApiVersion(key, api.min_version, api.max_version) for key, api in APIS.items()]
                answer = data[8:12] + encode(ApiVersionsResponse(api_keys=rows), 3)
                self.transport.write(len(answer).to_bytes(4, "big") + answer)
                return
            ended.append(1)
            self.transport.abort()

    server = await asyncio.get_running_loop().create_server(EndsByIt, "127.0.0.1", 0)
    address = ControllerAddress(1, "127.0.0.1", server.sockets[0].getsockname()[1])
    channel = ControllerChannel(real.world, 9, lambda: address)
    with pytest.raises(KafkaError, match="2 connections to controllers broke") as failed:
        await channel.request(request_, timeout_ms=30_000)
    assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT and len(ended) == LOSSES_MAX
    with pytest.raises(KafkaError, match="no controller answered in time"):
        await channel.request(HeartbeatRequest(group_id="g"), timeout_ms=300)
    own = asyncio.ensure_future(channel.request(HeartbeatRequest(group_id="g"), timeout_ms=30_000))
    before = len(ended)
    await until(lambda: len(ended) > before + LOSSES_MAX)
    assert not own.done(), "what the broker itself wants is sent until its time is over"
    own.cancel()
    await asyncio.wait([own])
    channel.close()
    server.close()
    await real.close()


async def test_connections_that_a_proxy_closes_for_a_controller_that_has_ended_do_not_count_as_lost_requests() -> None:
    real = RealWorld(asyncio.get_running_loop())
    closed: list[int] = []

    class ClosingProxy(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            closed.append(1)
            self.transport.abort()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

    proxy = await asyncio.get_running_loop().create_server(ClosingProxy, "127.0.0.1", 0)
    async with tiny_node() as successor:
        leader = ControllerAddress(1, "127.0.0.1", proxy.sockets[0].getsockname()[1])
        channel = ControllerChannel(real.world, 9, lambda: leader)
        request = asyncio.ensure_future(channel.request(EnvelopeRequest(b"", None, b"\x7f\0\0\1"), timeout_ms=30_000))
        await until(lambda: len(closed) > LOSSES_MAX or request.done())
        leader = ControllerAddress(2, "127.0.0.1", successor.port)
        channel.leader_changed(2, 2)
        with pytest.raises(KafkaError) as answer:
            await request
        assert answer.value.code is ErrorCode.UNSUPPORTED_VERSION, "the successor, who has no envelopes, was asked"
        channel.close()
    proxy.close()
    await real.close()


class Impatient(ManualClock):
    """A clock whose timers are due at once, after their time has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.delays_ms: list[float] = []

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> asyncio.Handle:
        self.delays_ms.append(delay_ms)
        self.now_ms += int(delay_ms)
        return asyncio.get_running_loop().call_soon(callback)


async def test_without_a_controller_a_request_looks_for_one_after_ever_longer_pauses_up_to_a_bound() -> None:
    clock = Impatient()
    channel = ControllerChannel(World(clock, None, None, None, None, None), 9, lambda: None)
    with pytest.raises(KafkaError) as failed:
        await channel.request(HeartbeatRequest(group_id="g"), timeout_ms=10_000)
    assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert clock.delays_ms[:3] == [5, 10, 20]
    assert max(clock.delays_ms) == RETRY_MS_MAX and sum(clock.delays_ms) == 10_000
