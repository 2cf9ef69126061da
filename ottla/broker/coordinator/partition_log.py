"""The interface of a coordinator to its log: one partition of an internal topic, led by this broker.

The coordinator declares it, replication implements it, tests keep it in memory. It is not the storage log: nothing here
creates, truncates or configures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]


class PartitionLog(Protocol):
    """Append to, and read back, the partitions of internal topics that this broker leads."""

    def append(self, tp: TopicPartition, batches: bytes, transaction_version: int = 0) -> int:
        """Append one or more whole record batches as leader and return the last offset; never waits.

        `transaction_version` is that of the transaction which a marker ends.

        Raises KafkaError and changes nothing when the append is rejected (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
        MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR ..., COORDINATOR_NOT_AVAILABLE while the disk has no room).
        """
        ...

    def high_watermark(self, tp: TopicPartition) -> int:
        """Return the offset below which all is committed. Each request asks for it once, so it has to be cheap."""
        ...

    def when_committed(self, tp: TopicPartition, offset: int, callback: Callable[[], None]) -> None:
        """Call back once, soon after the high watermark has passed `offset`.

        It is never called when leadership ends first (the coordinator is notified of that separately, and fails pending
        responses).
        """
        ...

    def start_offset(self, tp: TopicPartition) -> int:
        """Return the first offset to load from: the log start offset."""
        ...

    def end_offset(self, tp: TopicPartition) -> int:
        """Return the offset the next append gets."""
        ...

    def read(self, tp: TopicPartition, offset: int, max_bytes: int) -> bytes | memoryview:
        """Return whole batches from the one holding `offset`, up to the end of the log, at least one; empty at the end.

        Loading reads past the high watermark: an appended record counts, as the new leader will commit it.
        """
        ...

    def max_batch_bytes(self, tp: TopicPartition) -> int:
        """Return the topic's max.message.bytes."""
        ...
