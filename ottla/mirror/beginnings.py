"""The offsets at which partitions begin or go on: the present state of the source is compared with the position in the target.

    no position                               at the first record (`Beginnings.latest`: at the end, for partitions of the first
                                              look)
    another topic id                          the topic was deleted and created again: at its first record
    below the log                             retention was faster: at the log's first record
    behind the end of the position's epoch    the log was cut (an unclean election, a restored source): where both part
                                              (KIP-320)

Records that are not mirrored because of this are reported and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.client.cluster import ClusterClient, Leaders
from ottla.client.fetched import CONSUMER, epoch_ends
from ottla.client.partitions import TopicPartition
from ottla.client.topics import EARLIEST, LATEST
from ottla.mirror.catalogue import Say
from ottla.mirror.positions import MirrorPosition
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

Offsets = dict[TopicPartition, int]


class PlaceBegin(NamedTuple):
    """The offset at which a partition is read, as its leader of this epoch has confirmed it."""

    position: MirrorPosition
    leader_epoch: int


@dataclass(slots=True)
class Losses:
    """The records that the source no longer had when they were to be mirrored."""

    #: The offsets that were not mirrored, as far as their number is known.
    offsets: int = 0
    #: The partitions whose topic was deleted and created again.
    recreated: int = 0
    #: The partitions whose log was cut below the mirrored offset.
    cut: int = 0


class Beginnings:
    """The offsets at which the partitions of one worker begin. `known_ends` has the last known ends of partitions."""

    def __init__(self, source: ClusterClient, known_ends: Mapping[TopicPartition, int], say: Say) -> None:
        self.losses = Losses()
        #: The partitions for whose position a leader has answered OFFSET_OUT_OF_RANGE.
        self.out_of_range: set[TopicPartition] = set()
        self._source = source
        self._known_ends = known_ends
        self._say = say
        self._reported: set[tuple[TopicPartition, MirrorPosition]] = set()

    async def of(
        self, places: Iterable[TopicPartition], found: Mapping[TopicPartition, MirrorPosition]
    ) -> dict[TopicPartition, PlaceBegin]:
        """Return the offset at which each of `places` begins. Partitions without a leader at the moment are left out.

        Raises:
            Failure: the source cannot be reached.
        """
        leaders = await self._leaders(places)
        firsts = await self._list(leaders, places, EARLIEST)
        refused = [place for place in firsts if place in self.out_of_range]
        ends = await self._list(leaders, refused, LATEST)
        same = {place: row for place, row in found.items() if row.topic_id == leaders.current_id(place[0])}
        parted = await self._parted(leaders, {place: same[place] for place in firsts if place in same})
        begins = {}
        for place, first in firsts.items():
            topic_id = leaders.topic_id(place[0])
            if (place in refused and place not in ends) or (place in same and place not in parted):
                continue
            point, epoch = parted.get(place), leaders.of(place).epoch
            if place in same and epoch < same[place].epoch:
                # The leader's epoch is older than the position's: the source was restored, and it is not known where both logs
                # differ.
                point = MirrorPosition(first, topic_id)
            at = self._begin(place, found.get(place), topic_id, first, ends.get(place), point)
            begins[place] = PlaceBegin(at, epoch)
            self.out_of_range.discard(place)
        return begins

    async def latest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, MirrorPosition]:
        """Return the ends of partitions that have a leader, with the leader epoch of each.

        The epoch shows a later cut below the end, even if nothing has been mirrored yet (KIP-320).

        Raises:
            Failure: the source cannot be reached.
        """
        leaders = await self._leaders(places)
        ends = await self._rows(leaders, places, LATEST)
        return {
            place: MirrorPosition(row.offset, leaders.topic_id(place[0]), row.leader_epoch)
            for place, row in ends.items()
        }

    def _begin(
        self,
        place: TopicPartition,
        position: MirrorPosition | None,
        topic_id: bytes,
        first: int,
        end: int | None,
        parted: MirrorPosition | None,
    ) -> MirrorPosition:
        if position is None:
            return MirrorPosition(first, topic_id)
        at = position.next_offset
        if position.topic_id not in (None, topic_id):
            unread = max(0, self._known_ends.get(place, at) - at)
            why = "its topic was deleted and created again"
            why += f", and {unread} offsets of the deleted one were not mirrored" if unread else ""
            if self._report(place, position, f"{why}; the new one is mirrored from offset {first} on"):
                self.losses.recreated += 1
                self.losses.offsets += unread
            return MirrorPosition(first, topic_id)
        if at < first:
            why = f"{first - at} offsets from {at} on were deleted by retention before they were mirrored"
            if self._report(place, position, f"{why}; it goes on at offset {first}"):
                self.losses.offsets += first - at
            return MirrorPosition(first, topic_id)
        if parted is None and end is not None and at > end:
            # Without an epoch it is not known where the two logs differ. A topic with the same id was cut; one with another id
            # is mirrored from its beginning.
            parted = MirrorPosition(end if position.topic_id is not None else first, topic_id)
            if position.topic_id is None:
                why = f"the source ends before offset {at}: it was deleted and created again, or has lost records"
                if self._report(place, position, f"{why}; it goes on at offset {first}"):
                    self.losses.recreated += 1
                return parted
        if parted is not None and parted.next_offset < at:
            begin = max(first, parted.next_offset)
            why = f"the source has lost offsets {parted.next_offset} to {at - 1}, which are in the target"
            if self._report(
                place, position, f"{why} (an unclean election, or a restored source); it goes on at {begin}"
            ):
                self.losses.cut += 1
            return MirrorPosition(begin, topic_id, parted.epoch)
        return position._replace(topic_id=topic_id)

    def _report(self, place: TopicPartition, position: MirrorPosition, text: str) -> bool:
        """Report a loss once for each position. Return whether it was reported now."""
        if (place, position) in self._reported:
            return False
        self._reported.add((place, position))
        self._say(f"{place[0]}-{place[1]}: {text}")
        return True

    # -- Questions to the leaders ----------------------------------------------------------------------------------------

    async def _leaders(self, places: Iterable[TopicPartition]) -> Leaders:
        leaders = Leaders(self._source, sorted({name for name, _ in places}), all_exist=False)
        if leaders.topics:
            await leaders.refresh()
        return leaders

    async def _list(self, leaders: Leaders, places: Iterable[TopicPartition], at: int) -> Offsets:
        return {place: row.offset for place, row in (await self._rows(leaders, places, at)).items()}

    async def _rows(
        self, leaders: Leaders, places: Iterable[TopicPartition], at: int
    ) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
        def request(rows: dict[str, list[int]]) -> object:
            topics = [
                ListOffsetsTopic(name, [ListOffsetsPartition(index, timestamp=at) for index in indexes])
                for name, indexes in rows.items()
            ]
            return ListOffsetsRequest(CONSUMER, topics=topics)

        return {
            (topic.name, row.partition_index): row
            for topic in await self._ask(leaders, places, request)
            for row in topic.partitions
            if not row.error_code
        }

    async def _parted(
        self, leaders: Leaders, positions: Mapping[TopicPartition, MirrorPosition]
    ) -> dict[TopicPartition, MirrorPosition | None]:
        """Return for each position the offset at which its epoch ends in the source, or None if that is not known.

        Partitions whose leader does not answer are left out.
        """

        asked = {place: row.epoch for place, row in positions.items() if row.epoch >= 0}
        found: dict[TopicPartition, MirrorPosition | None] = {place: None for place in positions if place not in asked}
        for place, row in (await epoch_ends(self._source, leaders, asked)).items():
            if not row.error_code:
                found[place] = MirrorPosition(row.end_offset, None, row.epoch) if row.end_offset >= 0 else None
        return found

    async def _ask(
        self, leaders: Leaders, places: Iterable[TopicPartition], request: Callable[[dict[str, list[int]]], object]
    ) -> list[Any]:
        """Send one request to each leader, for all of its partitions. Return the topics of the responses."""
        topics: list[Any] = []
        for node, listed in leaders.by_node(places).items():
            rows: dict[str, list[int]] = {}
            for name, index in listed:
                rows.setdefault(name, []).append(index)
            topics += (await self._source.request(request(rows), node)).topics
        return topics
