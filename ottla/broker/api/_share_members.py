"""The handlers of ShareFetch and ShareAcknowledge share this: who asks, and the errors and leaders of their responses.

Errors:
    INVALID_REQUEST  no group id, no valid member id, or too many partitions
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.api._groups import check_share_groups
from ottla.broker.authorization.checks import require
from ottla.broker.components import BrokerComponents
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.share.acknowledging import MayRead, TopicOf
from ottla.broker.share.share_session import SessionKey, check_count
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization.operations import GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext

MEMBER_ID_MAX = 36


def member_of(
    broker: BrokerComponents, context: RequestContext, group_id: str | None, member_id: str | None
) -> SessionKey:
    """Returns the key of the member's session, if it may READ in the group."""
    if group_id is not None:
        require(broker, context, READ, GROUP, group_id)
    check_share_groups(broker)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not member_id or len(member_id) > MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(group_id, member_id)


def may_read(broker: BrokerComponents, context: RequestContext) -> MayRead:
    """Each request of a session is authorized again. A topic that may not be read is an error of its partitions."""
    return lambda topic: broker.authorizer.allows(context, READ, TOPIC, topic)


def check_size(group_id: str, topics: Iterable[TopicOf]) -> None:
    """Raises KafkaError INVALID_REQUEST for more partitions than a session may have."""
    check_count(group_id, sum(len(topic.partitions) for topic in topics))


def error_of(error: KafkaError | None) -> tuple[int, str | None]:
    return (0, None) if error is None else (error.code, error.own_words)


def leader_of(broker: BrokerComponents, topic_id: bytes, index: int, error_code: int) -> tuple[int, int] | None:
    """The partition's leader and its epoch, if the error says that it is another broker (KIP-951)."""
    name = broker.metadata.topic_name(topic_id) if error_code in LEADER_MOVED else None
    return None if name is None else broker.metadata.leader_and_epoch(name, index)
