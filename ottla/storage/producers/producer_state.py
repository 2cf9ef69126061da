"""One producer's state on one partition, and the values that its batches and markers bring. producers.py has the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP

BATCHES_REMEMBERED = 5  # Kafka's limit of requests in flight with idempotence
SEQUENCE_MASK = 0x7FFF_FFFF
EPOCH_MAX = 0x7FFF
NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1


class Origin(Enum):
    """The origin of an append; it decides which fields are checked and which are assigned."""

    CLIENT = "client"  # everything is checked; offsets and epochs are assigned
    COORDINATOR = "coordinator"  # this node's coordinators: markers, group offsets; sequences are not checked
    REPLICATION = "replication"  # the leader's batches: offsets and epochs are kept; the leader has validated them
    RAFT = "raft"  # the quorum leader's batches: offsets and epochs are kept


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndTransaction(NamedTuple):
    """A transaction marker: the content of a control record of type ABORT or COMMIT."""

    commit: bool
    coordinator_epoch: int


@dataclass(slots=True)
class ProducerState:
    """The state of one producer on one partition. `epoch` is -1 until its first batch or marker."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int = NO_OFFSET
    batches: list[BatchMetadata] = field(default_factory=list)
    generation: int = field(default=0, compare=False, repr=False)  # see `ProducerStates.freeze`

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None
