"""A write at an instance that does not lead: the leader answers it, and this instance then has what was written."""

from __future__ import annotations

import asyncio
import hmac
import http.client
import logging
import socket
import time
import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from ssl import SSLContext
from typing import Any, NamedTuple

from starlette.responses import Response

from ottla.registry.client import ANSWER_BYTES_MAX, MEDIA_TYPE
from ottla.registry.election import Identity
from ottla.registry.errors import RegistryError
from ottla.registry.log import LogPlace, place_from
from ottla.registry.members import ANSWERED, SIGNED, Members
from ottla.registry.rest.request import RestCall

logger = logging.getLogger(__name__)

FORWARD_S = 60.0
#: A request that has it is not forwarded again.
FORWARDED = "X-Forward"
#: The header by which the leader says how far an instance must read before it answers for the leader.
OFFSET = "X-Ottla-Offset"
#: What stands in a target as it came.
ASCII = "".join(map(chr, range(33, 127)))
#: Headers of the client that the leader gets.
PASSED = ("content-type", "accept")


class ForwardedAnswer(NamedTuple):
    """The leader's answer, and the place up to which an instance must have read, None if nothing was written."""

    status: int
    place: LogPlace | None
    body: bytes


class Link(NamedTuple):
    """How an instance reaches the leader: by TLS if it serves TLS, and with the members' secret."""

    tls: SSLContext | None = None
    members: Members | None = None


NO_LINK = Link()


async def forward(call: RestCall, leader: Identity, link: Link) -> Response:
    """Let the leader answer, and wait until this instance has what was written.

    Raises:
        RegistryError: it was forwarded already, the leader cannot be reached, or another instance leads meanwhile. The write may have
            been made.
    """
    if call.request.headers.get(FORWARDED):
        raise RegistryError("no_leader")
    if link.tls is not None and leader.scheme != "https":
        raise RegistryError("forwarding", "The leader has no certificate, and nothing is forwarded to it in clear")
    if link.members is None and not call.access.is_open:
        raise RegistryError("forwarding", "Instances with logins forward writes only with --secret-file")
    question = ForwardedQuestion(leader, link)
    asking = asyncio.ensure_future(asyncio.to_thread(question.ask, call))
    replaced = asyncio.ensure_future(call.registry.until_another_leads(leader))
    try:
        await asyncio.wait({asking, replaced}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise ConnectionError("another instance leads")
        answer = asking.result()
    except (OSError, ValueError, http.client.HTTPException) as fault:
        if call.registry.unreachable is not leader:  # clients ask again and again, and one line says it
            call.registry.unreachable = leader
            logger.warning("forwarding to %s: %s", leader.url, fault)
        raise RegistryError("forwarding", "Error while forwarding the request to the leader") from None
    finally:
        replaced.cancel()
        if not asking.done():
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())
            question.give_up()
    call.registry.unreachable = None
    if answer.place is not None:
        await call.registry.log.sync(answer.place)
    return Response(answer.body, answer.status, media_type=MEDIA_TYPE)


def target_of(scope: Mapping[str, Any]) -> str:
    """Return the path and query of a request as they came: what was escaped stays escaped, once."""
    path, query = (scope[name].decode("latin-1") for name in ("raw_path", "received_query"))
    return urllib.parse.quote(path + (f"?{query}" if query else ""), safe=ASCII, encoding="latin-1")


class ForwardedQuestion:
    """One request to the leader, on a thread. It can be given up: a leader that was stopped would hold the thread for FORWARD_S."""

    def __init__(self, leader: Identity, link: Link) -> None:
        address = (leader.host, leader.port)
        self._connection = (
            http.client.HTTPConnection(*address, timeout=FORWARD_S)
            if leader.scheme == "http"
            else http.client.HTTPSConnection(*address, timeout=FORWARD_S, context=link.tls)
        )
        self._members = link.members
        self._given_up = False

    def ask(self, call: RestCall) -> ForwardedAnswer:
        """Send the request of a client, and wait for the answer.

        Raises:
            OSError, ValueError, HTTPException: there is none, or not all of it.
        """
        request, connection = call.request, self._connection
        headers = {name: request.headers[name] for name in PASSED if name in request.headers} | {FORWARDED: "true"}
        path, number = target_of(request.scope), ""
        if self._members is not None:
            who = call.who
            now_ms = int(time.time() * 1000)
            headers[SIGNED], number = self._members.signed(
                now_ms, who.user, who.address, request.method, path, call.body
            )
        try:
            connection.connect()
            if self._given_up:  # before there was a socket to shut down
                raise ConnectionError("given up")
            connection.request(request.method, path, call.body or None, headers)
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
            if len(body) < int(response.headers.get("content-length") or 0):
                # The client would take it for a short body without an error.
                raise ConnectionError("the leader has ended in the middle of its answer")
            offset = response.headers.get(OFFSET, "")
            if self._members is not None:
                mac = self._members.answer(number, response.status, offset, body)
                if not hmac.compare_digest(mac, response.headers.get(ANSWERED, "")):
                    raise ConnectionError("the answer is not the leader's: it does not know the instances' secret")
            return ForwardedAnswer(response.status, place_from(offset), body)
        finally:
            connection.close()

    def give_up(self) -> None:
        """Let `ask` end soon; only a connection that is being made is waited for."""
        self._given_up = True
        with suppress(OSError, AttributeError):  # there is no socket yet, or not any more
            self._connection.sock.shutdown(socket.SHUT_RDWR)
