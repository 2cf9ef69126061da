"""Reads partitions from given offsets, without a group.

Control records are never given out. With read_committed, neither are records of aborted transactions: the broker names
them (producer id and first offset), and each ends at its abort marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from ottla.cli.client.cluster import RETRY_BACKOFF_MS, ClusterClient
from ottla.cli.client.failures import check, code_of, failure
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import Record, iter_batches
from ottla.protocol.records.control import end_txn_marker

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024


class Consumed(NamedTuple):
    partition: int
    records: list[Record]


class Consumer:
    """Iterate `fetch()`; with `ends` it stops there, without it goes on for ever."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        positions: Mapping[int, int],
        ends: Mapping[int, int] | None = None,
        *,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.positions = dict(positions)
        self.ends = ends
        self.isolation_level = isolation_level
        self._leaders: dict[int, int] = {}
        self._topic_id = ZERO_UUID

    async def fetch(self) -> AsyncIterator[Consumed]:
        """Records as they come, in order within each partition."""
        while todo := [index for index in self.positions if self._wanted(index)]:
            if not self._leaders:
                topic = await self.cluster.topic(self.topic)
                self._topic_id = topic.topic_id
                self._leaders = {part.partition_index: part.leader_id for part in topic.partitions}
            self.cluster.doing = f"reading topic {self.topic}"
            by_leader: dict[int, list[int]] = {}
            for index in todo:
                by_leader.setdefault(self._leaders[index], []).append(index)
            requests = (self.cluster.request(self._request(part), node) for node, part in by_leader.items())
            for response in await asyncio.gather(*requests):
                check(f"topic {self.topic}", response.error_code)
                for topic in response.responses:
                    for part in topic.partitions:
                        if self._readable(part) and (records := self._take(part)):
                            yield Consumed(part.partition_index, records)
            if not self._leaders:
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)

    def _wanted(self, index: int) -> bool:
        return self.ends is None or self.positions[index] < self.ends[index]

    def _request(self, partitions: list[int]) -> FetchRequest:
        rows = [
            FetchPartition(partition=index, fetch_offset=self.positions[index], partition_max_bytes=PARTITION_BYTES_MAX)
            for index in partitions
        ]
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self.isolation_level,
            topics=[FetchTopic(topic=self.topic, topic_id=self._topic_id, partitions=rows)],
        )

    def _readable(self, part: PartitionData) -> bool:
        """False when the leader has moved: it is looked up again."""
        if not part.error_code:
            return True
        if code_of(part.error_code).retriable:
            self._leaders = {}
            return False
        position = self.positions[part.partition_index]
        raise failure(f"offset {position} of partition {self.topic}-{part.partition_index}", part.error_code)

    def _take(self, part: PartitionData) -> list[Record]:
        index = part.partition_index
        position = self.positions[index]
        end = None if self.ends is None else self.ends[index]
        aborted = sorted((row.first_offset, row.producer_id) for row in part.aborted_transactions or ())
        open_aborted: set[int] = set()
        records: list[Record] = []
        read = part.records or b""
        assert not isinstance(read, list), "what was decoded is in one buffer"
        for batch in iter_batches(read):
            while aborted and aborted[0][0] <= batch.last_offset:
                open_aborted.add(aborted.pop(0)[1])
            if batch.is_control:
                marker = end_txn_marker(batch)
                if marker is not None and not marker.committed:
                    open_aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in open_aborted):
                # A fetch starts at the batch that holds the offset, so it may start before it.
                records += [
                    row for row in batch.records() if row.offset >= position and (end is None or row.offset < end)
                ]
            self.positions[index] = max(self.positions[index], batch.next_offset)
        return records
