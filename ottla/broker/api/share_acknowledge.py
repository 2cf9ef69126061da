"""ShareAcknowledge (79): members of share groups say what became of the records that they have acquired (KIP-932).

v2 renewing (KIP-1222), and how long the lock lasts.

Errors:
    INVALID_REQUEST              of a partition: batches out of order, that overlap, or of unknown types
    SHARE_SESSION_NOT_FOUND      the session is over
    INVALID_SHARE_SESSION_EPOCH  the first epoch, or not the next one
    INVALID_RECORD_STATE         of a partition: the member does not hold one of the records
"""

from __future__ import annotations

from functools import partial

from ottla.broker.api._share_members import check_size, error_of, leader_of, may_read, member_of
from ottla.broker.components import BrokerComponents
from ottla.broker.share.acknowledging import Outcomes, acknowledge
from ottla.broker.share.record_state import AcknowledgeType
from ottla.broker.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.protocol.messages.shared_structs import CurrentLeader
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

RENEW_SINCE = 2


def handle(
    broker: BrokerComponents, request: ShareAcknowledgeRequest, context: RequestContext
) -> Answer[ShareAcknowledgeResponse]:
    member = member_of(broker, context, request.group_id, request.member_id)
    check_size(member.group_id, request.topics)
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = broker.share_leaders.sessions.find(member, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        session.advance()
    knows_renewing = context.api_version >= RENEW_SINCE
    outcomes = acknowledge(
        broker.share_leaders,
        broker.metadata,
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
