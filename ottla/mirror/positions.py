"""The position of each mirrored partition, in the target's compacted topic `mm2-offsets.SOURCE.internal` (Connect's
offset.storage.topic).

The records are those of Kafka's MirrorMaker 2, so that it can continue where this mirror ends, and the other way round.
MirrorMaker reads only the offset. A value also has the topic's id and the leader epoch of the last record, because an offset
means nothing in a topic that was created again, or in a log that was cut.

After a worker has fenced the former one, it reads to the end of the topic: everything that the former worker has committed is
there, and nothing can follow.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import READ_COMMITTED, Consumer, places_of
from ottla.client.failures import Failure, Kind
from ottla.client.partitions import TopicPartition
from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.records.builder import partition_for_key
from ottla.protocol.records.record import Record

#: The connector's name in Connect's positions.
CONNECTOR = "MirrorSourceConnector"
#: A record with this name in its key says that the partitions of a lane have begun at their ends (--begin latest).
BEGUN = "OttlaMirrorBegun"
#: Takes a record of a topic.
Replay = Callable[[Record], object]


class MirrorPosition(NamedTuple):
    """The position up to which a partition is mirrored: the next offset, the topic's id, and the leader epoch of the record
    before it.

    MirrorMaker's positions have no id (None); an epoch of -1 is unknown.
    """

    next_offset: int
    topic_id: bytes | None = None
    epoch: int = -1


class PositionsLost(Failure):
    """The topic of positions was deleted while the worker ran, so that it no longer knows what the target has of each
    partition.
    """


class TopicReader:
    """A reader of one topic of a mirror: it reads from the beginning to the end, and each further call continues from there."""

    def __init__(self, cluster: ClusterClient, topic: str, replay: Replay, forget: Callable[[], None]) -> None:
        """It has its own connection, because a read that waits for records delays the requests behind it.

        `forget` is called if the topic was deleted and created again: then the replayed records no longer exist.
        """
        self.topic = topic
        self.partitions = 1
        self._forget = forget
        #: The id that the topic had at the last read.
        self.topic_id: bytes | None = None
        self._cluster = cluster
        self._replay = replay
        self._next: dict[int, int] = {}
        self._turn = asyncio.Lock()

    async def read(self) -> None:
        """Read to the present end of the topic, also past transactions that are open now.

        Raises:
            Failure: the topic cannot be read, or a transaction stays open for longer than the time limit.
        """
        async with self._turn:
            topic = await self._cluster.topic(self.topic)
            self.partitions = len(topic.partitions)
            if self.topic_id not in (None, topic.topic_id):
                self._forget()
                self._next.clear()
            self.topic_id = topic.topic_id
            ends = await topics.list_offsets(self._cluster, self.topic, topics.LATEST)
            first = await topics.list_offsets(self._cluster, self.topic, topics.EARLIEST)
            begins = {index: max(self._next.get(index, 0), offset) for index, offset in first.items()}
            left = {index: offset for index, offset in begins.items() if offset < ends[index]}
            self._next |= begins
            if not left:
                return
            consumer = Consumer(
                self._cluster, places_of(self.topic, left), places_of(self.topic, ends), isolation_level=READ_COMMITTED
            )
            try:
                async for _, _, records, _ in consumer.fetch():
                    for record in records:
                        self._replay(record)
            except TimeoutError:
                cause = f"a transaction on {self.topic} stays open"
                raise Failure(cause, "`ottla txn list` shows whose it is", Kind.TIMED_OUT) from None
            self._next |= {index: ends[index] for index in left}


class Positions:
    """The positions of the partitions of `source`: their next offsets."""

    def __init__(self, cluster: ClusterClient, topic: str, source: str) -> None:
        self.topic = topic
        self.found: dict[TopicPartition, MirrorPosition] = {}
        #: The lanes whose partitions have begun at their ends.
        self.begun: set[int] = set()
        self._source = source
        self._reader = TopicReader(cluster, topic, self._take, self._lose)

    async def read(self) -> dict[TopicPartition, MirrorPosition]:
        """Return the positions that are committed by now.

        Raises:
            PositionsLost: the topic was deleted and created again since the first read. Each later read raises it too.
        """
        await self._reader.read()
        return self.found

    def check(self, topic_id: bytes | None) -> None:
        """Take the present id of the topic, or None if it is not known.

        Raises PositionsLost if it differs from the id that was read.
        """
        if None not in (topic_id, self._reader.topic_id) and topic_id != self._reader.topic_id:
            self._lose()

    def _lose(self) -> None:
        raise PositionsLost(
            f"{self.topic} was deleted while this worker ran: how far each partition is mirrored is not known any more",
            "started again, the mirror begins at the first record of each partition, and what the target has comes a second time; "
            "delete the mirrored topics in the target first, or restore the positions",
        )

    def place_of(self, key: bytes) -> TopicPartition:
        """Return the partition for the record of a key, which is the one that Connect's producer would choose."""
        return self.topic, partition_for_key(key, self._reader.partitions)

    def _take(self, record: Record) -> None:
        if (lane := _read_begun(self._source, record.key)) is not None:
            self.begun.add(lane)
        row = read_position(self._source, record.key, record.value)
        if row is None:
            return
        place, position = row
        if position is None:
            self.found.pop(place, None)
        else:
            self.found[place] = position


def position_record(source: str, place: TopicPartition, position: MirrorPosition) -> tuple[bytes, bytes]:
    """Return the record of a partition's position. Connect's value is the last offset, not the next one."""
    name = [CONNECTOR, {"cluster": source, "partition": place[1], "topic": place[0]}]
    value: dict[str, object] = {"offset": position.next_offset - 1}
    if position.topic_id is not None:
        value |= {"topicId": uuid_to_str(position.topic_id), "leaderEpoch": position.epoch}
    return _compact(name), _compact(value)


def read_position(
    source: str, key: bytes | None, value: bytes | None
) -> tuple[TopicPartition, MirrorPosition | None] | None:
    """Return a partition and its position, which is None if it was removed. Return None for records of other mirrors."""
    try:
        connector, name = json.loads(key or b"null")
        if connector != CONNECTOR or name["cluster"] != source:
            return None
        place = str(name["topic"]), int(name["partition"])
        if value is None:
            return place, None
        row = json.loads(value)
        topic_id = uuid_from_str(row["topicId"]) if "topicId" in row else None
        return place, MirrorPosition(int(row["offset"]) + 1, topic_id, int(row.get("leaderEpoch", -1)))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def begun_record(source: str, lane: int) -> tuple[bytes, bytes]:
    """Return the record that says that a lane's partitions have begun at their ends.

    Later partitions begin at their first record.
    """
    return _compact([BEGUN, {"cluster": source, "lane": lane}]), _compact({"begin": "latest"})


def _read_begun(source: str, key: bytes | None) -> int | None:
    try:
        kind, name = json.loads(key or b"null")
        return int(name["lane"]) if kind == BEGUN and name["cluster"] == source else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _compact(row: object) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()
