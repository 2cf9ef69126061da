"""Consumers without a group: they fetch from the leaders at both isolation levels, and compare the results."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.batch import BatchView, iter_batches
from ottla.protocol.records.control import end_txn_marker
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.history import TopicPartition

READ_COMMITTED = 1
PARTITION_BYTES_MAX = 4096
FETCH_WAIT_MS = 500


class Consumer(Client):
    """Reads its partitions from their beginning. `seen` has every record that it returned: a map of offsets to values."""

    partitions: Sequence[TopicPartition] = ()
    isolation_level = 0
    pause_seconds = 0.6
    wait_ms = FETCH_WAIT_MS

    def start(self) -> None:
        self.positions = dict.fromkeys(self.partitions, 0)
        self.seen: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in self.partitions}
        #: Producer ids whose open transactions are known to end in an abort, per partition.
        self._aborting: dict[TopicPartition, set[int]] = {partition: set() for partition in self.partitions}
        super().start()

    async def run(self) -> None:
        while not self.stopping:
            await self.poll()
            await self.pause(self.pause_seconds)

    def has_read(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(self.positions[partition] >= end for partition, end in ends.items())

    async def poll(self) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, partition in self.partitions:
            leader = await self.leader_of(topic, partition)
            if leader is not None and topic in self.topic_ids:
                by_leader.setdefault(leader, []).append((topic, partition))
        if not by_leader:
            await asyncio.sleep(BACKOFF_SECONDS)
        await asyncio.gather(*(self._fetch(leader, wanted) for leader, wanted in by_leader.items()))

    async def _fetch(self, leader: int, wanted: list[TopicPartition]) -> None:
        request = FetchRequest(
            max_wait_ms=self.wait_ms,
            min_bytes=1,
            isolation_level=self.isolation_level,
            topics=[
                FetchTopic(topic=topic, topic_id=self.topic_ids[topic], partitions=[self._row(topic, partition)])
                for topic, partition in wanted
            ],
        )
        names = {self.topic_ids[topic]: topic for topic, _ in wanted}
        try:
            response = await self.ask_node(leader, request)
        except Unreachable:
            await self._moved(wanted)
            return
        for topic in response.responses:
            for row in topic.partitions:
                partition = (names[topic.topic_id], row.partition_index)
                code = ErrorCode(row.error_code)
                if code is ErrorCode.NONE:
                    self._take(partition, row)
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise Violation(
                        "8", f"{self.name} stands at {self.positions[partition]} of {partition}: out of range"
                    )
                else:
                    await self._moved([partition])

    def _row(self, topic: str, partition: int) -> FetchPartition:
        return FetchPartition(
            partition=partition,
            fetch_offset=self.positions[topic, partition],
            current_leader_epoch=self.leaders[topic, partition][1],
            partition_max_bytes=PARTITION_BYTES_MAX,
        )

    async def _moved(self, partitions: Sequence[TopicPartition]) -> None:
        await asyncio.sleep(BACKOFF_SECONDS)
        await self.refresh(sorted({topic for topic, _ in partitions}))

    def _take(self, partition: TopicPartition, row: Any) -> None:
        begin = self.positions[partition]
        aborted = deque(sorted((txn.first_offset, txn.producer_id) for txn in row.aborted_transactions or ()))
        for batch in iter_batches(row.records or b""):
            position = self.positions[partition]
            if not batch.base_offset <= position <= batch.last_offset:
                raise Violation("45", f"{self.name} at {position} of {partition} was given {batch}")
            limit = row.last_stable_offset if self.isolation_level == READ_COMMITTED else row.high_watermark
            if batch.last_offset >= limit:
                raise Violation("9", f"{self.name} was given {batch} of {partition}, beyond {limit}")
            for offset, value in self._given_out(partition, batch, aborted):
                if offset >= position:
                    self.seen[partition][offset] = value
            self.positions[partition] = batch.next_offset
        if self.positions[partition] > begin:
            self.history.note(f"{self.name} read {partition} up to {self.positions[partition]}")

    def _given_out(
        self, partition: TopicPartition, batch: BatchView, aborted: deque[tuple[int, int]]
    ) -> Iterator[tuple[int, bytes]]:
        """Return the records that an application would see of the batch: no control records, and with read_committed nothing aborted."""
        aborting = self._aborting[partition]
        while aborted and aborted[0][0] <= batch.last_offset:
            aborting.add(aborted.popleft()[1])
        if batch.is_control:
            marker = end_txn_marker(batch)
            if marker is not None and not marker.committed:
                aborting.discard(batch.producer_id)
            return
        if batch.is_transactional and batch.producer_id in aborting:
            return
        for record in batch.records():
            yield record.offset, (record.value or b"").rstrip(b".")
