"""Reading ahead: a consumer that reads on finds its next chunks in memory, across the ends of segments.

A read that begins where an earlier one has ended counts as that of a consumer that reads on. A single read, such as a
follower's or a tool's, has nothing read ahead for it: a chunk that no read asks for costs the store as much as one that is
needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ottla.broker.tiers.objects import TierFailure
from ottla.broker.tiers.remote_chunks import RemoteChunks
from ottla.broker.tiers.remote_reading import RemoteRead, RemoteSegmentReader
from ottla.broker.tiers.remote_segments import TieredPartition
from ottla.server.tasks import Spawn
from ottla.storage.segment.segment_file import INDEX_SUFFIX

#: The chunk in which a read has ended, and two more.
DEPTH = 3
#: The number of reads whose ends are remembered.
ENDS_MAX = 10_000

_Place = tuple[bytes, int]


class ReadingAhead:
    """The ends of the last reads, and the reads ahead that are in progress for them."""

    def __init__(self, chunks: RemoteChunks, spawn: Spawn) -> None:
        self._chunks, self._spawn = chunks, spawn
        self._ends: OrderedDict[tuple[bytes, int, int], None] = OrderedDict()
        #: The partitions of which a next segment is looked at.
        self._crossing: set[_Place] = set()

    def after(
        self,
        place: TieredPartition,
        offset: int,
        read: RemoteRead,
        reader: RemoteSegmentReader,
        following: Callable[[], Awaitable[RemoteSegmentReader | None]],
    ) -> None:
        """Read ahead of a read at `offset`, if it goes on where one has ended. `following` finds the next segment's reader."""
        key = place.topic_id, place.partition
        is_next = self._ends.pop((*key, offset), "") is None
        self._ends[*key, read.next_offset] = None
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
        if not is_next:
            return
        first, last = reader.chunk_at(read.end), reader.chunk_at(reader.segment.size - 1)
        for number in range(first, min(first + DEPTH, last + 1)):
            if not self._chunks.read_ahead(*reader.chunk_of(number)):
                return
        missing = first + DEPTH - 1 - last
        if missing > 0 and key not in self._crossing:
            self._crossing.add(key)
            self._spawn(
                self._cross(key, following, min(missing, DEPTH)), f"read ahead of {place.topic}-{place.partition}"
            )

    async def _cross(
        self, key: _Place, following: Callable[[], Awaitable[RemoteSegmentReader | None]], missing: int
    ) -> None:
        try:
            reader = await following()
            if reader is not None:
                await reader.file(INDEX_SUFFIX)
                last = reader.chunk_at(reader.segment.size - 1)
                for number in range(min(missing, last + 1)):
                    self._chunks.read_ahead(*reader.chunk_of(number))
        except TierFailure:
            pass  # the consumer will see it, if it is so still
        finally:
            self._crossing.discard(key)
