"""The producer state of a partition: sequences and epochs (KIP-98), open transactions, the last stable offset.

Pure: the state is a function of the batches appended in order (invariant 28), so the leader, a follower and a replay
of the log compute the same state. `check` validates a client's batch and changes nothing; `update` and `end_transaction`
are the only places where the state changes.

A producer's batch is in order if its first sequence follows the last one (2^31 - 1 wraps to 0). A retry of one of the last
five batches is a duplicate: it gets the offsets of the first append. A new epoch starts at sequence 0. An unknown producer
may start at any sequence, because retention may have removed its records; but it starts at 0 in a log that never had a record
(KAFKA-15591): if a later request were accepted after the first one was rejected, a retry of the first would be out of order.

A transaction is open from its first batch to its marker. After the marker it still bounds the last stable offset until the
marker is below the high watermark, because until then the marker could be truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from enum import Enum
from heapq import heappop, heappush
from itertools import takewhile
from typing import NamedTuple, Protocol

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP
from ottla.protocol.records.control import EndTxnMarker
from ottla.protocol.slotted import mutable
from ottla.storage.log_files import AbortedTxn

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


@mutable
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


@mutable
class Verification:
    """Transaction verification (KIP-890): a transactional append is expected once the coordinator has confirmed the partition.

    It is valid for one transaction, and removed when that transaction begins or ends. Two verifications are compared by identity.
    """

    started_ms: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool


class ProducerBound(Protocol):
    def check(self, count: int, what: str) -> None:
        """Raise KafkaError if `count` producers are all that are allowed; `what` names the new one."""


class ProducerStates:
    """The producers of one partition."""

    __slots__ = (
        "_ended_firsts", "_generation", "_verifications", "bound", "requires_verification", "states", "undecided", "unreplicated",
    )  # fmt: skip

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self._generation = 0
        self.undecided: dict[int, int] = {}  # first offset -> producer id; offsets only grow, so in order
        # First offset -> marker's offset, in the order of the markers, of transactions whose marker is not below the high watermark.
        self.unreplicated: dict[int, int] = {}
        # A heap of those first offsets; entries of replicated ones are removed lazily.
        self._ended_firsts: list[int] = []
        self._verifications: dict[int, Verification] = {}
        # True for partitions that clients write to: the first batch of a transaction needs a verification (KIP-890).
        self.requires_verification = False
        #: The number of producers that clients may bring, on partitions that clients write to.
        self.bound: ProducerBound | None = None

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self.states.values())

    # Judging an append

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        count: int,
        transactional: bool,
        origin: Origin,
        end_offset: int,
    ) -> BatchMetadata | None:
        """Return the earlier append that this batch repeats, or None if it may be appended now, at `end_offset`.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, or POLICY_VIOLATION for one
                producer too many; nothing has changed.
        """
        state = self.states.get(producer_id)
        if state is None:
            if origin is Origin.CLIENT:
                if self.bound is not None:
                    self.bound.check(len(self.states), f"producer id {producer_id}")
                if self._verifications or transactional:
                    self._check_verification(producer_id, epoch, first_sequence, None, transactional)
                if not end_offset and first_sequence:
                    raise _out_of_order(producer_id, first_sequence, "the log never had a record, and begins with 0")
            return None
        if origin is Origin.CLIENT:
            last_sequence = (first_sequence + count - 1) & SEQUENCE_MASK
            if duplicate := state.duplicate_of(epoch, first_sequence, last_sequence):
                return duplicate
        if epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is older than its last epoch {state.epoch}",
            )
        if origin is Origin.CLIENT:
            self._check_verification(producer_id, epoch, first_sequence, state, transactional)
            _check_sequence(state, epoch, first_sequence)
        if state.current_txn_first_offset != NO_OFFSET and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open and sent a batch that is not part of it",
            )
        return None

    def check_marker(self, producer_id: int, epoch: int, marker: EndTxnMarker, transaction_version: int = 0) -> bool:
        """Return True if the marker is new, False if it repeats one of an ended transaction (KIP-890, version 2).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED; nothing has changed.
        """
        state = self.states.get(producer_id)
        if state is None:
            return True
        # Version 2 raises the epoch with every transaction, so the marker of a known epoch was written already.
        is_repeated = transaction_version >= 2 and epoch == state.epoch
        if is_repeated and (state.current_txn_first_offset == NO_OFFSET or epoch == EPOCH_MAX):
            return False
        if epoch < state.epoch or is_repeated:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of producer {producer_id} has epoch {epoch}, the partition has seen {state.epoch}",
            )
        if state.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {state.coordinator_epoch}",
            )
        return True

    # KIP-890: verification of transactional appends

    def expect_append(
        self, producer_id: int, first_sequence: int, epoch: int, now_ms: int, supports_epoch_bump: bool
    ) -> Verification:
        """Begin a verification: the broker is about to request it from the coordinator."""
        known = self._verifications.get(producer_id)
        if known is None:
            known = Verification(now_ms, first_sequence, epoch, supports_epoch_bump)
            self._verifications[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, first_sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, first_sequence)
        return known

    def may_append(self, producer_id: int, epoch: int, verification: Verification) -> bool:
        """Return True if the verification is still valid: no transaction has ended meanwhile, or this one is open here already."""
        if self._verifications.get(producer_id) is verification and verification.epoch == epoch:
            return True
        return self.has_open_transaction(producer_id, epoch)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        state = self.states.get(producer_id)
        return state is not None and state.epoch == epoch and state.current_txn_first_offset != NO_OFFSET

    def _check_verification(
        self, producer_id: int, epoch: int, first_sequence: int, state: ProducerState | None, transactional: bool
    ) -> None:
        expected = self._verifications.get(producer_id)
        if (
            transactional
            and self.requires_verification
            and (expected is None or expected.epoch != epoch)
            and not self.has_open_transaction(producer_id, epoch)
        ):
            # The transaction was open when the request arrived, and ended while the request was delayed.
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has no transaction open here, and none is expected",
            )
        if expected is None:
            return
        unknown = state is None or not state.batches
        if expected.supports_epoch_bump and first_sequence != 0 and unknown:
            raise _out_of_order(
                producer_id, first_sequence, "the first sequence of a producer not known here must be 0"
            )
        if first_sequence > expected.lowest_sequence:
            raise _out_of_order(producer_id, first_sequence, f"sequence {expected.lowest_sequence} is expected first")

    # Changing the state

    def update(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Update the state with an appended data batch."""
        state = self.states.get(producer_id)
        if state is None or state.generation != self._generation:
            state = self._to_change(producer_id, state)
        if epoch != state.epoch:
            state.epoch = epoch
            state.batches.clear()
        delta = last_offset - first_offset
        last_sequence = (first_sequence + delta) & SEQUENCE_MASK if first_sequence >= 0 else NO_SEQUENCE
        state.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        if len(state.batches) > BATCHES_REMEMBERED:
            del state.batches[0]
        state.last_timestamp = timestamp
        if transactional:
            if state.current_txn_first_offset == NO_OFFSET:
                state.current_txn_first_offset = first_offset
                self.undecided[first_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def end_transaction(
        self, producer_id: int, epoch: int, marker: EndTxnMarker, offset: int, timestamp: int
    ) -> AbortedTxn | None:
        """Update the state with a marker appended at `offset`; return the entry for the transaction index if it aborts a transaction."""
        state = self.states.get(producer_id)
        if state is None or state.generation != self._generation:
            state = self._to_change(producer_id, state)
        first_offset = state.current_txn_first_offset
        if epoch != state.epoch:
            state.epoch = epoch
            state.batches.clear()
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = timestamp
        state.current_txn_first_offset = NO_OFFSET
        self._verifications.pop(producer_id, None)
        if first_offset == NO_OFFSET:
            return None
        opened_by = self.undecided.pop(first_offset)
        assert opened_by == producer_id
        self.unreplicated[first_offset] = offset
        heappush(self._ended_firsts, first_offset)
        if marker.committed:
            return None
        last_stable_offset = next(iter(self.undecided), offset + 1)
        return AbortedTxn(producer_id, first_offset, offset, last_stable_offset)

    def _to_change(self, producer_id: int, state: ProducerState | None) -> ProducerState:
        changed = ProducerState(producer_id) if state is None else replace(state, batches=state.batches[:])
        changed.generation = self._generation
        self.states[producer_id] = changed
        return changed

    def freeze(self) -> list[ProducerState]:
        """Return the current states for another thread. Later changes are made to a copy of a producer's state."""
        self._generation += 1
        return list(self.states.values())

    # Offsets

    def first_unstable_offset(self) -> int:
        """Return the first offset of the oldest transaction without a replicated marker, or -1."""
        undecided, unreplicated = self.undecided, self.unreplicated
        if not undecided and not unreplicated:
            return NO_OFFSET
        ended = self._ended_firsts
        while ended and ended[0] not in unreplicated:
            heappop(ended)
        return min(next(iter(undecided), 2**63), ended[0] if ended else 2**63)

    def on_high_watermark(self, offset: int) -> None:
        """Drop transactions whose markers are below the high watermark, and so can no longer be truncated."""
        if self.unreplicated:
            # The order is that of the markers, so the replicated ones come first.
            done = [first for first, _ in takewhile(lambda ended: ended[1] < offset, self.unreplicated.items())]
            for first in done:
                del self.unreplicated[first]

    # Keeping

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers without an append for producer.id.expiration.ms and without an open transaction."""
        expired = [pid for pid, state in self.states.items() if is_expired(state, now_ms, expiration_ms)]
        for pid in expired:
            del self.states[pid]
        for pid in [p for p, v in self._verifications.items() if now_ms - v.started_ms >= expiration_ms]:
            del self._verifications[pid]

    def load(self, states: list[ProducerState]) -> None:
        """Replace the state by that of a snapshot."""
        self.clear()
        self.states = {state.producer_id: state for state in states}
        opened = [(s.current_txn_first_offset, s.producer_id) for s in states]
        self.undecided = {first: producer_id for first, producer_id in sorted(opened) if first != NO_OFFSET}

    def clear(self) -> None:
        self.states = {}
        self.undecided = {}
        self.unreplicated = {}
        self._ended_firsts = []


def is_expired(state: ProducerState, now_ms: int, expiration_ms: int) -> bool:
    return state.current_txn_first_offset == NO_OFFSET and now_ms - state.last_timestamp >= expiration_ms


def _check_sequence(state: ProducerState, epoch: int, first_sequence: int) -> None:
    if state.epoch == NO_PRODUCER_EPOCH:
        return
    if epoch != state.epoch:
        if first_sequence != 0:
            raise _out_of_order(
                state.producer_id, first_sequence, f"epoch {epoch} is new (last was {state.epoch}) and starts at 0"
            )
        return
    expected = (state.last_sequence + 1) & SEQUENCE_MASK  # 0 follows -1, the sequence after a marker alone
    if first_sequence != expected:
        raise _out_of_order(state.producer_id, first_sequence, f"expected {expected}")


def _out_of_order(producer_id: int, sequence: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {sequence} of producer {producer_id} is out of order: {reason}",
    )
