"""Pairs of offsets of the same record in both clusters: which ones are written and kept, and how other offsets are translated
by them.

As in MirrorMaker, an offset of a group is translated by the nearest pair before it: exactly if the pair is at that offset,
otherwise to one offset after the pair, because it is not known how many of the records in between the target has. So a group
may read some records again, but never misses one. The older pairs are, the fewer are kept: at most two for each power of two of
the distance from the newest pair.

A pair means nothing for a topic that was created again, in the source or in the target. MirrorMaker notices this only by a pair
that goes back. If its worker was killed before it wrote such a pair, it translates wrongly. Therefore pairs of this mirror name
both topics by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.partitions import TopicPartition
from ottla.mirror.formats import OffsetSync, TopicIds

#: MirrorMaker's offset.lag.max: while records come, the target may be this far ahead of the last pair.
OFFSET_LAG_MAX = 100


def worth_a_pair(count: int) -> list[int]:
    """Return which of `count` consecutive records may be written as pairs: the first, one in each `OFFSET_LAG_MAX`, and the
    last.
    """
    return [*range(0, count - 1, OFFSET_LAG_MAX), count - 1]


class SyncStore:
    """The pairs of all partitions, by the source's names."""

    def __init__(self) -> None:
        #: The pairs of each partition, the newest first.
        self._kept: dict[TopicPartition, list[OffsetSync]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def add(self, sync: OffsetSync) -> None:
        """Take the next pair of the topic.

        If it is behind the newest one in a cluster, or belongs to another topic of its name, a topic was created again, and the
        pairs before it are wrong.
        """
        kept = self._kept.get(sync.place, [])
        if kept and (sync.upstream < kept[0].upstream or sync.downstream < kept[0].downstream):
            kept = []
        if sync.ids is not None and any(row.ids not in (None, sync.ids) for row in kept):
            kept = []
        if kept and sync.upstream == kept[0].upstream:
            kept = kept[1:]
        self._kept[sync.place] = _thinned([sync, *kept])

    def translate(self, place: TopicPartition, upstream: int, ids: TopicIds) -> int | None:
        """Return the offset in the target for an offset in the source, or None if there is no pair of these topics before it."""
        for sync in self._kept.get(place, ()):
            if sync.upstream <= upstream and sync.ids in (None, ids):
                return sync.downstream + (sync.upstream < upstream)
        return None

    def kept(self, place: TopicPartition) -> list[OffsetSync]:
        return list(self._kept.get(place, ()))


def _thinned(syncs: list[OffsetSync]) -> list[OffsetSync]:
    """Keep the newest and the oldest pair of each power of two of the distance from the first."""
    newest = syncs[0].upstream
    kept: list[OffsetSync] = []
    powers: list[int] = []
    for sync in syncs:
        power = (newest - sync.upstream).bit_length()
        if len(powers) > 1 and powers[-2] == powers[-1] == power:
            kept[-1] = sync
        else:
            kept.append(sync)
            powers.append(power)
    return kept


class SyncWriter:
    """The choice of the pairs that are worth a record.

    As in MirrorMaker these are the first one of a topic or after a log went back, one in each `OFFSET_LAG_MAX` offsets, and the
    last one before a pause.
    """

    def __init__(self) -> None:
        self._written: dict[TopicPartition, OffsetSync] = {}
        self._waiting: dict[TopicPartition, OffsetSync] = {}

    def take(self, pairs: Iterable[OffsetSync]) -> list[OffsetSync]:
        """Return those pairs of mirrored records that are to be written at once. The last of the others is kept for `pause`."""
        due = []
        for pair in pairs:
            written = self._written.get(pair.place)
            if written is None or self._begins(pair) or pair.downstream > written.downstream + OFFSET_LAG_MAX:
                self._written[pair.place] = pair
                self._waiting.pop(pair.place, None)
                due.append(pair)
            else:
                self._waiting[pair.place] = pair
        return due

    def pause(self) -> list[OffsetSync]:
        """Return the last pairs that are not written yet. With them a group at the end of its topic is translated exactly."""
        due = list(self._waiting.values())
        self._waiting.clear()
        self._written.update((pair.place, pair) for pair in due)
        return due

    def again(self) -> None:
        """Choose the last pair of each partition again at the next pause, because the written ones are gone."""
        self._waiting = self._written | self._waiting

    def _begins(self, pair: OffsetSync) -> bool:
        """Return whether a topic was created again, or a log was cut, since the last pair."""
        last = self._waiting.get(pair.place, self._written[pair.place])
        return pair.ids != last.ids or pair.upstream <= last.upstream or pair.downstream <= last.downstream
