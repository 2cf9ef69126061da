"""Produce (0): append to the partitions this broker leads.

Most requests are appended at once, by one call of append.py. A request that has to wait before that is an `Appending`.

WRITE is needed on each topic, and on the transactional id where records belong to a transaction.

    acks 0     no reply; if any partition failed the connection is closed, the only way to notify such a client
    acks 1     answered after the local append, and its flush if flush.messages asks for one
    acks -1    answered when the high watermark passed, or with REQUEST_TIMED_OUT after timeout_ms

v0-2 message sets (api/_older_records.py) · v3 batches v2 only · v5 log_start_offset · v7 zstd (KIP-110) · v8 record_errors and error_message
v9 flexible · v10 the current leader for NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951) · v12 transactions join partitions
implicitly (KIP-890) · v13 topic ids.

Errors:
    INVALID_REQUIRED_ACKS         acks is none of -1, 0 and 1
    INVALID_TOPIC_EXCEPTION       the topic is internal
    UNSUPPORTED_COMPRESSION_TYPE  zstd before v7
    KAFKA_STORAGE_ERROR           the log cannot be written
"""

from __future__ import annotations

import copy

from ottla.broker.components import BrokerComponents
from ottla.broker.produce.append import NONE_PREPARED, PreparedBatches, ProduceAnswer, append
from ottla.broker.transactions.admission import NO_REJECTIONS, Admission, PartitionRejections, is_transactional
from ottla.broker.transactions.verify import Verdicts, in_order
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.records.builder import Prepared
from ottla.protocol.work import Turn, Work
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.authorization.operations import TOPIC, TRANSACTIONAL_ID, WRITE
from ottla.server.network.context import Reply, RequestContext, gather, then
from ottla.server.network.error_reply import error_reply
from ottla.storage.log.lookup import prepare_append


