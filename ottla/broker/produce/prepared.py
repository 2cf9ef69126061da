"""Produce with batches whose records ask for more work than fits into one turn of the event loop.

Only topics whose configuration needs the records come here: compacted ones, a compression.type of their own, bounds on
timestamps. What stands before such a batch in the request is appended already; the batch and all behind it are the rest, which
is prepared between turns and threads, then appended like a request of its own. The response is one for both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from itertools import dropwhile
from typing import TypeAlias

from ottla.broker.components import BrokerComponents
from ottla.broker.transactions.admission import keep_records
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.builder import Prepared
from ottla.protocol.work import Turn, Work
from ottla.server.network.context import Answer, Reply, RequestContext, gather
from ottla.server.network.error_reply import error_reply

#: Prepared batches by `id()` of their PartitionProduceData.
PreparedBatches: TypeAlias = Mapping[int, Prepared]
NONE_PREPARED: PreparedBatches = {}
ProduceAnswer: TypeAlias = Answer[ProduceResponse | None]


def rest_of(request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData) -> ProduceRequest:
    """Return the rest of the request, from `data` of `topic` on. It shares no object with the first part, whose records may be freed."""
    rest = copy.copy(request)
    rest.topic_data = [copy.copy(each) for each in dropwhile(lambda each: each is not topic, request.topic_data)]
    rest.topic_data[0].partition_data = list(dropwhile(lambda each: each is not data, topic.partition_data))
    for each in rest.topic_data:
        each.partition_data = [copy.copy(batch) for batch in each.partition_data]
    return rest


def append_prepared(
    broker: BrokerComponents,
    request: ProduceRequest,
    context: RequestContext,
    append: Callable[[PreparedBatches], ProduceAnswer],
) -> ProduceAnswer:
    """Call `append(prepared)` when each batch of the request is prepared."""
    keep_records(request)
    mono_ms = broker.world.clock.mono_ms
    asked_ms = mono_ms()

    def go_on(prepared: PreparedBatches) -> ProduceAnswer:
        request.timeout_ms -= mono_ms() - asked_ms
        return append(prepared)

    return broker.long_work.run(context, _prepare(broker, request), go_on, is_search=False)


def _prepare(broker: BrokerComponents, request: ProduceRequest) -> Work[PreparedBatches]:
    prepared: dict[int, Prepared] = {}
    now_ms = broker.world.clock.wall_ms()
    turn = Turn()
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = broker.replicas.find(topic.name, topic.topic_id, data.index)
            # Without a log the append returns the error.
            log = None if partition is None else partition.leader_log
            if log is None or data.records is None:
                continue
            outcome = yield from log.prepare(memoryview(data.records), now_ms, turn)
            if outcome is not None:
                prepared[id(data)] = outcome
    return prepared


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
