"""Members of share groups acknowledge records; and what ShareFetch shares with it: the session's key, checks, and leaders in
responses.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ottla.broker.api.groups import check_share_groups
from ottla.broker.authorization import require
from ottla.broker.components import BrokerComponents
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.share.in_flight import AcknowledgeType
from ottla.broker.share.leaders import MayRead, Outcomes
from ottla.broker.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, check_count
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.messages.shared_structs import AcknowledgeTopic, CurrentLeader
from ottla.server.authorization.operations import GROUP, READ, TOPIC
from ottla.server.network.context import Answer, RequestContext, then

MEMBER_ID_MAX = 36


def member_of(
    broker: BrokerComponents, context: RequestContext, group_id: str | None, member_id: str | None
) -> SessionKey:
    """Return the key of the member's session, if it may READ in the group."""
    if group_id is not None:
        require(broker, context, READ, GROUP, group_id)
    check_share_groups(broker)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not member_id or len(member_id) > MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(group_id, member_id)


def may_read(broker: BrokerComponents, context: RequestContext) -> MayRead:
    """Return the check of READ on topics, which each request of a session makes again. A topic that may not be read is an error of its partitions."""
    return lambda topic: broker.authorizer.allows(context, READ, TOPIC, topic)


def check_size(group_id: str, topics: Iterable[AcknowledgeTopic]) -> None:
    """Raise KafkaError INVALID_REQUEST for more partitions than a session may have."""
    check_count(group_id, sum(len(topic.partitions) for topic in topics))


def error_of(error: KafkaError | None) -> tuple[int, str | None]:
    return (0, None) if error is None else (error.code, error.own_words)


def leader_of(broker: BrokerComponents, topic_id: bytes, index: int, error_code: int) -> tuple[int, int] | None:
    """Return the partition's leader and its epoch, if the error says that it is another broker (KIP-951)."""
    name = broker.metadata.topic_name(topic_id) if error_code in LEADER_MOVED else None
    return None if name is None else broker.metadata.leader_and_epoch(name, index)


RENEW_SINCE = 2


def share_acknowledge(
    broker: BrokerComponents, request: ShareAcknowledgeRequest, context: RequestContext
) -> Answer[ShareAcknowledgeResponse]:
    """ShareAcknowledge (79): members of share groups acknowledge, release or reject the records that they have acquired
    (KIP-932).

    v2 renewing (KIP-1222), and how long the lock lasts.

    Errors:
        INVALID_REQUEST              no group id or valid member id, too many partitions; of a partition: batches out of order, overlapping, or of unknown types
        SHARE_SESSION_NOT_FOUND      the session is over
        INVALID_SHARE_SESSION_EPOCH  the first epoch, or not the next one
        INVALID_RECORD_STATE         of a partition: the member does not hold one of the records
    """
    member = member_of(broker, context, request.group_id, request.member_id)
    check_size(member.group_id, request.topics)
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = broker.share_leaders.sessions.find(member, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        session.advance()
    knows_renewing = context.api_version >= RENEW_SINCE
    outcomes = broker.share_leaders.acknowledge(
        member,
        request.topics,
        AcknowledgeType.RENEW if knows_renewing else AcknowledgeType.REJECT,
        may_read(broker, context),
        is_renew=knows_renewing and request.is_renew_ack,
    )
    return then(outcomes, partial(_response, broker, request, session, context))


def _response(
    broker: BrokerComponents,
    request: ShareAcknowledgeRequest,
    session: ShareSession,
    context: RequestContext,
    outcomes: Outcomes,
) -> ShareAcknowledgeResponse:
    leaders = broker.share_leaders
    if request.share_session_epoch == FINAL_EPOCH and leaders.sessions.remove(session.key) is not None:
        leaders.release_session(session)
    lock_ms = leaders.settings_of(session.key.group_id).partition.lock_duration_ms
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    moved_to: set[int] = set()
    for at, error in outcomes.items():
        code, message = error_of(error)
        data = PartitionData(partition_index=at.partition, error_code=code, error_message=message)
        if (leader := leader_of(broker, at.topic_id, at.partition, code)) is not None:
            data.current_leader = CurrentLeader(*leader)
            moved_to.add(leader[0])
        if at.topic_id not in topics:
            topics[at.topic_id] = ShareAcknowledgeTopicResponse(topic_id=at.topic_id)
        topics[at.topic_id].partitions.append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=broker.metadata.node_endpoints(moved_to, context),
    )
