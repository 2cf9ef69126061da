"""The offset that a follower truncates to, so that its log agrees with the leader's: a pure function of the two epoch histories (KIP-101).

The leader answers a fetch that does not fit with (epoch, end offset): the largest of its epochs at or below the one that
the follower asked about, and where that epoch ended in the leader's log.

    the follower's log                      goes back to                                    then
    has that very epoch                     the smaller of the two ends                     agrees
    has only older epochs                   the end of the largest of those                 fetches again: may diverge earlier still
    has no epoch that old                   the leader's end offset                         agrees

Never to the high watermark: what lies above it may be acknowledged at the leader already, because a follower learns of a
high watermark one fetch later (KIP-101 describes how records were lost that way).
"""

from __future__ import annotations

from typing import NamedTuple

UNDEFINED = -1


class EndOfEpoch(NamedTuple):
    epoch: int
    end_offset: int


def truncation_offset(leader: EndOfEpoch, own: EndOfEpoch, log_end_offset: int) -> int:
    """Return the offset to truncate to. `own` is this log's largest epoch up to the leader's, with its end offset, or (-1, -1)."""
    assert leader.epoch >= 0 and leader.end_offset >= 0, f"a leader diverges somewhere, not at {leader}"
    if own.epoch == UNDEFINED:
        return min(leader.end_offset, log_end_offset)
    if own.epoch == leader.epoch:
        return min(leader.end_offset, own.end_offset, log_end_offset)
    return min(own.end_offset, log_end_offset)
