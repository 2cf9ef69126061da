"""WriteTxnMarkers (27): end transactions in partitions led here, for their coordinator (or kafka-transactions.sh abort).

v2 the transaction version, which says whether the marker's epoch has to be a new one (KIP-1228).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.components import BrokerComponents
from ottla.broker.transactions.markers import Results
from ottla.protocol.messages.shared_structs import PartitionErrorCode, TopicPartitionErrors
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.work import Turn, Work
from ottla.server.network.context import Answer, Reply, RequestContext

#: The limit of markers, times their partitions, in one turn of the event loop: each may have to create a file.
MARKERS_A_TURN = 1_000


def handle(
    broker: BrokerComponents, request: WriteTxnMarkersRequest, context: RequestContext
) -> Answer[WriteTxnMarkersResponse]:
    return broker.long_work.run(context, _write(broker, request), lambda answer: answer, is_search=False)


def _write(broker: BrokerComponents, request: WriteTxnMarkersRequest) -> Work[Answer[WriteTxnMarkersResponse]]:
    reply: Reply[WriteTxnMarkersResponse] = Reply()
    # Several markers of one producer get one entry in the response, as in Kafka.
    by_producer: dict[int, Results] = {}
    left = len(request.markers)
    if not left:
        return WriteTxnMarkersResponse()

    def written(producer_id: int, results: Results) -> None:
        nonlocal left
        by_producer.setdefault(producer_id, {}).update(results)
        left -= 1
        if not left:
            markers = [_result(producer, all_results) for producer, all_results in by_producer.items()]
            reply.complete(WriteTxnMarkersResponse(markers=markers))

    turn = Turn(MARKERS_A_TURN)
    for marker in request.markers:
        broker.transactions.marker_writer.write(marker, partial(written, marker.producer_id))
        if turn.spend(1 + sum(len(topic.partition_indexes) for topic in marker.topics)):
            yield None
    return reply


def _result(producer_id: int, results: Results) -> WritableTxnMarkerResult:
    topics: dict[str, TopicPartitionErrors] = {}
    for (name, index), error in results.items():
        topic = topics.setdefault(name, TopicPartitionErrors(name=name))
        topic.partitions.append(PartitionErrorCode(index, error))
    return WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
