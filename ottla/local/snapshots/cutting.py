"""The offset at which a log ended at a given time, from its batches: a rule without state, and without files.

Records have timestamps from their clients, which may be anything; what the cluster itself has written has the time of writing.
So the cluster's facts set the bounds, and the clients' timestamps decide only between them:

    at the latest    the first marker, or batch with LogAppendTime, or record of a coordinator, from after the time; the first
                     batch of a leader's epoch, or of a producer id, that the metadata did not have yet; the first batch of a
                     transaction that its coordinator did not know yet: also if it knew the producer's transaction before it
    at the earliest  behind the last marker, or batch with LogAppendTime, from up to the time; behind each offset that a group
                     had committed; behind the batches of a transaction whose end was decided
    between them     the first batch with a record from after the time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ottla.protocol.records.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    PARTITION_LEADER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
    Header,
)


class Known(NamedTuple):
    """The knowledge of the rest of the cluster about a partition, at the time of the cut."""

    time_ms: int
    #: The leader epoch in the metadata.
    leader_epoch: int
    #: The first producer id that was not allocated yet.
    producer_ids_end: int
    #: Whether a coordinator writes the partition.
    is_internal: bool
    #: The highest offset that a group had committed.
    committed: int = 0
    #: Producers with an open transaction here that its coordinator knew.
    open: frozenset[int] = frozenset()
    #: The time of the decision to commit or abort, by the producer id of the transaction.
    prepared: Mapping[int, int] = MappingProxyType({})


@dataclass
class _Open:
    """The open transactions of a log, up to a batch."""

    known: Known
    #: The first offset of each open transaction, by producer id.
    first: dict[int, int] = field(default_factory=dict)
    #: Producers whose decided transaction has its marker. Their further batches belong to another transaction, which the
    #: coordinator did not know.
    ended: set[int] = field(default_factory=set)

    def note(self, header: Header) -> None:
        producer = header[PRODUCER_ID]
        if header[ATTRIBUTES] & CONTROL_BIT:
            self.first.pop(producer, None)
            # A marker older than the decision belongs to the transaction before.
            if header[MAX_TIMESTAMP] >= self.known.prepared.get(producer, header[MAX_TIMESTAMP] + 1):
                self.ended.add(producer)
        elif header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            self.first.setdefault(producer, header[BASE_OFFSET])

    def unknown(self) -> list[int]:
        """Return the offsets at which transactions begin that the coordinator did not know."""
        return [
            first for producer, first in self.first.items() if producer not in self.known.open or producer in self.ended
        ]

    def is_decided(self, header: Header) -> bool:
        """Return whether the batch belongs to a transaction whose end was decided."""
        producer = header[PRODUCER_ID]
        return bool(
            header[ATTRIBUTES] & TRANSACTIONAL_BIT
            and not header[ATTRIBUTES] & CONTROL_BIT
            and producer in self.known.prepared
            and producer not in self.ended
        )


class _Cut(NamedTuple):
    offset: int
    #: The offsets at which open transactions begin that their coordinator did not know.
    unknown: list[int]


def end_at(batches: Callable[[], Iterable[Header]], known: Known) -> int:
    """Return the offset at which the log ended. `batches` returns the headers of all of its batches in order."""
    end = _by_times(batches(), known)
    while end.unknown:
        end = _before(batches(), min(end.unknown), known)
    return end.offset


def _by_times(batches: Iterable[Header], known: Known) -> _Cut:
    open_now = _Open(known)
    late: _Cut | None = None
    end = 0
    for header in batches:
        attributes, time_ms, first = header[ATTRIBUTES], header[MAX_TIMESTAMP], header[BASE_OFFSET]
        is_control = attributes & CONTROL_BIT != 0
        is_dated = is_control or known.is_internal or attributes & LOG_APPEND_TIME_BIT != 0
        is_later = (
            (is_dated and time_ms > known.time_ms)
            or header[PARTITION_LEADER_EPOCH] > known.leader_epoch
            or (not is_control and header[PRODUCER_ID] >= known.producer_ids_end >= 0)
        )
        if is_later:
            break
        if is_dated or open_now.is_decided(header) or first < known.committed:
            late = None
        elif late is None and time_ms > known.time_ms:
            late = _Cut(first, open_now.unknown())
        open_now.note(header)
        end = first + header[LAST_OFFSET_DELTA] + 1
    return late or _Cut(end, open_now.unknown())


def _before(batches: Iterable[Header], offset: int, known: Known) -> _Cut:
    open_now = _Open(known)
    for header in batches:
        if header[BASE_OFFSET] >= offset:
            break
        open_now.note(header)
    return _Cut(offset, open_now.unknown())