def handle(broker: BrokerComponents, request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
    denied = _take_denied(broker, request, context) if broker.authorizer.enabled else []
    if not denied:
        return _serve(broker, request, context)
    if request.acks == 0:
        if request.topic_data:
            _serve(broker, request, context)
        context.connection.close("a produce request with acks=0 failed")
        return None
    only_denied = copy.copy(request)
    only_denied.topic_data = denied
    rejection = _refused(only_denied, context, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not request.topic_data:
        return rejection

    def merge(answer: ProduceResponse | None) -> ProduceResponse | None:
        if answer is not None:
            answer.responses.extend(rejection.responses)
        return answer

    return then(_serve(broker, request, context), merge)


def _refused(request: ProduceRequest, context: RequestContext, error: ErrorCode) -> ProduceResponse:
    response: ProduceResponse = error_reply(ApiKey.PRODUCE, context.api_version, request, KafkaError(error))
    return response


def may_write(authorizer: Authorizer, context: RequestContext, topic: str) -> bool:
    return authorizer.allows(context, WRITE, TOPIC, topic)


def _take_denied(broker: BrokerComponents, request: ProduceRequest, context: RequestContext) -> list[TopicProduceData]:
    """Take the topics out of the request that its client may not write to. An unknown topic id gets its own error later.

    Raises:
        KafkaError: it has records of a transaction, and its client may not use the transactional id.
    """
    authorizer, transactional_id = broker.authorizer, request.transactional_id
    if is_transactional(request) and (
        transactional_id is None or not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    allowed: list[TopicProduceData] = []
    denied: list[TopicProduceData] = []
    for topic in request.topic_data:
        name = topic.name or broker.metadata.topic_name(topic.topic_id)
        (allowed if not name or may_write(authorizer, context, name) else denied).append(topic)
    request.topic_data = allowed
    return denied


def _serve(broker: BrokerComponents, request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
    if not -1 <= request.acks <= 1:
        return _refused(request, context, ErrorCode.INVALID_REQUIRED_ACKS)
    if is_transactional(request):
        return Appending(broker, request, context, is_verified=True).begin()
    answer, rest = append(broker, request, context, NO_REJECTIONS, NONE_PREPARED)
    if rest is None:
        return answer
    return joined(rest, context, answer, Appending(broker, rest, context, is_verified=False).prepare())


class Appending:
    """The append of a request that may have to wait: it has records of a transaction, or batches that ask for more work than a turn has.

    Its steps, always in this order:

        prepare    batches are prepared between turns and on threads, if their topic needs the records (it is compacted, or has a
                   compression.type or bounds on timestamps of its own) or the log has to roll; a rest always begins with this
        admit      the partitions of a transaction are verified by its coordinator; this comes second, because no turn may pass
                   between verification and append
        append     all batches in one turn, up to the first one that asks for more work than the turn has
        join       that batch and all after it are the rest, which is an `Appending` of its own; the response is one for both
    """

    __slots__ = ("_asked_ms", "_broker", "_context", "_is_verified", "_prepared", "_request")

    def __init__(
        self, broker: BrokerComponents, request: ProduceRequest, context: RequestContext, *, is_verified: bool
    ) -> None:
        self._broker, self._request, self._context = broker, request, context
        #: Whether there are records of a transaction, in this request or in the one that it is the rest of.
        self._is_verified = is_verified
        self._prepared = NONE_PREPARED
        self._asked_ms = 0

    def begin(self) -> ProduceAnswer:
        """Append a request that has records of a transaction."""
        admission = self._admission()
        return self.prepare() if admission.prepares else self._admit(admission)

    # ---- prepare

    def prepare(self) -> ProduceAnswer:
        self._begin_to_wait()
        return self._broker.long_work.run(self._context, self._prepare_all(), self._go_on_with, is_search=False)

    def _prepare_all(self) -> Work[PreparedBatches]:
        broker = self._broker
        prepared: dict[int, Prepared] = {}
        now_ms = broker.world.clock.wall_ms()
        turn = Turn()
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                partition = broker.replicas.find(topic.name, topic.topic_id, data.index)
                # Without a log the append returns the error.
                log = None if partition is None else partition.leader_log
                if log is None or data.records is None:
                    continue
                outcome = yield from prepare_append(log, memoryview(data.records), now_ms, turn)
                if outcome is not None:
                    prepared[id(data)] = outcome
        return prepared

    def _go_on_with(self, prepared: PreparedBatches) -> ProduceAnswer:
        self._end_to_wait()
        self._prepared = prepared
        return self._admit(self._admission()) if self._is_verified else self._append(NO_REJECTIONS)

    # ---- admit

    def _admission(self) -> Admission:
        broker = self._broker
        return Admission(
            broker.replicas,
            broker.internal_topics,
            broker.transactions.verifier,
            self._request,
            self._context.api_version,
        )

    def _admit(self, admission: Admission) -> ProduceAnswer:
        verdicts = admission.ask()
        if not isinstance(verdicts, Reply):
            return self._append(admission.rejections(verdicts))
        verdicts.kept_bytes = self._begin_to_wait()

        def admitted(known: Verdicts) -> ProduceAnswer:
            if verdicts.cancelled:
                return None
            self._end_to_wait()
            answer = self._append(admission.rejections(known))
            self._drop_records()
            return answer

        return in_order(self._context, verdicts, admitted)

    # ---- append

    def _append(self, rejections: PartitionRejections) -> ProduceAnswer:
        broker, context = self._broker, self._context
        answer, rest = append(broker, self._request, context, rejections, self._prepared)
        if rest is None:
            return answer
        following = Appending(broker, rest, context, is_verified=self._is_verified)
        return joined(rest, context, answer, following.prepare())

    # ---- while it waits

    def _begin_to_wait(self) -> int:
        """Copy the records and return their size: the request is served later, when the receive buffer is used again."""
        self._asked_ms = self._broker.world.clock.mono_ms()
        kept_bytes = 0
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytes(data.records))
                    kept_bytes += len(data.records)
        return kept_bytes

    def _end_to_wait(self) -> None:
        self._request.timeout_ms -= self._broker.world.clock.mono_ms() - self._asked_ms

    def _drop_records(self) -> None:
        """Free the records once they are in the log; the request itself is kept until it is answered."""
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                data.records = None


# ---- the response to both parts of a request


def joined(rest: ProduceRequest, context: RequestContext, first: ProduceAnswer, second: ProduceAnswer) -> ProduceAnswer:
    """Merge the responses to the first part of a request and to the rest."""

    def failed(error: KafkaError) -> ProduceResponse | None:
        if rest.acks == 0:
            context.connection.close("a produce request with acks=0 failed")
            return None
        response: ProduceResponse = error_reply(ApiKey.PRODUCE, context.api_version, rest, error)
        return response

    if isinstance(second, Reply):
        second = second.otherwise(failed)
    return gather([first, second], _merged)


def _merged(parts: list[ProduceResponse | None]) -> ProduceResponse | None:
    head, tail = parts
    if head is None or tail is None:
        return None
    last, first = head.responses[-1], tail.responses[0]
    if (last.name, last.topic_id) == (first.name, first.topic_id):
        last.partition_responses += first.partition_responses
        head.responses += tail.responses[1:]
    else:
        head.responses += tail.responses
    known = {endpoint.node_id for endpoint in head.node_endpoints}
    head.node_endpoints += [endpoint for endpoint in tail.node_endpoints if endpoint.node_id not in known]
    return head
