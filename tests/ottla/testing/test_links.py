"""Slow links, with an echo in place of a node."""

from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from ottla.local.nodes import HOST, LocalNode
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
        links = Links([LocalNode(1, port, port, port, "unused")])
        yield links
        links.close()
        server.shutdown()


@pytest.fixture
def client(links: Links) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, links.advertised_port(1)), 60) as client:
        echo(client, 1)
        yield client


def echo(client: socket.socket, size: int) -> float:
    """Return the seconds until this many bytes have come back."""
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
    for _ in range(100):
        client.sendall(b"x")
        time.sleep(0.01)
    left = 100
    while left:
        left -= len(client.recv(left))
    assert 0.3 < time.monotonic() - began < 20.0  # one after the other they would take thirty seconds


def test_no_more_bytes_pass_than_the_bandwidth_lets_through(links: Links, client: socket.socket) -> None:
    links.slow([TO], None, 100_000)
    assert echo(client, 50_000) >= 0.4


def test_mended_links_are_as_fast_as_before(links: Links, client: socket.socket) -> None:
    links.slow([TO, BACK], 60.0, 10)
    links.mend()
    assert echo(client, 1_000) < 50.0


def test_links_that_close_while_a_client_connects_leave_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abandoned task raised an exception in its destructor, in whatever test the garbage was collected."""
    links = Links([LocalNode(1, 1, 1, 1, "unused")])
    links.cut(TO)
    loop, connects, closes = links._loop, threading.Event(), threading.Event()

    def turn(begins: threading.Event) -> None:
        begins.set()
        time.sleep(0.2)

    def two_turns() -> None:
        loop.call_soon(turn, closes)  # in the next turn, and before it accepts
        turn(connects)

    loop.call_soon_threadsafe(two_turns)
    connects.wait()
    with socket.create_connection((HOST, links.advertised_port(1)), 5):
        closes.wait()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "close", lambda: None)
            links.close()
        left = asyncio.all_tasks(loop)
    loop.close()
    assert not left


def test_what_is_under_way_on_a_slow_link_arrives_as_soon_as_the_link_is_mended(
    links: Links, client: socket.socket
) -> None:
    links.slow([TO, BACK], 3_000, None)
    mending = threading.Timer(0.1, links.mend)
    mending.start()
    assert echo(client, 1) < 60
    mending.join()


def test_links_are_again_as_they_were(links: Links, client: socket.socket) -> None:
    links.slow([BACK], 0.2, None)
    before = links.states()
    links.cut(TO)
    links.slow([TO, BACK], 0.0, 1_000)
    links.restore(before)
    assert links.states() == before
    assert 0.2 <= echo(client, 10_000) < 10
    links.restore({})
    assert links.states() == {}
