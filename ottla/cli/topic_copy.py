"""A copy of a topic, also in another cluster: each record keeps its partition, offset, timestamp, key, value and headers.

A copy has no state of its own: it continues at the end of the target's partition, because offsets are the same. Offsets without
a record are filled:

    before the first offset of the source (retention)   with empty records, which are deleted when the source's first offset is
                                                        reached
    in between (compaction, aborted records, markers)    with markers that end no transaction, which no client ever sees

It never writes to a target with other records: it compares the last record that both must have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

from ottla.cli.errors import TIMED_OUT, CommandFailed
from ottla.client import topics
from ottla.client.cluster import RETRY_BACKOFF_MS, ClusterClient, Leaders
from ottla.client.configs import OWN_PREFIX, describe_configs
from ottla.client.consumer import READ_COMMITTED, Consumer, places_of
from ottla.client.errors import check, failure
from ottla.client.failures import counted
from ottla.client.partitions import NO_LEADER
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from ottla.protocol.records.compression import CODEC_IDS
from ottla.protocol.records.record import NewRecord, Record

#: The source that DescribeConfigs names for a value that was set for the topic itself.
TOPIC_SOURCE = 1
TIMESTAMP_TYPE = "message.timestamp.type"
#: After one of these errors the marker was not written, and can be sent again. After other errors it may have been written.
NOT_WRITTEN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
#: This many empty records are sent between two looks at the clock.
FILLED_AT_ONCE = 20_000
#: The record that fills a gap. It has an empty key, because compacted topics refuse records without a key.
FILLER = NewRecord(b"", None, 0)
#: The time between two checks of the target's end, which show whether another producer writes there.
CHECK_EVERY_MS = 10_000

Took = Callable[[int], None]


class TopicCopy:
    """A copy of `source_topic` to `target_topic`.

    Call `start`, then `run`. `copied` counts the offsets that the target has got.
    """

    def __init__(
        self,
        source: ClusterClient,
        source_topic: str,
        target: ClusterClient,
        target_topic: str,
        *,
        compression: str = "none",
    ) -> None:
        self.source, self.source_topic = source, source_topic
        self.target, self.target_topic = target, target_topic
        self.first: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        #: The next offset of each partition of the target.
        self.next: dict[int, int] = {}
        self.copied = 0
        self._producer = ClusterProducer(target, target_topic, compression=CODEC_IDS[compression])
        self._filler = ClusterProducer(target, target_topic, compression=CODEC_IDS["gzip"])
        self._leaders = Leaders(target, [target_topic])
        self._marker_producer: tuple[int, int] | None = None
        self._checked_ms = 0

    @property
    def left(self) -> int:
        """Return how many offsets of the source the target does not have."""
        return sum(max(0, end - self.next[index]) for index, end in self.ends.items())

    async def look(self) -> None:
        """Read the first offset and the end of the source. Its end is the last stable offset."""
        async with limited(self.source):
            self.first = await topics.list_offsets(self.source, self.source_topic, topics.EARLIEST)
            self.ends = await topics.list_offsets(self.source, self.source_topic, topics.LATEST, None, READ_COMMITTED)
        self.next = dict.fromkeys(self.ends, 0)

    async def create_target(self, replication_factor: int, *, validate_only: bool) -> bool:
        """Create the target with the partitions and settings of the source, unless it exists. Return whether it was missing.

        Raises:
            CommandFailed: the target has other partitions, or cannot be created.
        """
        found = (await self.target.metadata([self.target_topic])).topics[0]
        if not found.error_code:
            if len(found.partitions) != len(self.ends):
                raise CommandFailed(
                    f"{self.target_topic} has {counted(len(found.partitions), 'partition')}, and {self.source_topic} has {len(self.ends)}",
                    "offsets cannot be kept: choose another target, or `ottla topic add-partitions`",
                )
            return False
        if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise failure(f"topic {self.target_topic}", found.error_code)
        async with limited(self.source):
            entries = await describe_configs(self.source, "topic", self.source_topic, None)
        settings = {
            entry.name: entry.value
            for entry in entries
            if entry.config_source == TOPIC_SOURCE and entry.value is not None and not entry.is_sensitive
            if not str(entry.name).startswith(OWN_PREFIX)
        }
        settings |= {TIMESTAMP_TYPE: "CreateTime"} if settings.get(TIMESTAMP_TYPE) == "LogAppendTime" else {}
        await topics.create_topic(
            self.target, self.target_topic, len(self.ends), replication_factor, settings, validate_only=validate_only
        )
        return True

    async def start(self) -> None:
        """Find the ends of the target's partitions, and check that their records are the source's.

        Raises:
            CommandFailed: the target has records that the source has not, or no permission.
        """
        async with limited(self.target):
            await self._producer.start()
            await self._filler.start()
            await self._leaders.start()
            self.next = await topics.list_offsets(self.target, self.target_topic, topics.LATEST)
        for index, end in self.next.items():
            if end > self.ends[index]:
                raise self._other(index, f"ends at offset {end}, and that of {self.source_topic} at {self.ends[index]}")
        await self._compare_last()

    async def run(self, took: Took, *, follow: bool = False) -> None:
        """Copy until the end of the source that `look` has found, or with `follow` until the task is cancelled.

        Raises:
            CommandFailed: the source or target cannot be reached, is full, or has records of another producer.
        """
        for index in self.ends:
            await self._fill_beginning(index, took)
        consumer = Consumer(
            self.source,
            places_of(self.source_topic, self.next),
            None if follow else places_of(self.source_topic, self.ends),
            isolation_level=READ_COMMITTED,
        )
        self._checked_ms = self.target.world.clock.mono_ms()
        async for _, index, records in _fetched(self.source, consumer):
            await self._write(index, records, took)
            await self._check_end()
        for index, end in self.ends.items():
            await self._mark(index, end - self.next[index], took)
        await self._check_end(now=True)

    async def _write(self, index: int, records: list[Record], took: Took) -> None:
        for run in _runs(records):
            await self._mark(index, run[0].offset - self.next[index], took)
            async with limited(self.target):
                for record in run:
                    await self._producer.send(
                        NewRecord(record.key, record.value, record.timestamp, record.headers), index
                    )
                await self._producer.flush()
            self.next[index] = run[-1].offset + 1
            self._take(len(run), took)

    async def _fill_beginning(self, index: int, took: Took) -> None:
        """Fill the offsets before the first one of the source."""
        first = self.first[index]
        if self.next[index] >= first:
            return
        while (missing := first - self.next[index]) > 0:
            part = min(missing, FILLED_AT_ONCE)
            async with limited(self.target):
                for _ in range(part):
                    await self._filler.send(FILLER, index)
                await self._filler.flush()
            self.next[index] += part
            self._take(part, took)
        async with limited(self.target):
            await topics.delete_records(self.target, self.target_topic, {index: first})

    async def _mark(self, index: int, count: int, took: Took) -> None:
        """Fill offsets with markers: no reader of the partition sees them.

        Raises:
            CommandFailed: no permission for ClusterAction, or it is not known whether a marker was written.
        """
        if count <= 0:
            return
        producer_id, epoch = await self._marking()
        place = TopicPartitionIndexes(self.target_topic, [index])
        marker = WritableTxnMarker(producer_id, epoch, False, [place], coordinator_epoch=0)
        for _ in range(count):
            async with limited(self.target):
                await self._mark_once(index, marker)
            self.next[index] += 1
            self._take(1, took)

    async def _mark_once(self, index: int, marker: WritableTxnMarker) -> None:
        what = f"offset {self.next[index]} of {self.target_topic}-{index}, for which the source has no record"
        while True:
            self.target.doing = f"keeping {what}"
            node = self._leaders.of((self.target_topic, index)).node
            if node != NO_LEADER:
                response = await self.target.request(WriteTxnMarkersRequest([marker]), node)
                (code,) = (part.error_code for row in response.markers for at in row.topics for part in at.partitions)
                if code not in NOT_WRITTEN:
                    break
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            await self._leaders.refresh(avoid=node)
        check(what, code)

    async def _marking(self) -> tuple[int, int]:
        if self._marker_producer is None:

            async def ask() -> tuple[InitProducerIdResponse, int]:
                response = await self.target.request(InitProducerIdRequest(transactional_id=None))
                return response, response.error_code

            found, code = await self.target.retry(ask)
            check("producer id", code)
            self._marker_producer = found.producer_id, found.producer_epoch
        return self._marker_producer

    def _take(self, count: int, took: Took) -> None:
        self.copied += count
        took(self.copied)

    # -- Whether the target is a copy ----------------------------------------------------------------------------------

    async def _compare_last(self) -> None:
        """Compare the last record of each partition of the target with the source's of the same offset."""
        async with limited(self.target):
            first = await topics.list_offsets(self.target, self.target_topic, topics.EARLIEST)
        last = {index: end - 1 for index, end in self.next.items() if end - 1 >= max(first[index], self.first[index])}
        theirs = await _records_at(self.target, self.target_topic, last)
        ours = await _records_at(self.source, self.source_topic, last)
        for index in sorted(last):
            if theirs.get(index) != ours.get(index):
                raise self._other(index, f"has another record at offset {last[index]}")

    async def _check_end(self, *, now: bool = False) -> None:
        """Check from time to time that no one else writes to the target."""
        now_ms = self.target.world.clock.mono_ms()
        if not now and now_ms - self._checked_ms < CHECK_EVERY_MS:
            return
        self._checked_ms = now_ms
        async with limited(self.target):
            ends = await topics.list_offsets(self.target, self.target_topic, topics.LATEST)
        for index, end in ends.items():
            if end != self.next[index]:
                raise self._other(index, f"ends at offset {end} in place of {self.next[index]}")

    def _other(self, index: int, what: str) -> CommandFailed:
        return CommandFailed(
            f"{self.target_topic} is no copy of {self.source_topic}: partition {index} {what}",
            "another producer writes to it, or has: choose another target, or delete this one",
        )


