"""DeleteRecords (21): move the log start offset of partitions led here, and wait until all replicas have.

-1 is the high watermark. Internal topics and topics without cleanup.policy=delete refuse. v2 flexible.
"""

from __future__ import annotations

from broker.parts import BrokerParts
from broker.replication.partition import Partition
from broker.replication.waiting_deletes import WaitingDelete, WaitingDeletes
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.primitives import ZERO_UUID
from server.network.context import RequestContext
from server.network.deferred import Deferred
from storage.errors import StorageFailure

HIGH_WATERMARK = -1


def handle(
    broker: BrokerParts, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Deferred:
    response = DeleteRecordsResponse()
    waits: list[WaitingDelete] = []
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            try:
                if topic.name in broker.internal_topics:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = broker.replicas.lookup(topic.name, ZERO_UUID, asked.partition_index)
                waits.append(WaitingDelete(partition, _delete(partition, asked.offset), result))
            except KafkaError as error:
                result.error_code = error.code
            except StorageFailure:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    # Once for all: what is answered here does not come back after a crash.
    missed = broker.replicas.logs.write_log_starts()
    for wait in waits if missed else ():
        local_log = wait.partition.log
        if local_log is None or broker.replicas.logs.directory_of(local_log) in missed:
            wait.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    waits = [wait for wait in waits if wait.result.error_code == ErrorCode.NONE]
    return _when_everywhere(broker, request.timeout_ms, response, waits)


def _when_everywhere(
    broker: BrokerParts, timeout_ms: int, response: DeleteRecordsResponse, waits: list[WaitingDelete]
) -> DeleteRecordsResponse | Deferred:
    def is_alive(broker_id: int) -> bool:
        return broker.metadata.image.cluster.is_unfenced(broker_id)

    waits = [wait for wait in waits if not wait.is_over(is_alive)]
    if not waits:
        return response
    deferred = Deferred()
    waiting = WaitingDeletes(waits, is_alive, broker.wheel, lambda: deferred.complete(response))
    deferred.on_cancel = waiting.cancel
    waiting.start(timeout_ms)
    return deferred


def _delete(partition: Partition, offset: int) -> int:
    """The offset that the partition now begins at or after."""
    log = partition.local_log(-1, require_leader=True)
    if not log.config.delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "records of a topic without cleanup.policy=delete cannot be deleted"
        )
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.delete_records(offset)
    partition.wake_fetches()
    return offset
