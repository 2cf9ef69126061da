"""DeleteRecords (21): move the log start offset of partitions led here, and wait until all replicas have.

-1 is the high watermark. Internal topics and topics without cleanup.policy=delete reject. v2 flexible.

Errors:
    INVALID_TOPIC_EXCEPTION  the topic is internal
    POLICY_VIOLATION         the topic has no cleanup.policy=delete
    OFFSET_OUT_OF_RANGE      the offset is negative, or above the high watermark
    REQUEST_TIMED_OUT        a replica has not moved its log start offset in timeout_ms, or this broker's disk hangs
    KAFKA_STORAGE_ERROR      the log start offset could not be written
"""

from __future__ import annotations

from functools import partial

from ottla.broker.components import BrokerComponents
from ottla.broker.replication.delayed_delete_records import DelayedDelete, DelayedDeleteRecords
from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, Reply
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import StorageFailure

HIGH_WATERMARK = -1
#: The write of the log start offsets takes milliseconds. Clients that ask for no waiting (librdkafka's operation timeout 0) want to be
#: answered at once about other replicas, and not before this broker's own disk, which Apache Kafka does not wait for.
DISK_MS_MIN = 2_000


def handle(
    broker: BrokerComponents, request: DeleteRecordsRequest, context: RequestContext
) -> Answer[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    waits: list[DelayedDelete] = []
    directories: dict[str, LogDir] = {}
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            try:
                if topic.name in broker.internal_topics:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = broker.replicas.lookup(topic.name, ZERO_UUID, asked.partition_index)
                waits.append(DelayedDelete(partition, _delete(partition, asked.offset), result))
                if partition.log is not None:
                    directory = broker.replicas.logs.open.directory_of(partition.log)
                    directories[directory.path] = directory
            except KafkaError as error:
                result.error_code = error.code
            except StorageFailure:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if not directories:
        return response
    reply: Reply[DeleteRecordsResponse] = Reply()
    _Durable(broker, request.timeout_ms, response, waits, reply).wait(directories)
    return reply


class _Durable:
    """Waits until what was deleted does not come back after a crash of this broker."""

    def __init__(
        self,
        broker: BrokerComponents,
        timeout_ms: int,
        response: DeleteRecordsResponse,
        waits: list[DelayedDelete],
        reply: Reply[DeleteRecordsResponse],
    ) -> None:
        self._broker = broker
        self._response = response
        self._waits = waits
        self._reply = reply
        self._open: set[str] = set()
        clock = broker.world.clock
        self._until_ms = clock.mono_ms() + timeout_ms
        self._timer = clock.call_later(max(DISK_MS_MIN, timeout_ms), self._expire)  # a disk may hang
        reply.on_cancel = self._timer.cancel

    def wait(self, directories: dict[str, LogDir]) -> None:
        self._open.update(directories)
        for path, directory in directories.items():
            self._broker.replicas.log_start_writes.when_written(directory, partial(self._written, path))

    def _written(self, path: str, is_written: bool) -> None:
        self._open.discard(path)
        if not is_written:
            for wait in self._waits:
                local_log = wait.partition.log
                if local_log is None or self._broker.replicas.logs.open.directory_of(local_log).path == path:
                    wait.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                    wait.result.low_watermark = -1
            self._waits = [wait for wait in self._waits if not wait.result.error_code]
        if not self._open and not self._reply.cancelled and not self._reply.done:
            self._timer.cancel()
            left_ms = self._until_ms - self._broker.world.clock.mono_ms()
            _when_everywhere(self._broker, left_ms, self._response, self._waits, self._reply)

    def _expire(self) -> None:
        for wait in self._waits:
            wait.result.error_code = ErrorCode.REQUEST_TIMED_OUT
            wait.result.low_watermark = -1
        self._reply.complete(self._response)


def _when_everywhere(
    broker: BrokerComponents,
    timeout_ms: int,
    response: DeleteRecordsResponse,
    waits: list[DelayedDelete],
    reply: Reply[DeleteRecordsResponse],
) -> None:
    def is_alive(broker_id: int) -> bool:
        return broker.metadata.image.cluster.is_unfenced(broker_id)

    waits = [wait for wait in waits if not wait.is_over(is_alive)]
    if not waits:
        reply.complete(response)
        return
    waiting = DelayedDeleteRecords(waits, is_alive, broker.wheel, lambda: reply.complete(response))
    reply.on_cancel = waiting.cancel
    waiting.start(timeout_ms)


def _delete(partition: Partition, offset: int) -> int:
    """Returns the offset that the partition now begins at or after."""
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
    partition.watchers.fire()
    return offset
