"""How far each partition is mirrored, as the target's compacted topic `mm2-offsets.SOURCE.internal` says it (Connect's offset.storage.topic).

The records are those of Kafka's MirrorMaker 2: it goes on where this mirror ends, and this one where MirrorMaker ends.

A worker that has fenced the one before it reads to the end of the topic: what that one has committed is there, and nothing of it
can come later.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import READ_COMMITTED, Consumer, places_of
from ottla.cli.client.leaders import TopicPartition
from ottla.cli.errors import TIMED_OUT, CommandFailed
from ottla.protocol.records.builder import partition_for_key

#: The name of the connector in Connect's positions.
CONNECTOR = "MirrorSourceConnector"
#: Takes the key and the value of each record of a topic.
Replay = Callable[[bytes | None, bytes | None], object]


class TopicReader:
    """A topic of a mirror, read from its beginning to its end, and on from there at each call."""

    def __init__(self, cluster: ClusterClient, topic: str, replay: Replay) -> None:
        """The connection is its own: a read that waits for records delays the requests behind it."""
        self.topic = topic
        self._cluster = cluster
        self._replay = replay
        self._next: dict[int, int] = {}
        self._turn = asyncio.Lock()

    async def read(self) -> None:
        """Read to the end that the topic has now, over transactions that are open there.

        Raises:
            CommandFailed: it cannot be read, or a transaction stays open for longer than the time limit.
        """
        async with self._turn:
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
                        self._replay(record.key, record.value)
            except TimeoutError:
                cause = f"a transaction on {self.topic} stays open"
                raise CommandFailed(cause, "`ottla txn list` shows whose it is", TIMED_OUT) from None
            self._next |= {index: ends[index] for index in left}


class Positions:
    """The next offset of each partition of `source` that has a position."""

    def __init__(self, cluster: ClusterClient, topic: str, source: str) -> None:
        self.topic = topic
        self.partitions = 1
        self.found: dict[TopicPartition, int] = {}
        self._source = source
        self._cluster = cluster
        self._reader = TopicReader(cluster, topic, self._take)

    async def read(self) -> dict[TopicPartition, int]:
        """Return what is committed by now."""
        self.partitions = len(await self._cluster.partitions(self.topic))
        await self._reader.read()
        return self.found

    def place_of(self, key: bytes) -> TopicPartition:
        """Return where the record of a key belongs: where Connect's producer would have put it."""
        return self.topic, partition_for_key(key, self.partitions)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        row = read_position(self._source, key, value)
        if row is None:
            return
        place, offset = row
        if offset is None:
            self.found.pop(place, None)
        else:
            self.found[place] = offset


def position_record(source: str, place: TopicPartition, next_offset: int) -> tuple[bytes, bytes]:
    """Return the record that says up to where a partition is mirrored. Connect's value is the last offset, not the next one."""
    name = [CONNECTOR, {"cluster": source, "partition": place[1], "topic": place[0]}]
    return _compact(name), _compact({"offset": next_offset - 1})


def read_position(source: str, key: bytes | None, value: bytes | None) -> tuple[TopicPartition, int | None] | None:
    """Return a partition and its next offset, None where the position was removed; None for records of others."""
    try:
        connector, name = json.loads(key or b"null")
        if connector != CONNECTOR or name["cluster"] != source:
            return None
        place = str(name["topic"]), int(name["partition"])
        return place, None if value is None else int(json.loads(value)["offset"]) + 1
    except (ValueError, TypeError, KeyError):
        return None


def _compact(row: object) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()
