"""Copies of segments that this process has begun and does not know to be finished. Pure.

    copying     the objects are being written
    written     all objects are there, and COPY_FINISHED has been sent. It may be committed although its answer was an error or none, and other
                replicas may have deleted the segment from their disks by it: so the record is sent again, and the segment is not deleted
    given up    failed before that: it is deleted before the next copy begins, so that a store that is away gets no more of them

What an earlier process of this broker has begun is in none of these: a record that it sent may still arrive.
"""

from __future__ import annotations


class OwnCopies:
    """The segments by their ids."""

    def __init__(self) -> None:
        self._copying: set[bytes] = set()
        self._written: set[bytes] = set()
        self._given_up: set[bytes] = set()

    def begin(self, segment_id: bytes) -> None:
        self._copying.add(segment_id)

    def written(self, segment_id: bytes) -> None:
        """All objects are there, and COPY_FINISHED is about to be sent."""
        self._written.add(segment_id)

    def end(self, segment_id: bytes, *, finished: bool) -> None:
        self._copying.discard(segment_id)
        if finished:
            self._written.discard(segment_id)
        elif segment_id not in self._written:
            self._given_up.add(segment_id)

    def settled(self, segment_id: bytes) -> None:
        """The segment's records say more than that its copy has begun."""
        self._written.discard(segment_id)
        self._given_up.discard(segment_id)

    def is_unconfirmed(self, segment_id: bytes) -> bool:
        """Return True if its COPY_FINISHED is to be sent again."""
        return segment_id in self._written and segment_id not in self._copying

    def is_given_up(self, segment_id: bytes) -> bool:
        return segment_id in self._given_up

    def is_needed(self, segment_id: bytes) -> bool:
        """Return True if it must not be deleted, however long ago it has begun."""
        return segment_id in self._copying or segment_id in self._written
