"""A node that advertises an older release serves clients what that release has, and other nodes everything."""

from __future__ import annotations

import pytest

from ottla.protocol.api import decode_response_header
from ottla.protocol.compile import decode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.releases import NODE_SOFTWARE, RELEASES, Advertised
from ottla.server.network.limited_dispatch import LimitedDispatcher
from tests.server.tiny_node import API_VERSIONS, HEARTBEAT, RawClient, heartbeat, request, tiny_node

OLD = Advertised(RELEASES["2.1.1"])  # Heartbeat up to 2, ApiVersions up to 2


async def versions(client: RawClient, version: int, name: str = "rdkafka") -> ApiVersionsResponse:
    client.send(request(API_VERSIONS, version, ApiVersionsRequest(name, "1")))
    frame = await client.frame()
    return decode(ApiVersionsResponse, frame[4:], 0 if frame[4:6] == b"\0\x23" else version)


async def beats(client: RawClient, version: int) -> bool:
    client.send(heartbeat(version=version, generation_id=7))
    frame = await client.frame()
    _, pos = decode_response_header(frame, 0, len(frame), flexible=version >= 4)
    return decode(HeartbeatResponse, frame[pos:], version).error_code == 7


async def test_a_client_is_served_the_versions_of_the_release() -> None:
    async with tiny_node(advertised=OLD) as tiny:
        assert isinstance(tiny.dispatcher, LimitedDispatcher)
        client = await tiny.client()
        listed = {row.api_key: (row.min_version, row.max_version) for row in (await versions(client, 2)).api_keys}
        assert (listed[HEARTBEAT], listed[API_VERSIONS]) == ((0, 2), (0, 2))
        assert all([await beats(client, version) for version in range(3)])


async def test_a_newer_version_of_apiversions_is_answered_with_those_that_the_release_has() -> None:
    async with tiny_node(advertised=OLD) as tiny:
        client = await tiny.client()
        refused = await versions(client, 3)
        assert (refused.error_code, refused.api_keys[0].max_version) == (35, 2)
        assert (await versions(client, 0)).error_code == 0


@pytest.mark.parametrize(
    "frame", [heartbeat(version=3), heartbeat(version=4), request(68, 0, b""), request(999, 0, b"")]
)
async def test_what_the_release_has_not_closes_the_connection(frame: bytes) -> None:
    async with tiny_node(advertised=OLD) as tiny:
        client = await tiny.client()
        client.send(frame)
        assert await client.is_closed_by_peer()
        assert not tiny.heartbeats.members


async def test_a_node_is_known_by_its_software_and_served_all_versions() -> None:
    async with tiny_node(advertised=OLD) as tiny:
        node, client = await tiny.client(), await tiny.client()
        listed = {row.api_key: row.max_version for row in (await versions(node, 3, NODE_SOFTWARE)).api_keys}
        assert (listed[HEARTBEAT], listed[API_VERSIONS]) == (4, 5)
        assert await beats(node, 4)
        client.send(heartbeat(version=4))
        assert await client.is_closed_by_peer(), "what one connection has said is not another's"


@pytest.mark.parametrize("body", [b"", b"\xff" * 9, b"\x0bottla-node", b"\x01\x01\0"])
async def test_an_introduction_that_cannot_be_read_is_no_nodes(body: bytes) -> None:
    async with tiny_node(advertised=OLD) as tiny:
        client = await tiny.client()
        client.send(request(API_VERSIONS, 3, body))
        frame = await client.frame()
        assert frame[4:6] == b"\0\x23", "as of a client: UNSUPPORTED_VERSION in v0"
