"""ShareFetch (78): members of share groups acquire records, and acknowledge earlier ones in the same request (KIP-932).

v2 strict record limits (KIP-1206), renewing (KIP-1222): a request that renews fetches nothing, or the lock could time out before its
response is there. How records are acquired is broker/share/fetching.py.

Errors:
    INVALID_REQUEST                                       acknowledgements in the first request of a session, or limits beside a renewal
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH  the session is over, or another request was answered meanwhile
    SHARE_SESSION_LIMIT_REACHED                           after max_wait_ms, so that the client does not ask again at once
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION          of a partition: it does not exist
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.broker.api.share_acknowledge import check_size, error_of, leader_of, may_read, member_of
from ottla.broker.components import BrokerComponents
from ottla.broker.share.fetched import Limits
from ottla.broker.share.fetching import Results, ShareFetching, failed
from ottla.broker.share.in_flight import AcknowledgeType
from ottla.broker.share.leaders import MayRead, Outcomes
from ottla.broker.share.led_partition import LedSharePartition
from ottla.broker.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, ShareSession, TopicIdPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.messages.shared_structs import CurrentLeader
from ottla.server.network.context import Answer, Reply, RequestContext, gather

STRICT = 1
RENEW_SINCE = 2


def handle(broker: BrokerComponents, request: ShareFetchRequest, context: RequestContext) -> Answer[ShareFetchResponse]:
    member = member_of(broker, context, request.group_id, request.member_id)
    check_size(member.group_id, request.topics)
    is_renew = context.api_version >= RENEW_SINCE and request.is_renew_ack
    if is_renew and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that renews has no limits for records")
    try:
        session = _session(broker, request, member, context)
    except KafkaError as error:
        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        return _later(broker, request.max_wait_ms, error)
    readable = may_read(broker, context)
    has_acknowledgements = _has_acknowledgements(request)
    highest = AcknowledgeType.RENEW if context.api_version >= RENEW_SINCE else AcknowledgeType.REJECT
    outcomes: Answer[Outcomes] = {}
    if has_acknowledgements:
        outcomes = broker.share_leaders.acknowledge(member, request.topics, highest, readable, is_renew=is_renew)
    results: Answer[Results] = {}
    throttle_ms = 0
    if not is_renew and request.share_session_epoch != FINAL_EPOCH:
        throttle_ms = _throttle_ms(broker, context, 1)
        if not throttle_ms:
            results = _fetching(broker, request, session, context, readable).start()
    found: list[Any] = [outcomes, results]
    return gather(found, partial(_response, broker, request, session, context, throttle_ms))


def _session(
    broker: BrokerComponents, request: ShareFetchRequest, member: SessionKey, context: RequestContext
) -> ShareSession:
    sessions = broker.share_leaders.sessions
    asked = [TopicIdPartition(topic.topic_id, p.partition_index) for topic in request.topics for p in topic.partitions]
    if request.share_session_epoch == INITIAL_EPOCH:
        if _has_acknowledgements(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return sessions.open(member, asked, context.connection)
    session = sessions.find(member, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        forgotten = [
            TopicIdPartition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        session.change(asked, forgotten)
        session.advance()
    return session


def _has_acknowledgements(request: ShareFetchRequest) -> bool:
    return any(p.acknowledgement_batches for topic in request.topics for p in topic.partitions)


@dataclass(slots=True, eq=False)
class _LateError:
    """An error whose response is sent when the fetch's max_wait_ms is over. It uses the timer wheel of all waiting fetches,
    which is never early.

    A timer of uvloop counts from the loop's cached time, in whole milliseconds, and is up to one millisecond early.
    """

    error: KafkaError
    reply: Reply[ShareFetchResponse] = field(default_factory=Reply)

    def expire(self) -> None:
        self.reply.complete(self.error)


def _later(broker: BrokerComponents, delay_ms: int, error: KafkaError) -> Reply[ShareFetchResponse]:
    late = _LateError(error)
    slot = broker.wheel.add(late, max(0, delay_ms))
    late.reply.on_cancel = partial(broker.wheel.remove, late, slot)
    return late.reply


def _fetching(
    broker: BrokerComponents,
    request: ShareFetchRequest,
    session: ShareSession,
    context: RequestContext,
    readable: MayRead,
) -> ShareFetching:
    led: dict[TopicIdPartition, LedSharePartition] = {}
    errors: Results = {}
    takes_none = _takes_none(request)
    for at in session.rotated():
        try:
            name = broker.metadata.topic_name(at.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if not readable(name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if broker.metadata.partition(name, at.partition) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not takes_none:
                led[at] = broker.share_leaders.load(session.key.group_id, name, at, context)
        except KafkaError as error:
            errors[at] = failed(at.partition, error)
    max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
    if broker.quotas.active:
        quota_bytes = broker.quotas.fetch_bytes_max(context.connection.principal.name, context.client_id)
        max_bytes = max_bytes if quota_bytes is None else min(max_bytes, quota_bytes)
    limits = Limits(
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        strict=request.share_acquire_mode == STRICT,
    )
    leaders = broker.share_leaders
    answered = leaders.counts.fetch_begun(session.key.group_id, leaders.clock)
    return ShareFetching(session.key.member_id, led, errors, limits, broker.wheel, answered)


def _takes_none(request: ShareFetchRequest) -> bool:
    return request.max_records <= 0 or request.max_bytes <= 0


def _throttle_ms(broker: BrokerComponents, context: RequestContext, size: int) -> int:
    """Return the throttle time.

    It is computed before records are acquired. Kafka acquires first and throws the records away when it throttles: they then
    stay locked until their acquisition locks time out.
    """
    if not broker.quotas.active:
        return 0
    return broker.quotas.fetched(context.connection.principal.name, context.client_id, size)


def _response(
    broker: BrokerComponents,
    request: ShareFetchRequest,
    session: ShareSession,
    context: RequestContext,
    throttle_ms: int,
    found: list[Any],
) -> ShareFetchResponse:
    outcomes: Outcomes
    results: Results
    outcomes, results = found
    leaders = broker.share_leaders
    group_id = session.key.group_id
    lock_ms = leaders.settings_of(group_id).partition.lock_duration_ms
    response = ShareFetchResponse(throttle_time_ms=throttle_ms, acquisition_lock_timeout_ms=lock_ms)
    if request.share_session_epoch == FINAL_EPOCH:
        if leaders.sessions.remove(session.key) is not None:
            leaders.release_session(session)
    else:
        is_first = request.share_session_epoch == INITIAL_EPOCH
        if not _takes_none(request):
            # The first response about a partition names it also when it has nothing, as in Kafka.
            new = (at for at, must_be_named in session.partitions.items() if must_be_named or is_first)
            results = {at: PartitionData(partition_index=at.partition) for at in new} | results
        if not is_first:
            results = {
                at: data
                for at, data in results.items()
                if session.must_include(at, has_records=bool(data.records), has_error=data.error_code != 0)
            }
    _throttle_ms(broker, context, sum(len(data.records or b"") for data in results.values()))
    for at, error in outcomes.items():
        data = results.setdefault(at, PartitionData(partition_index=at.partition))
        data.acknowledge_error_code, data.acknowledge_error_message = error_of(error)
    response.responses = _by_topic(results)
    _name_leaders(broker, context, response)
    return response


def _by_topic(results: Results) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for at, data in results.items():
        if at.topic_id not in topics:
            topics[at.topic_id] = ShareFetchableTopicResponse(topic_id=at.topic_id)
        topics[at.topic_id].partitions.append(data)
    return list(topics.values())


def _name_leaders(broker: BrokerComponents, context: RequestContext, response: ShareFetchResponse) -> None:
    """Add the leaders of the partitions that have moved (KIP-951)."""
    moved_to: set[int] = set()
    for topic in response.responses:
        for data in topic.partitions:
            if (leader := leader_of(broker, topic.topic_id, data.partition_index, data.error_code)) is not None:
                data.current_leader = CurrentLeader(*leader)
                moved_to.add(leader[0])
    response.node_endpoints = broker.metadata.node_endpoints(moved_to, context)
