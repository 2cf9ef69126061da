"""Where a log ended at a time, by what its batches say: a rule without state, and without files.

Records have the times of their clients, which may be anything; what the cluster itself has written has its time of writing.
So the cluster's facts draw the bounds, and the clients' times decide only between them:

    at the latest    the first marker, or batch with LogAppendTime, or record of a coordinator, of after the time; the first
                     batch of a leader's epoch, or of a producer id, that the metadata did not have yet; the first batch of a
                     transaction that its coordinator did not know yet
    at the earliest  behind the last marker, or batch with LogAppendTime, of up to the time; behind each offset that a group
                     had committed; behind what a transaction wrote whose end was decided
    between them     the first batch with a record of after the time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    """What the rest of the cluster said at the time about a partition."""

    time_ms: int
    #: The leader's epoch in the metadata.
    leader_epoch: int
    #: The first producer id that was not allocated yet.
    producer_ids_end: int
    #: A coordinator writes the partition.
    is_internal: bool
    #: The highest offset that a group had committed.
    committed: int = 0
    #: Producers with a transaction here that its coordinator knew, and had not ended.
    open: frozenset[int] = frozenset()
    #: Those of them whose end was decided: commit or abort.
    prepared: frozenset[int] = frozenset()


class _Cut(NamedTuple):
    offset: int
    #: The first offset of each transaction that is open there, by producer id.
    open: dict[int, int]


def end_at(batches: Callable[[], Iterable[Header]], known: Known) -> int:
    """Return the offset at which the log ended; `batches` returns the headers of all of its batches in order."""
    end = _by_times(batches(), known)
    while unknown := [first for producer, first in end.open.items() if producer not in known.open]:
        end = _before(batches(), min(unknown))
    return end.offset


def _by_times(batches: Iterable[Header], known: Known) -> _Cut:
    open_now: dict[int, int] = {}
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
        decided = not is_control and attributes & TRANSACTIONAL_BIT and header[PRODUCER_ID] in known.prepared
        if is_dated or decided or first < known.committed:
            late = None
        elif late is None and time_ms > known.time_ms:
            late = _Cut(first, dict(open_now))
        _note(open_now, header)
        end = first + header[LAST_OFFSET_DELTA] + 1
    return late or _Cut(end, open_now)


def _before(batches: Iterable[Header], offset: int) -> _Cut:
    open_now: dict[int, int] = {}
    for header in batches:
        if header[BASE_OFFSET] >= offset:
            break
        _note(open_now, header)
    return _Cut(offset, open_now)


def _note(open_now: dict[int, int], header: Header) -> None:
    producer = header[PRODUCER_ID]
    if header[ATTRIBUTES] & CONTROL_BIT:
        open_now.pop(producer, None)
    elif header[ATTRIBUTES] & TRANSACTIONAL_BIT:
        open_now.setdefault(producer, header[BASE_OFFSET])
