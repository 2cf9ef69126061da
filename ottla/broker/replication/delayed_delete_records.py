"""DeleteRecords requests that wait until every live replica has moved its log start (Kafka's DelayedDeleteRecords).

The leader has deleted the records for good when such a request is delayed. The wait ensures that no other replica brings them
back, as a leader whose log still begins before them. A replica whose broker is fenced cannot, and is notified when it returns.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartitionResult
from ottla.server.timer_wheel import TimerWheel


def low_watermark(partition: Partition, is_alive: Callable[[int], bool]) -> int:
    """Returns the smallest log start offset of all live replicas: what DeleteRecords answers with and waits for."""
    assert partition.log is not None
    alive = (each.log_start_offset for each in partition.followers.values() if is_alive(each.broker_id))
    return min([partition.log.log_start_offset, *alive])


class DelayedDelete:
    """One partition of a delayed DeleteRecords; `result` is filled in with the low watermark and the error."""

    __slots__ = ("before_offset", "leader_epoch", "partition", "result")

    def __init__(self, partition: Partition, before_offset: int, result: DeleteRecordsPartitionResult) -> None:
        self.partition = partition
        self.before_offset = before_offset
        self.leader_epoch = partition.leader_epoch
        self.result = result

    def is_over(self, is_alive: Callable[[int], bool]) -> bool:
        partition, result = self.partition, self.result
        result.low_watermark = -1
        if partition.leader_log is None or partition.leader_epoch != self.leader_epoch:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR if partition.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        result.low_watermark = low_watermark(partition, is_alive)
        return result.low_watermark >= self.before_offset


class DelayedDeleteRecords:
    """A delayed DeleteRecords request. `done` is called once, never in the constructor, and not after `cancel`."""

    __slots__ = ("_done", "_is_alive", "_open", "_slot", "_wheel")

    def __init__(
        self, waits: list[DelayedDelete], is_alive: Callable[[int], bool], wheel: TimerWheel, done: Callable[[], None]
    ) -> None:
        self._open = waits
        self._is_alive = is_alive
        self._wheel = wheel
        self._done = done
        self._slot = -1

    def start(self, timeout_ms: int) -> None:
        self._slot = self._wheel.add(self, max(0, timeout_ms))
        for wait in self._open:
            wait.partition.delayed_deletes.append(self)
            wait.partition.watchers.fire()

    def wake(self) -> None:
        """A replica's log start has moved, or the partition's roles."""
        self._open = [wait for wait in self._open if not self._closes(wait)]
        if not self._open:
            self._finish()
            self._done()

    def expire(self) -> None:
        for wait in self._open:
            if not wait.is_over(self._is_alive):
                wait.result.error_code = ErrorCode.REQUEST_TIMED_OUT
                wait.result.low_watermark = -1
        self._finish()
        self._done()

    def cancel(self) -> None:
        """Drops the operation, because the connection was closed."""
        self._finish()

    def _closes(self, wait: DelayedDelete) -> bool:
        if not wait.is_over(self._is_alive):
            return False
        self._forget(wait)
        return True

    def _forget(self, wait: DelayedDelete) -> None:
        if self in wait.partition.delayed_deletes:
            wait.partition.delayed_deletes.remove(self)

    def _finish(self) -> None:
        if self._slot >= 0:
            self._wheel.remove(self, self._slot)
            self._slot = -1
        for wait in self._open:
            self._forget(wait)
        self._open = []
