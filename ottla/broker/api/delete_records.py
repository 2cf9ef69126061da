"""DeleteRecords (21): move the log start offset of partitions led here, and wait until all replicas have.

-1 is the high watermark. Internal topics and topics without cleanup.policy=delete are rejected. v2 flexible.

Errors:
    INVALID_TOPIC_EXCEPTION  the topic is internal
    POLICY_VIOLATION         the topic has no cleanup.policy=delete
    OFFSET_OUT_OF_RANGE      the offset is negative, or above the high watermark
    REQUEST_TIMED_OUT        a replica has not moved its log start offset in timeout_ms, or this broker's disk hangs
    KAFKA_STORAGE_ERROR      the log start offset could not be written
    NOT_LEADER_OR_FOLLOWER   the leader has changed meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.components import BrokerComponents
from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.server.network.context import Answer, Reply, RequestContext
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import StorageFailure
from ottla.storage.log.retention import delete_records

HIGH_WATERMARK = -1
#: The minimum wait in milliseconds, for this broker's own disk: the write of the log start offsets takes a few. A client with
#: timeout 0 (librdkafka's operation timeout) does not want to wait for other replicas, but the response must not come before
#: the write. Apache Kafka's does.
DISK_MS_MIN = 2_000


def handle(
    broker: BrokerComponents, request: DeleteRecordsRequest, context: RequestContext
) -> Answer[DeleteRecordsResponse]:
    response = DeleteRecordsResponse()
    waits: list[_Wait] = []
    directories: dict[str, LogDir] = {}
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
            try:
                if topic.name in broker.internal_topics:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = broker.replicas.lookup(topic.name, ZERO_UUID, asked.partition_index)
                waits.append(_Wait(partition, _delete(partition, asked.offset), result))
                if partition.log is not None:
                    directory = broker.replicas.logs.open.directory_of(partition.log)
                    directories[directory.path] = directory
            except KafkaError as error:
                result.error_code = error.code
            except StorageFailure:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return _DelayedDelete(broker, request.timeout_ms, response, waits, directories).reply if directories else response


class _Wait:
    """One partition of a request; `result` is filled in with the low watermark and the error."""

    __slots__ = ("before_offset", "leader_epoch", "partition", "result")

    def __init__(self, partition: Partition, before_offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.before_offset = before_offset
        self.leader_epoch = partition.leader_epoch
        self.result = result

    def is_over(self, is_alive: Callable[[int], bool]) -> bool:
        partition, result, log = self.partition, self.result, self.partition.leader_log
        result.low_watermark = -1
        if log is None or partition.leader_epoch != self.leader_epoch:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR if partition.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        # The smallest log start offset of all live replicas is what the client gets.
        alive = [each.log_start_offset for each in partition.followers.values() if is_alive(each.broker_id)]
        result.low_watermark = min([log.log_start_offset, *alive])
        return result.low_watermark >= self.before_offset

    def fail(self, error: ErrorCode) -> None:
        self.result.error_code = error
        self.result.low_watermark = -1


class _DelayedDelete:
    """Waits until the deletion would survive a crash of this broker, then until every live replica has moved its log start.

    Then the leader has deleted the records for good. The wait ensures that no other replica brings them back when it becomes
    the leader with an earlier log start (Kafka's DelayedDeleteRecords). A replica of a fenced broker cannot become the leader,
    and gets the log start when it returns.
    """

    def __init__(
        self,
        broker: BrokerComponents,
        timeout_ms: int,
        response: DeleteRecordsResponse,
        waits: list[_Wait],
        directories: Mapping[str, LogDir],
    ) -> None:
        self.reply: Reply[DeleteRecordsResponse] = Reply()
        self._broker = broker
        self._response = response
        self._waits = waits
        self._unwritten = set(directories)
        self._until_ms = broker.world.clock.mono_ms() + timeout_ms
        self._slot = broker.wheel.add(self, max(DISK_MS_MIN, timeout_ms))  # a disk may hang
        self.reply.on_cancel = self._stop
        for path, directory in directories.items():
            broker.replicas.log_start_writes.when_written(directory, partial(self._written, path))

    def _written(self, path: str, is_written: bool) -> None:
        self._unwritten.discard(path)
        if not is_written:
            for wait in self._waits:
                local_log = wait.partition.log
                if local_log is None or self._broker.replicas.logs.open.directory_of(local_log).path == path:
                    wait.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            self._waits = [wait for wait in self._waits if not wait.result.error_code]
        if self._unwritten or self.reply.cancelled or self.reply.done:
            return
        wheel = self._broker.wheel
        wheel.remove(self, self._slot)
        self._slot = wheel.add(self, max(0, self._until_ms - self._broker.world.clock.mono_ms()))
        for wait in self._waits:
            wait.partition.delayed_deletes.append(self)
        self.wake()
        for wait in self._waits:
            wait.partition.watchers.fire()

    def wake(self) -> None:
        """Complete the reply if its waits are over: a replica's log start has moved, or the roles of a partition have
        changed.
        """
        over = [wait for wait in self._waits if wait.is_over(self._broker.metadata.is_alive)]
        for wait in over:
            self._waits.remove(wait)
            wait.partition.delayed_deletes.remove(self)
        if not (self._waits or self.reply.done or self.reply.cancelled):
            self._stop()
            self.reply.complete(self._response)

    def expire(self) -> None:
        for wait in self._waits:
            if self._unwritten or not wait.is_over(self._broker.metadata.is_alive):
                wait.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._stop()
        self.reply.complete(self._response)

    def _stop(self) -> None:
        self._broker.wheel.remove(self, self._slot)
        for wait in self._waits:
            if self in wait.partition.delayed_deletes:
                wait.partition.delayed_deletes.remove(self)


def _delete(partition: Partition, offset: int) -> int:
    """Return the offset that the partition now begins at or after."""
    log = partition.local_log(-1, require_leader=True)
    if not log.config.delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "records of a topic without cleanup.policy=delete cannot be deleted"
        )
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    delete_records(log, offset)
    partition.watchers.fire()
    return offset