def _runs(records: list[Record]) -> Iterator[list[Record]]:
    """Yield the records in runs without missing offsets."""
    begin = 0
    for end in range(1, len(records) + 1):
        if end == len(records) or records[end].offset != records[end - 1].offset + 1:
            yield records[begin:end]
            begin = end


async def _records_at(cluster: ClusterClient, name: str, offsets: Mapping[int, int]) -> dict[int, Record]:
    """Return the records at these offsets. An offset has none if it is taken by a marker, for example."""
    found: dict[int, Record] = {}
    if not offsets:
        return found
    ends = places_of(name, {index: offset + 1 for index, offset in offsets.items()})
    consumer = Consumer(cluster, places_of(name, offsets), ends, isolation_level=READ_COMMITTED)
    async for _, index, records in _fetched(cluster, consumer):
        found.update((index, record) for record in records if record.offset == offsets[index])
    return found


async def _fetched(cluster: ClusterClient, consumer: Consumer) -> AsyncIterator[tuple[str, int, list[Record]]]:
    """Yield what the consumer fetches. If records that should come do not come in time, the failure names their cluster."""
    try:
        async for consumed in consumer.fetch():
            if consumer.recreated:  # its offsets now belong to other records
                raise CommandFailed(
                    f"topic {consumed.topic} was deleted and created again while it was copied",
                    "what was copied is of the deleted topic: copy to another name",
                )
            yield consumed[:3]
    except TimeoutError:
        raise _time_up(cluster) from None


@asynccontextmanager
async def limited(cluster: ClusterClient) -> AsyncIterator[None]:
    """Limit the time of a step at one of the two clusters. The failure names that cluster."""
    try:
        async with cluster.limit():
            yield
    except TimeoutError:
        raise _time_up(cluster) from None


def _time_up(cluster: ClusterClient) -> CommandFailed:
    where = ",".join(f"{host}:{port}" for host, port in cluster.bootstrap)
    return CommandFailed(
        f"gave up after {cluster.timeout_ms / 1000:g} s while {cluster.doing} at {where}",
        "`ottla cluster health` may show why; the same command goes on where the copy ends",
        TIMED_OUT,
    )
