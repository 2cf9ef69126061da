"""Slow links, with an echo in place of a node."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from ottla.cli.local_nodes import HOST, Node
from ottla.testing.links import CLIENTS, Direction, Links

TO, BACK = Direction(CLIENTS, 1), Direction(1, CLIENTS)


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


@pytest.fixture
def links() -> Iterator[Links]:
    with socketserver.ThreadingTCPServer((HOST, 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        links = Links([Node(1, port, port, port, "unused")])
        yield links
        links.close()
        server.shutdown()


@pytest.fixture
def client(links: Links) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, links.advertised_port(1)), 5) as client:
        echo(client, 1)
        yield client


def echo(client: socket.socket, size: int) -> float:
    """The seconds until so many bytes have come back."""
    began = time.monotonic()
    client.sendall(b"x" * size)
    while size:
        size -= len(client.recv(65536))
    return time.monotonic() - began


def test_latency_is_added_in_each_direction_that_has_it(links: Links, client: socket.socket) -> None:
    links.slow([TO, BACK], 0.2, None)
    assert echo(client, 1) >= 0.4
    links.slow([BACK], 0.0, None)
    assert echo(client, 1) >= 0.2


def test_pieces_that_follow_each_other_share_the_latency(links: Links, client: socket.socket) -> None:
    links.slow([TO], 0.3, None)
    began = time.monotonic()
    for _ in range(20):
        client.sendall(b"x")
        time.sleep(0.01)
    left = 20
    while left:
        left -= len(client.recv(left))
    assert 0.3 < time.monotonic() - began < 3.0  # one after the other they would take six seconds


def test_no_more_bytes_pass_than_the_bandwidth_lets_through(links: Links, client: socket.socket) -> None:
    links.slow([TO], None, 100_000)
    assert echo(client, 50_000) >= 0.4


def test_mended_links_are_as_fast_as_before(links: Links, client: socket.socket) -> None:
    links.slow([TO, BACK], 5.0, 10)
    links.mend()
    assert echo(client, 1_000) < 4.0
