"""Pairs of offsets that are the same record in both clusters: which are written, which are kept, and what they say of other offsets.

As in MirrorMaker, an offset of a group is translated by the nearest pair before it: exactly if the pair is at that offset, otherwise to one
offset after the pair, because it is not known how many of the records in between the target has. A group may thus read some records
again, and never misses one. Old pairs are kept ever more sparsely: for each power of two of the distance from the newest pair at most two.

A pair says nothing of a topic that was created again, in the source or in the target. MirrorMaker notices that by a pair that goes back,
and translates wrongly if such a pair was not written, because its worker was killed. Pairs of this mirror name both topics by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.partitions import TopicPartition
from ottla.mirror.formats import OffsetSync, TopicIds

#: MirrorMaker's offset.lag.max: so far the target may be ahead of the last pair while records come.
OFFSET_LAG_MAX = 100


def worth_a_pair(count: int) -> list[int]:
    """Return which of so many records in a row may be written as pairs: the first, one each `OFFSET_LAG_MAX`, and the last."""
    return [*range(0, count - 1, OFFSET_LAG_MAX), count - 1]


class SyncStore:
    """The pairs of all partitions, by the source's names."""

    def __init__(self) -> None:
        #: Newest first.
        self._kept: dict[TopicPartition, list[OffsetSync]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def add(self, sync: OffsetSync) -> None:
        """Take the next pair of the topic. One that is behind the newest in a cluster, or of another topic of its name, means that a topic
        began again: those before it are wrong."""
        kept = self._kept.get(sync.place, [])
        if kept and (sync.upstream < kept[0].upstream or sync.downstream < kept[0].downstream):
            kept = []
        if sync.ids is not None and any(row.ids not in (None, sync.ids) for row in kept):
            kept = []
        if kept and sync.upstream == kept[0].upstream:
            kept = kept[1:]
        self._kept[sync.place] = _thinned([sync, *kept])

    def translate(self, place: TopicPartition, upstream: int, ids: TopicIds) -> int | None:
        """Return the target's offset for one of the source's, None if no pair of these topics is before it."""
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
    """Chooses the pairs that are worth a record, as MirrorMaker does: the first of a topic or after a log went back, one each
    `OFFSET_LAG_MAX` offsets, and the last at a pause."""

    def __init__(self) -> None:
        self._written: dict[TopicPartition, OffsetSync] = {}
        self._waiting: dict[TopicPartition, OffsetSync] = {}

    def take(self, pairs: Iterable[OffsetSync]) -> list[OffsetSync]:
        """Return the pairs of what was mirrored that are to be written at once; of the others the last is kept for `pause`."""
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
        """Return the last pairs if they are not written yet, so that a group at the end of its topic is translated exactly."""
        due = list(self._waiting.values())
        self._waiting.clear()
        self._written.update((pair.place, pair) for pair in due)
        return due

    def again(self) -> None:
        """Choose the last pair of each partition at the next pause, although it was written: what was written is gone."""
        self._waiting = self._written | self._waiting

    def _begins(self, pair: OffsetSync) -> bool:
        """Return whether a topic began again, or a log was cut, since the last pair."""
        last = self._waiting.get(pair.place, self._written[pair.place])
        return pair.ids != last.ids or pair.upstream <= last.upstream or pair.downstream <= last.downstream
