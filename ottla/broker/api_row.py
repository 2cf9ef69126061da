"""A row of the broker's table of APIs, and the route that it becomes in one broker: its guard, then its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.authorization import InHandler, Rule, guarded
from ottla.broker.cluster.channels import forward
from ottla.broker.components import BrokerComponents
from ottla.broker.long_work import ManyNames, in_parts
from ottla.protocol.api import ApiKey
from ottla.server.network.connection import Connection
from ottla.server.network.context import FastPath, RequestContext
from ottla.server.network.route import Encode, Handler, Route

FrameHandler = Callable[[BrokerComponents, bytes, RequestContext], Awaitable[memoryview]]
LocalHandler = Callable[[BrokerComponents, Any, RequestContext], Any]


class Answered(NamedTuple):
    """An API that the broker answers itself, for clients that `authorization` allows to use it."""

    api_key: ApiKey
    handler: LocalHandler
    #: All of these rules have to be satisfied.
    authorization: tuple[Rule, ...]
    #: The encoder of an API whose responses may be encoded already.
    encoder: Callable[[int], Encode] | None = None
    #: The names in a request, if there may be many of them.
    names: ManyNames | None = None
    #: Makes the fast paths of connections, see server/network/context.py.
    fast_path: Callable[[BrokerComponents], Callable[..., FastPath[Connection] | None]] | None = None
    #: Wraps the handler where clients of older releases send versions that the handler does not know: it is called with the
    #: handler and its arguments.
    around: Callable[[LocalHandler, BrokerComponents, Any, RequestContext], Any] | None = None


class Forwarded(NamedTuple):
    """An API of the active controller, which also authorizes the client (controller/handlers/components.py)."""

    api_key: ApiKey
    #: Checks a request first, and forwards it.
    checked: FrameHandler | None = None


#: The rules of an API that needs no permission, as in Kafka.
OPEN: tuple[Rule, ...] = ()
#: The rules of an API whose handler asks the authorizer itself.
IN_HANDLER = (InHandler(),)


def _handler(broker: BrokerComponents, row: Answered) -> Handler:
    knows_all = row.around is None or broker.configs.advertised.release.is_newest
    local = row.handler if row.around is None or knows_all else partial(row.around, row.handler)
    handler = guarded(broker, row.api_key, row.authorization, partial(local, broker))
    return handler if row.names is None else in_parts(broker.long_work, row.names, handler)


def bound(rows: Iterable[Answered | Forwarded], broker: BrokerComponents) -> list[Route]:
    """Return the routes of rows, bound to the components of one broker, with their guards."""
    return [
        Route(
            row.api_key,
            partial(row.checked, broker) if row.checked else partial(forward, broker.controller),
            takes_frame=True,
        )
        if isinstance(row, Forwarded)
        else Route(
            row.api_key,
            _handler(broker, row),
            encoder=row.encoder,
            fast_path=row.fast_path and row.fast_path(broker),
        )
        for row in rows
    ]
