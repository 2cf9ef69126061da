"""Records in the formats of releases before 4.0 (KIP-896): producers' message sets become batches, and consumers get messages.

Errors:
    CORRUPT_MESSAGE  the records of a producer are no message set and no batch

This is for clients of a node that advertises such a release. Nodes, and clients of later versions, have batches alone.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.components import BrokerComponents
from ottla.broker.produce.append import ProduceAnswer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.message_set import batch_of, is_message_set, messages_of
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.work import Turn, Work
from ottla.server.network.context import Answer, RequestContext, then

#: The first versions whose clients send and read batches, and the first whose messages have timestamps.
PRODUCE_BATCHES_SINCE, FETCH_BATCHES_SINCE, FETCH_TIMESTAMPS_SINCE = 3, 4, 2
#: Limits in bytes: for the decompressed messages of a set, and for the messages of one partition in a response, whose client
#: asks for the rest.
SET_BYTES_MAX, MESSAGES_BYTES_MAX = 16 * 1024 * 1024, 1024 * 1024


def produce(
    handle: Callable[..., ProduceAnswer], broker: BrokerComponents, request: ProduceRequest, context: RequestContext
) -> ProduceAnswer:
    """Produce (0), in any version: before v3 it has message sets.

    Errors:
        CORRUPT_MESSAGE  a set is damaged, or its messages take more than SET_BYTES_MAX
    """
    if context.api_version >= PRODUCE_BATCHES_SINCE:
        return handle(broker, request, context)
    work = _with_batches(request)
    answer = broker.long_work.run(context, work, lambda later: handle(broker, later, context), is_search=False)
    return then(answer, _known_errors)


def fetch(
    handle: Callable[..., Answer[FetchResponse]],
    broker: BrokerComponents,
    request: FetchRequest,
    context: RequestContext,
) -> Answer[FetchResponse]:
    """Fetch (1), in any version: before v4 its response has messages."""
    answer = handle(broker, request, context)
    if context.api_version >= FETCH_BATCHES_SINCE:
        return answer

    def convert(response: FetchResponse) -> Answer[FetchResponse]:
        work = _with_messages(broker, request, context.api_version, response)
        return broker.long_work.run(context, work, lambda converted: converted, is_search=True)

    return then(answer, convert)


def _with_batches(request: ProduceRequest) -> Work[ProduceRequest]:
    """Return a request of Produce v0-2 with batches in place of its message sets. One that is damaged becomes no batch, which is rejected."""
    turn = Turn()
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The receive buffer is used again while this waits.
            data.records = memoryview(bytes(data.records or b""))
    for topic in request.topic_data:
        for data in topic.partition_data:
            assert isinstance(data.records, memoryview)
            if is_message_set(data.records):
                try:
                    data.records = yield from batch_of(data.records, turn, SET_BYTES_MAX)
                except KafkaError:
                    data.records = None
    return request


def _known_errors(response: ProduceResponse | None) -> ProduceResponse | None:
    """Replace INVALID_RECORD, which clients of message sets do not know, by CORRUPT_MESSAGE."""
    for topic in [] if response is None else response.responses:
        for data in topic.partition_responses:
            if data.error_code == ErrorCode.INVALID_RECORD:
                data.error_code = ErrorCode.CORRUPT_MESSAGE
    return response


def _with_messages(
    broker: BrokerComponents, request: FetchRequest, version: int, response: FetchResponse
) -> Work[FetchResponse]:
    magic, turn = int(version >= FETCH_TIMESTAMPS_SINCE), Turn()
    asked = {(topic.topic, each.partition): each for topic in request.topics for each in topic.partitions}
    for topic in response.responses:
        for data in topic.partitions:
            if not data.records:
                continue
            wanted = asked[topic.topic, data.partition_index]
            limit = min(wanted.partition_max_bytes, MESSAGES_BYTES_MAX)
            try:
                data.records = yield from _messages(broker, topic.topic, data, wanted.fetch_offset, magic, turn, limit)
            except KafkaError as error:
                data.error_code, data.records = error.code, b""
    return response


def _messages(
    broker: BrokerComponents, topic: str, data: PartitionData, offset: int, magic: int, turn: Turn, limit: int
) -> Work[bytes]:
    """Return the messages from an offset on. Batches without messages for clients are skipped: otherwise the client would ask
    for the same offset for ever.
    """
    assert isinstance(data.records, bytes | memoryview)
    records = data.records
    while True:
        messages, following = yield from messages_of(records, offset, magic, turn, limit)
        if messages or following <= offset or following >= data.high_watermark:
            return messages
        log = broker.replicas.lookup(topic, ZERO_UUID, data.partition_index).local_log(-1, require_leader=True)
        offset = following
        records = log.read(offset, max_bytes=limit, up_to_offset=data.high_watermark, min_one=True).records
        if not records:
            return b""
