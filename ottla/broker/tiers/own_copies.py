"""Copies of segments that this process has begun and does not know to be finished. Pure.

    copying     the objects are being written
    written     all objects are there, and COPY_FINISHED has been sent. It may be committed although its answer was an error or none, and other
                replicas may have deleted the segment from their disks by it: so the record is sent again, and the segment is not deleted
    given up    failed before that: it is deleted before the next copy begins, so that a store that is away gets no more of them

What an earlier process of this broker has begun is in none of these: a record that it sent may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteState

Undo = Callable[[], object]


class _Begun(NamedTuple):
    topic_id: bytes
    partition: int
    #: The call that deletes the objects.
    undo: Undo


class OwnCopies:
    """The segments by their ids."""

    def __init__(self) -> None:
        self._begun: dict[bytes, _Begun] = {}
        self._copying: set[bytes] = set()
        self._named: set[bytes] = set()
        self._written: set[bytes] = set()

    def begin(self, segment_id: bytes, topic_id: bytes, partition: int, undo: Undo) -> None:
        self._begun[segment_id] = _Begun(topic_id, partition, undo)
        self._copying.add(segment_id)

    def named(self, segment_id: bytes) -> None:
        """COPY_STARTED has been replayed here."""
        self._named.add(segment_id)

    def written(self, segment_id: bytes) -> None:
        """All objects are there, and COPY_FINISHED is about to be sent."""
        self._written.add(segment_id)

    def end(self, segment_id: bytes) -> None:
        self._copying.discard(segment_id)

    def settle(self, segments_of: Callable[[bytes, int], Mapping[bytes, RemoteSegment] | None]) -> list[Undo]:
        """Forget the copies whose end is in the records. Return the calls that delete the objects of segments which no record
        names any more.

        Another leader has deleted these segments, but not the objects that were written after its deletion. `segments_of`
        returns the segments of a partition by their ids, or None where they are not known here.
        """
        gone = []
        for segment_id, (topic_id, partition, undo) in list(self._begun.items()):
            known = segments_of(topic_id, partition)
            if known is None or segment_id in self._copying:
                continue
            if segment_id not in known:
                if segment_id not in self._named:
                    continue  # the record of its start may still be on the way
                gone.append(undo)
            elif known[segment_id].state is not RemoteState.COPY_FINISHED:
                continue  # its deletion may have passed an object before that was written
            self.settled(segment_id)
        return gone

    def settled(self, segment_id: bytes) -> None:
        """Forget the copy: the records of its segment say how it has ended."""
        self._begun.pop(segment_id, None)
        self._named.discard(segment_id)
        self._written.discard(segment_id)

    def is_unconfirmed(self, segment_id: bytes) -> bool:
        """Return True if its COPY_FINISHED is to be sent again."""
        return segment_id in self._written and segment_id not in self._copying

    def is_given_up(self, segment_id: bytes) -> bool:
        return segment_id in self._begun and not self.is_needed(segment_id)

    def is_needed(self, segment_id: bytes) -> bool:
        """Return True if it must not be deleted, however long ago it has begun."""
        return segment_id in self._copying or segment_id in self._written
