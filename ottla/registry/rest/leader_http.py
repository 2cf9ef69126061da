"""A request to the leader over HTTP, on a thread. Of the files for forwarding only this one uses the network."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import Mapping
from contextlib import suppress
from ssl import SSLContext
from typing import NamedTuple

from ottla.registry.client import ANSWER_BYTES_MAX
from ottla.registry.election import Identity

FORWARD_S = 60.0


class HttpQuestion(NamedTuple):
    """A request to forward. The target is path and query, escaped once."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """A complete response. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def ask(leader: Identity, tls: SSLContext | None, question: HttpQuestion) -> HttpAnswer:
    """Send a request and return the response.

    If the call is cancelled, it closes the connection: otherwise a stopped leader would hold the thread for FORWARD_S.

    Raises:
        OSError, ValueError: there is no response, or it is incomplete.
    """
    exchange = _Exchange(leader, tls)
    asking = asyncio.ensure_future(asyncio.to_thread(exchange.ask, question))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        exchange.give_up()
        raise


class _Exchange:
    def __init__(self, leader: Identity, tls: SSLContext | None) -> None:
        address = (leader.host, leader.port)
        self._connection = (
            http.client.HTTPConnection(*address, timeout=FORWARD_S)
            if leader.scheme == "http"
            else http.client.HTTPSConnection(*address, timeout=FORWARD_S, context=tls)
        )
        self._given_up = False

    def ask(self, question: HttpQuestion) -> HttpAnswer:
        connection = self._connection
        try:
            connection.connect()
            if self._given_up:  # it came before there was a socket to shut down
                raise ConnectionError("given up")
            connection.request(question.method, question.target, question.body or None, dict(question.headers))
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
            if len(body) < int(response.headers.get("content-length") or 0):
                # Without this check it would look like a short body.
                raise ConnectionError("the leader has ended in the middle of its answer")
            return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, body)
        except http.client.HTTPException as fault:
            raise ConnectionError(f"the answer is no HTTP: {fault!r}") from None
        finally:
            connection.close()

    def give_up(self) -> None:
        """Let `ask` end soon. Only a connection that is being made is waited for."""
        self._given_up = True
        with suppress(OSError, AttributeError):  # there is no socket yet, or no longer
            self._connection.sock.shutdown(socket.SHUT_RDWR)
