"""A consumer with fetch sessions (KIP-227) and small limits, for the end of a run: no partition starves, no answer is empty for nothing.

46  an offset in the middle of a batch is answered with that batch; the first batch comes whole however small the limits; of the
    partitions that have more, each is served within as many answers as there are
53  a request to a broker in service is answered in time
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.batch import iter_batches
from tests.histories import Violation
from tests.sim.clients.connection import Client, Unreachable
from tests.sim.history import TopicPartition

PARTITION_BYTES_MAX = 700


class SessionReader(Client):
    """Reads to the offsets `ends` from the leaders, in one session with each."""

    ends: Mapping[TopicPartition, int]

    def start(self) -> None:
        # This offset is not at the beginning of a batch, if batches have several records.
        self.positions = {partition: min(1, end) for partition, end in self.ends.items()}
        self.has_read_all = False
        super().start()

    async def run(self) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for topic, partition in self.ends:
            leader = await self.leader_of(topic, partition)
            while leader is None or topic not in self.topic_ids:
                await self.pause(0.1)
                leader = await self.leader_of(topic, partition)
            by_leader.setdefault(leader, []).append((topic, partition))
        for leader, wanted in by_leader.items():
            await self._read(leader, wanted)
        self.has_read_all = True

    async def _read(self, leader: int, wanted: list[TopicPartition]) -> None:
        names = {self.topic_ids[topic]: topic for topic, _ in wanted}
        session_id, epoch, moved = 0, 0, wanted
        unserved = dict.fromkeys(wanted, 0)
        while left := [each for each in wanted if self.positions[each] < self.ends[each]]:
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=session_id, session_epoch=epoch,
                topics=[FetchTopic(topic_id=self.topic_ids[topic], partitions=[self._row(topic, p)]) for topic, p in moved],
            )  # fmt: skip
            try:
                answer = await self.ask_node(leader, request)
            except Unreachable as failure:
                raise Violation("53", f"{self.name} was not answered by broker {leader}: {failure}") from None
            if answer.error_code != ErrorCode.NONE:
                session_id, epoch, moved = 0, 0, wanted  # evicted: nothing is lost by that
                continue
            session_id, epoch = answer.session_id, epoch + 1 if answer.session_id else 0
            moved = self._take(answer, names)
            if not moved:
                raise Violation(
                    "46", f"{self.name} was given nothing by {leader}, with more in {left}: {self.positions}"
                )
            for each in left:
                unserved[each] = 0 if each in moved else unserved[each] + 1
                if unserved[each] > len(wanted):
                    raise Violation("46", f"{self.name}: {each} starves at {self.positions[each]}, others are served")
            moved = moved if session_id else wanted

    def _row(self, topic: str, partition: int) -> FetchPartition:
        position = self.positions[topic, partition]
        return FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=PARTITION_BYTES_MAX)

    def _take(self, answer: Any, names: Mapping[bytes, str]) -> list[TopicPartition]:
        """The partitions with records."""
        served = []
        for topic in answer.responses:
            for row in topic.partitions:
                partition = (names[topic.topic_id], row.partition_index)
                if row.error_code != ErrorCode.NONE:
                    raise Violation("46", f"{self.name}: {partition} is answered {ErrorCode(row.error_code).name}")
                for batch in iter_batches(row.records or b""):
                    position = self.positions[partition]
                    if not batch.base_offset <= position <= batch.last_offset:
                        raise Violation("46", f"{self.name} at {position} of {partition} was given {batch}")
                    self.positions[partition] = batch.next_offset
                    if partition not in served:
                        served.append(partition)
        return served
