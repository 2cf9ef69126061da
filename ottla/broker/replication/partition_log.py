"""Views of the logs of partitions that this broker leads: one for work that waits for something, and one for coordinators,
whose partitions are those of internal topics (`coordinator/partition_log.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import Clock
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.log import Log, Origin

ACKS_ALL = -1
#: The high watermark has passed the offset. Any other result of an append means that leadership or the directory was lost.
COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class LedLog(NamedTuple):
    """The log of a led partition, and the epoch of its leader, as they were when something was decided.

    Work that waits for a store or for another process looks at `still_holds` before it uses what it decided: the partition may have
    another leader since then, or this one again with another log.
    """

    partition: Partition
    log: Log
    leader_epoch: int

    @property
    def still_holds(self) -> bool:
        """Return whether this broker still leads the partition, with the same log and in the same epoch."""
        return self.partition.leader_log is self.log and self.partition.leader_epoch == self.leader_epoch


def led_log(partition: Partition) -> LedLog | None:
    """Return the led log of a partition, None if this broker does not lead it."""
    own = partition.leader_log
    return None if own is None else LedLog(partition, own, partition.leader_epoch)


class ReplicatedPartitionLog:
    """The coordinators' `PartitionLog`, on the replicas of this node."""

    def __init__(self, replicas: Replicas, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    def append(self, tp: TopicPartition, batches: bytes, transaction_version: int = 0) -> int:
        try:
            appended = self._partition(tp).append(
                batches, ACKS_ALL, self._clock.wall_ms(), Origin.COORDINATOR, transaction_version
            )
        except DiskFull as shortage:
            # The directory stays online, and so does this coordinator: there is no other one to look for.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(shortage)) from shortage
        except StorageFailure as failure:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        return appended.last_offset

    def high_watermark(self, tp: TopicPartition) -> int:
        return self._log(tp).high_watermark

    def when_committed(self, tp: TopicPartition, offset: int, callback: Callable[[], None]) -> None:
        partition = self._partition(tp)
        # The coordinator is notified of a loss separately.
        partition.when_committed(offset, lambda error: callback() if error in COMMITTED else None)

    def start_offset(self, tp: TopicPartition) -> int:
        return self._log(tp).log_start_offset

    def end_offset(self, tp: TopicPartition) -> int:
        return self._log(tp).log_end_offset

    def read(self, tp: TopicPartition, offset: int, max_bytes: int) -> bytes | memoryview:
        return self._log(tp).read(offset, max_bytes=max_bytes).records

    def max_batch_bytes(self, tp: TopicPartition) -> int:
        return self._log(tp).config.max_message_bytes

    def _partition(self, tp: TopicPartition) -> Partition:
        partition = self._replicas.get(*tp)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _log(self, tp: TopicPartition) -> Log:
        return self._partition(tp).local_log(-1, require_leader=True)
