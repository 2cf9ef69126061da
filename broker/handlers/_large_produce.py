"""Produce with batches whose records ask for more work than fits into one turn of the event loop.

Only topics whose configuration needs the records come here: compacted ones, a compression.type of their own, bounds on
timestamps. What stands before such a batch in the request is appended already; the batch and all behind it are the rest, which
is prepared between turns and threads, then appended like a request of its own. The answer is one for both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from ottla.broker.parts import BrokerParts
from ottla.broker.replication.partition import Partition
from ottla.broker.transactions.admission import keep_records
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.work import Turn, Work
from ottla.server.network.context import RequestContext
from ottla.server.network.deferred import Deferred
from ottla.server.network.error_reply import error_reply
from ottla.storage.preparation import Prepared

#: By the id of the request's PartitionProduceData.
PreparedBatches: TypeAlias = Mapping[int, Prepared]
NONE_PREPARED: PreparedBatches = {}
Answer: TypeAlias = ProduceResponse | Deferred | None


def rest_of(request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData) -> ProduceRequest:
    """The request from `data`, which belongs to `topic`, on. It shares no object with the first part, whose records may go."""
    rest = copy.copy(request)
    rest.topic_data = [copy.copy(each) for each in request.topic_data[_index(request.topic_data, topic) :]]
    rest.topic_data[0].partition_data = topic.partition_data[_index(topic.partition_data, data) :]
    for each in rest.topic_data:
        each.partition_data = [copy.copy(batch) for batch in each.partition_data]
    return rest


def append_prepared(
    broker: BrokerParts, request: ProduceRequest, context: RequestContext, append: Callable[[PreparedBatches], Answer]
) -> Answer:
    """`append(prepared)` when each batch of the request is prepared."""
    keep_records(request)
    mono_ms = broker.world.clock.mono_ms
    asked_ms = mono_ms()

    def go_on(prepared: PreparedBatches) -> Answer:
        request.timeout_ms -= mono_ms() - asked_ms
        return append(prepared)

    answer = broker.long_work.run(context, _prepare(broker, request), go_on, is_search=False)
    return cast(Answer, answer)


def _prepare(broker: BrokerParts, request: ProduceRequest) -> Work[PreparedBatches]:
    prepared: dict[int, Prepared] = {}
    now_ms = broker.world.clock.wall_ms()
    turn = Turn()
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = _partition(broker, topic, data)
            # Without a log the append says what is wrong.
            log = None if partition is None else partition.leader_log
            if log is None or data.records is None:
                continue
            outcome = yield from log.prepare(memoryview(data.records), now_ms, turn)  # type: ignore[arg-type]  # a request has one buffer, not a list
            if outcome is not None:
                prepared[id(data)] = outcome
    return prepared


def joined(rest: ProduceRequest, context: RequestContext, first: Answer, second: Answer) -> Answer:
    """One answer of that to the first part of a request and that to the rest."""
    answers: list[Any] = [first, second]

    def merged() -> ProduceResponse | None:
        head, tail = answers
        if isinstance(tail, KafkaError):
            if rest.acks == 0:
                context.connection.close("a produce request with acks=0 failed")
                return None
            tail = error_reply(ApiKey.PRODUCE, context.api_version, rest, tail)
        return None if tail is None or head is None else _merged(head, tail)

    for index, answer in enumerate(answers):
        if isinstance(answer, Deferred) and answer.done:
            answers[index] = answer.take()
    waiting = [index for index, answer in enumerate(answers) if isinstance(answer, Deferred)]
    if not waiting:
        return merged()
    whole = Deferred()

    def arrive(index: int, answer: Any) -> None:
        answers[index] = answer
        if not any(isinstance(answer, Deferred) for answer in answers):
            whole.complete(merged())

    def cancel() -> None:
        for answer in answers:
            if isinstance(answer, Deferred):
                answer.cancel()

    for index in waiting:
        answers[index].attach(_Arrival(partial(arrive, index)))
    whole.on_cancel = cancel
    return whole


class _Arrival:
    def __init__(self, completed: Callable[[Any], None]) -> None:
        self.completed = completed


def _merged(head: ProduceResponse, tail: ProduceResponse) -> ProduceResponse:
    last, first = head.responses[-1], tail.responses[0]
    if (last.name, last.topic_id) == (first.name, first.topic_id):
        last.partition_responses += first.partition_responses
        head.responses += tail.responses[1:]
    else:
        head.responses += tail.responses
    known = {endpoint.node_id for endpoint in head.node_endpoints}
    head.node_endpoints += [endpoint for endpoint in tail.node_endpoints if endpoint.node_id not in known]
    return head


def _partition(broker: BrokerParts, topic: TopicProduceData, data: PartitionProduceData) -> Partition | None:
    try:
        return broker.replicas.lookup(topic.name, topic.topic_id, data.index)
    except KafkaError:
        return None


def _index(items: list[Any], item: object) -> int:
    return next(index for index, candidate in enumerate(items) if candidate is item)
