"""A client that sends bad input is the only one that suffers, and the next request of another connection is served."""

from __future__ import annotations

import contextlib
import struct
from random import Random

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import Node

TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)


def served(node: Node) -> bool:
    with node.wire() as wire:
        return bool(wire.request(MetadataRequest(topics=[]), 9).brokers)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1) + b"x" * 100, id="oversize"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="too short for a header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", id="HTTP"),
        pytest.param(TLS_HELLO, id="TLS"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown API"),
        pytest.param(struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, ApiKey.PRODUCE, 2, 1, -1), id="version before the first"),
        pytest.param(struct.pack(">ihhih", 10, ApiKey.PRODUCE, 9, 1, 500) + b"", id="client id beyond the frame"),
        pytest.param(
            struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 2**31 - 1), id="array count beyond the frame"
        ),
        pytest.param(
            struct.pack(">ihhih", 14, ApiKey.METADATA, 9, 1, -1) + b"\0\xff\xff\xff", id="compact count beyond"
        ),
        pytest.param(struct.pack(">ihhih", 10 + 200, ApiKey.FETCH, 11, 1, -1) + b"\xff" * 200, id="garbage body"),
    ],
)
def test_a_frame_that_cannot_be_closes_its_connection_only(node: Node, data: bytes) -> None:
    with node.wire() as innocent, node.wire() as wire:
        wire.send_raw(data)
        assert wire.closed_by_server()
        assert innocent.request(MetadataRequest(topics=[]), 9).brokers


def test_random_bytes_never_take_the_node_down(node: Node) -> None:
    rng = Random(1)
    for _ in range(50):
        with node.wire() as wire:
            body = struct.pack(">hhih", rng.randrange(96), rng.randrange(14), 1, -1) + rng.randbytes(60)
            wire.send_raw(struct.pack(">i", len(body)) + body)
            wire.sock.settimeout(0.02)
            with contextlib.suppress(TimeoutError, ConnectionError):
                wire.sock.recv(100)
    assert served(node)


def test_a_frame_cut_off_in_the_middle_costs_nothing(node: Node) -> None:
    for _ in range(20):
        with node.wire() as wire:
            wire.send_raw(struct.pack(">i", 100_000_000) + b"a little")
    assert served(node)


def test_api_versions_lists_exactly_what_is_served(node: Node) -> None:
    with node.wire() as wire:
        answer = wire.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert versions[ApiKey.PRODUCE] == (0, 13)  # KAFKA-18659
        assert versions[ApiKey.FETCH] == (4, 18)
        assert ApiKey.VOTE not in versions
        assert ApiKey.ALTER_PARTITION not in versions


def test_an_unknown_version_of_api_versions_is_answered_in_v0(node: Node) -> None:
    with node.wire() as wire:
        wire.send_raw(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 7, -1))
        frame = wire.receive_frame()
        assert frame is not None
        assert struct.unpack_from(">ih", frame) == (7, ErrorCode.UNSUPPORTED_VERSION)


def test_an_api_that_is_not_served_gets_an_error_and_no_hang(node: Node) -> None:
    with node.wire() as wire:
        refused = wire.request(AlterPartitionRequest(broker_id=1), 3)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250, "\u00e4"])
def test_a_topic_of_an_illegal_name_is_not_created(node: Node, name: str) -> None:
    with node.wire() as wire:
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
        assert wire.request(request).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
