"""Groups whose coordinator assigns partitions: READ on the group, and DESCRIBE on each topic that a member or a description names.

What differs between the kinds of groups is where their messages name topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization.operations import DESCRIBE, GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


class OfGroup(Protocol):
    """A request that names one group."""

    group_id: str


RequestT = TypeVar("RequestT", bound=OfGroup)
ResponseT = TypeVar("ResponseT")
HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def guard_member(
    broker: BrokerComponents,
    handler: HandlerOf[RequestT, ResponseT],
    topics: Callable[[RequestT], Iterable[str]],
    check: Callable[[], None] | None = None,
) -> HandlerOf[RequestT, ResponseT]:
    """Guards a heartbeat. `check` raises the errors that come before authorization; `topics` may raise those that come after READ."""
    allows = broker.authorizer.allows

    def heartbeat(request: RequestT, context: RequestContext) -> Answer[ResponseT]:
        if check is not None:
            check()
        if not allows(context, READ, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for name in topics(request):
            if not allows(context, DESCRIBE, TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return handler(request, context)

    return heartbeat


def hiding(
    described: Callable[[ErrorCode, str, str], object], topics: Callable[[Any], Iterable[str]], message: str = HIDDEN
) -> Callable[[BrokerComponents, Any, RequestContext, Any], None]:
    """Returns the last step of a description: a group with a topic that the caller may not know of is answered by an error."""

    def without_hidden_topics(broker: BrokerComponents, request: Any, context: RequestContext, answer: Any) -> None:
        authorizer = broker.authorizer
        for index, group in enumerate(answer.groups):
            if any(not authorizer.allows(context, DESCRIBE, TOPIC, topic) for topic in topics(group)):
                answer.groups[index] = described(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, group.group_id)
            elif request.include_authorized_operations and not group.error_code:
                group.authorized_operations = authorizer.authorized_operations(context, GROUP, group.group_id)

    return without_hidden_topics
