"""A write at an instance that does not lead: the leader responds to it, and this instance waits until it has the written
records.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import Any, NamedTuple

from starlette.responses import Response

from ottla.registry.client import MEDIA_TYPE
from ottla.registry.election import Identity
from ottla.registry.errors import RegistryError
from ottla.registry.log import LogPlace, place_from
from ottla.registry.members import ANSWERED, SIGNED, Members
from ottla.registry.rest import leader_http
from ottla.registry.rest.leader_http import HttpAnswer, HttpQuestion
from ottla.registry.rest.request import RestCall

logger = logging.getLogger(__name__)

#: A request with this header is not forwarded again.
FORWARDED = "X-Forward"
#: In this header the leader says up to which place an instance must have read before it responds.
OFFSET = "X-Ottla-Offset"
#: These characters stay in a target as they are.
ASCII = "".join(map(chr, range(33, 127)))
#: These headers of the client are forwarded to the leader.
PASSED = ("content-type", "accept")


class ForwardedAnswer(NamedTuple):
    """The leader's response, and the place up to which an instance must have read; None if nothing was written."""

    status: int
    place: LogPlace | None
    body: bytes


class Link(NamedTuple):
    """The way to the leader: with TLS if this instance serves TLS, with the members' secret, and over HTTP or, in tests, in
    memory.
    """

    tls: SSLContext | None = None
    members: Members | None = None
    ask: Callable[[Identity, SSLContext | None, HttpQuestion], Awaitable[HttpAnswer]] = leader_http.ask


NO_LINK = Link()


async def forward(call: RestCall, leader: Identity, link: Link) -> Response:
    """Forward the request to the leader, and wait until this instance has the written records.

    Raises:
        RegistryError: the request was forwarded already, the leader cannot be reached, or another instance has become the
            leader. The write may have happened.
    """
    if call.request.headers.get(FORWARDED):
        raise RegistryError("no_leader")
    if link.tls is not None and leader.scheme != "https":
        raise RegistryError("forwarding", "The leader has no certificate, and nothing is forwarded to it in clear")
    if link.members is None and not call.access.is_open:
        raise RegistryError("forwarding", "Instances with logins forward writes only with --secret-file")
    asking = asyncio.ensure_future(_asked(call, leader, link))
    replaced = asyncio.ensure_future(call.registry.until_another_leads(leader))
    try:
        await asyncio.wait({asking, replaced}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise ConnectionError("another instance leads")
        answer = asking.result()
    except (OSError, ValueError) as fault:
        if call.registry.unreachable is not leader:  # clients repeat their requests, and one line in the log is enough
            call.registry.unreachable = leader
            logger.warning("forwarding to %s: %s", leader.url, fault)
        raise RegistryError("forwarding", "Error while forwarding the request to the leader") from None
    finally:
        replaced.cancel()
        asking.cancel()
    call.registry.unreachable = None
    if answer.place is not None:
        await call.registry.log.sync(answer.place)
    return Response(answer.body, answer.status, media_type=MEDIA_TYPE)


async def _asked(call: RestCall, leader: Identity, link: Link) -> ForwardedAnswer:
    """Send the request of a client to the leader.

    Raises:
        OSError, ValueError: there is no response, it is incomplete, or it does not come from the leader.
    """
    request, target, number = call.request, target_of(call.request.scope), ""
    headers = {name: request.headers[name] for name in PASSED if name in request.headers} | {FORWARDED: "true"}
    if link.members is not None:
        who = call.who
        headers[SIGNED], number = link.members.signed(who.user, who.address, request.method, target, call.body)
    answer = await link.ask(leader, link.tls, HttpQuestion(request.method, target, headers, call.body))
    offset = answer.headers.get(OFFSET.lower(), "")
    if link.members is not None:
        mac = link.members.answer(number, answer.status, offset, answer.body)
        if not hmac.compare_digest(mac, answer.headers.get(ANSWERED.lower(), "")):
            raise ConnectionError("the answer is not the leader's: it does not know the instances' secret")
    return ForwardedAnswer(answer.status, place_from(offset), answer.body)


def target_of(scope: Mapping[str, Any]) -> str:
    """Return the path and query of a request as they arrived: what was escaped stays escaped, once."""
    path, query = (scope[name].decode("latin-1") for name in ("raw_path", "received_query"))
    return urllib.parse.quote(path + (f"?{query}" if query else ""), safe=ASCII, encoding="latin-1")
