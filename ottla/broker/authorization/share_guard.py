"""ShareFetch and ShareAcknowledge: READ on the group, and on each topic whose records are fetched or acknowledged.

A topic that may not be read is an error of its partitions. Each request of a session is authorized again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.authorization.guard import Handler
from ottla.broker.components import BrokerComponents
from ottla.broker.handlers import share_acknowledge, share_fetch
from ottla.broker.share.acknowledging import MayRead
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization.operations import GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer

Serve = Callable[[BrokerComponents, Any, RequestContext, MayRead], Answer[Any]]


def guard_fetch(broker: BrokerComponents, handler: Handler) -> Handler:
    return _guarded(broker, share_fetch.serve)


def guard_acknowledge(broker: BrokerComponents, handler: Handler) -> Handler:
    return _guarded(broker, share_acknowledge.serve)


def _guarded(broker: BrokerComponents, serve: Serve) -> Handler:
    allows = broker.authorizer.allows

    def guarded(request: Any, context: RequestContext) -> Answer[Any]:
        if request.group_id is not None and not allows(context, READ, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return serve(broker, request, context, lambda topic: allows(context, READ, TOPIC, topic))

    return guarded
