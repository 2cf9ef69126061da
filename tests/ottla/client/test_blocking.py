"""The blocking loop of a client's connection, with peers that do not answer as a broker does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ottla.client import blocking
from ottla.client.blocking import BlockingConnection, BlockingSecurity
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.network.wire import AnotherProtocol, RequestLost, UnreadableResponse

VERSIONS = b"\0\0\0\1" + encode(ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 1)]), 3)
OPENING = len(VERSIONS).to_bytes(4, "big") + VERSIONS


@contextmanager
def peer(answers: bytes, *, closes: bool = False) -> Iterator[int]:
    """A peer that sends these bytes to the client that connects, and reads what comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(answers)
                if closes:
                    connection.shutdown(socket.SHUT_WR)
                with suppress(ConnectionResetError):
                    while connection.recv(65536):
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(10)


def connected(port: int, **limits: int) -> BlockingConnection:
    return BlockingConnection("127.0.0.1", port, "me", BlockingSecurity(), **limits)


def test_a_web_server_is_no_kafka_listener() -> None:
    with (
        peer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
        pytest.raises(AnotherProtocol, match="answered with HTTP, so it is no Kafka listener"),
    ):
        connected(port)


def test_a_frame_that_is_larger_than_any_response_is_not_waited_for() -> None:
    with peer(OPENING + (65).to_bytes(4, "big")) as port:
        connection = connected(port, response_bytes_max=64)
        connection.send(MetadataRequest(topics=[]))
        with pytest.raises(AnotherProtocol, match="sent a frame of 65 bytes"):
            connection.receive()
        with pytest.raises(RequestLost):
            connection.send(MetadataRequest(topics=[]))


def test_a_connection_that_ends_in_the_middle_of_a_response_is_lost() -> None:
    with peer(OPENING + (10).to_bytes(4, "big") + b"abc", closes=True) as port:
        connection = connected(port)
        with pytest.raises(RequestLost, match="the broker has closed the connection"):
            connection.call(MetadataRequest(topics=[]))


def test_a_response_to_another_request_ends_the_connection() -> None:
    with peer(OPENING + (8).to_bytes(4, "big") + b"\0\0\0\7" + b"\0" * 4) as port:
        connection = connected(port)
        with pytest.raises(UnreadableResponse, match="correlation id 7 where 2 is due"):
            connection.call(MetadataRequest(topics=[]))
        with pytest.raises(RequestLost):
            connection.send(MetadataRequest(topics=[]))


def test_a_request_that_the_peer_does_not_serve_is_not_sent() -> None:
    with peer(OPENING) as port:
        connection = connected(port)
        with pytest.raises(KafkaError) as refused:
            connection.send(ListGroupsRequest())
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        connection.close()


def test_a_peer_that_says_nothing_costs_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "RESPONSE_SECONDS_MAX", 0.1)
    with peer(b"") as port, pytest.raises(RequestLost, match="timed out"):
        connected(port)
