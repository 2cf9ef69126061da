"""A consumer that shares records with the other members of a share group (KIP-932).

Each leader has a session with the member. A session's requests are numbered: the first is 0, the last -1. If a leader does not
know the number, the session begins again. Records that a member has acquired and not acknowledged when its session ends are
delivered to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from ottla.client.cluster import ATTEMPT_MS_MAX, RETRY_BACKOFF_MS, ClusterClient, Leaders, NoConnection, ask_coordinator
from ottla.client.errors import ClusterError, check, code_of, failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.messages.shared_structs import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    TopicIdPartitions,
)
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.record import Record

FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
RECORDS_MAX = 500
FIRST_EPOCH = 0
LAST_EPOCH = -1
EPOCH_MAX = 2**31 - 1
#: After these errors the member joins again as a new one.
FORGOTTEN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
#: After these errors the session begins again.
NO_SESSION = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class Acknowledge(IntEnum):
    """The outcome of an offset: it has no record (a marker has it), is done, is to be delivered again, or is given up."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class AcquiredRecords(NamedTuple):
    """A record that is locked for this member, and how often it has been delivered."""

    topic: str
    partition: int
    record: Record
    deliveries: int
    #: Whether the broker gave the timestamp (LogAppendTime).
    is_append_time: bool


class _Session:
    """The number of the next request to a leader, and the partitions that the session at the leader has."""

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        self.places: set[TopicPartition] = set()

    def answered(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


class ShareConsumer:
    """A member of a share group. Use it as a context manager: at its end it releases what it has, and leaves."""

    def __init__(self, cluster: ClusterClient, group: str, topics: Sequence[str]) -> None:
        self.group = group
        self.topics = sorted(set(topics))
        self._cluster = cluster
        self._leaders = Leaders(cluster, self.topics)
        self._member_id = uuid_to_str(new_uuid(cluster.world.rng))
        self._member_epoch = FIRST_EPOCH
        self._heartbeat_ms, self._interval_ms = 0, 0
        self._assigned: set[TopicPartition] = set()
        self._sessions: dict[int, _Session] = {}

    async def __aenter__(self) -> ShareConsumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        """End the sessions and leave. Without that, the end of the member's session has the same effect."""
        try:
            async with self._cluster.limit():
                for node, session in self._sessions.items():
                    session.epoch = LAST_EPOCH
                    await self._acknowledge(node, {})
                await self._beat(LAST_EPOCH)
        except (ClusterError, TimeoutError):
            if fault is None:
                raise

    async def poll(self) -> list[AcquiredRecords]:
        """Return the records that the next responses bring: none if no leader has records within half a second.

        Raises:
            ClusterError: a topic cannot be read, or the broker has no share groups.
        """
        now_ms = self._cluster.world.clock.mono_ms()
        if self._member_epoch == FIRST_EPOCH or now_ms - self._heartbeat_ms >= self._interval_ms:
            await self._heartbeat()
        if not self._leaders.known:
            await self._leaders.start()
        self._cluster.doing = f"reading {', '.join(self.topics)} with share group {self.group}"
        by_node = self._leaders.by_node(self._assigned)
        if sum(map(len, by_node.values())) < len(self._assigned):
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            await self._leaders.refresh()
            by_node = self._leaders.by_node(self._assigned)
        if not by_node:
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            self._interval_ms = 0  # the coordinator has no assignment yet
        found = await asyncio.gather(*(self._fetch(node, set(places)) for node, places in by_node.items()))
        return [row for rows in found for row in rows]

    async def acknowledge(
        self, acquired: Iterable[AcquiredRecords], kind: Acknowledge = Acknowledge.ACCEPT
    ) -> dict[TopicPartition, tuple[list[int], int]]:
        """Acknowledge records. Return their offsets by partition, and the error code for them."""
        offsets: dict[TopicPartition, list[int]] = {}
        for row in acquired:
            offsets.setdefault((row.topic, row.partition), []).append(row.record.offset)
        results: dict[TopicPartition, tuple[list[int], int]] = {}
        for node, places in self._leaders.by_node(offsets).items():
            part = {place: (offsets[place], kind) for place in places}
            codes = await self._acknowledge(node, part)
            results |= {place: (offsets[place], codes.get(place, 0)) for place in places}
        return results

    # -- Membership ----------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        self._cluster.doing = f"joining share group {self.group}"
        response, code = await self._beat(self._member_epoch)
        self._heartbeat_ms = self._cluster.world.clock.mono_ms()
        if code in FORGOTTEN:
            self._member_epoch = FIRST_EPOCH
            return
        check(f"group {self.group}", code, response.error_message)
        self._member_epoch = response.member_epoch
        self._interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            if not self._leaders.known:
                await self._leaders.start()
            rows = response.assignment.topic_partitions
            if any(self._leaders.name_of(row.topic_id) is None for row in rows):  # created after the last look-up
                await self._leaders.refresh()
            named = [(self._leaders.name_of(row.topic_id), row.partitions) for row in rows]
            self._assigned = {(name, index) for name, indexes in named if name is not None for index in indexes}

    async def _beat(self, epoch: int) -> tuple[ShareGroupHeartbeatResponse, int]:
        names = self.topics if epoch == FIRST_EPOCH else None
        request = ShareGroupHeartbeatRequest(self.group, self._member_id, epoch, None, names)
        return await ask_coordinator(self._cluster, self.group, request, ATTEMPT_MS_MAX)

    # -- Sessions ------------------------------------------------------------------------------------------------------

    async def _fetch(self, node: int, places: set[TopicPartition]) -> list[AcquiredRecords]:
        session = self._sessions.setdefault(node, _Session())
        known = set() if session.epoch == FIRST_EPOCH else session.places
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            max_records=RECORDS_MAX,
            batch_size=RECORDS_MAX,
            topics=self._rows(dict.fromkeys(places - known)),
            forgotten_topics_data=self._forgotten(known - places),
        )
        try:
            response: ShareFetchResponse = await self._cluster.request(request, node, timeout_ms=2 * ATTEMPT_MS_MAX)
        except NoConnection:
            self._lost(node)
            return []
        if not self._has_session(node, response.error_code):
            return []
        check(f"reading from broker {node}", response.error_code, response.error_message)
        session.places = places
        session.answered()
        found: list[AcquiredRecords] = []
        for topic in response.responses:
            name = self._leaders.name_of(topic.topic_id)
            if name is None:
                continue
            for part in topic.partitions:
                if code_of(part.error_code).retriable:
                    self._lost(node)
                elif part.error_code:
                    raise failure(f"partition {name}-{part.partition_index}", part.error_code, part.error_message)
                else:
                    records = _acquired(name, part)
                    found += records
                    if gaps := _gaps(part, records):
                        await self._acknowledge(node, {(name, part.partition_index): (gaps, Acknowledge.GAP)})
        return found

    async def _acknowledge(
        self, node: int, offsets: Mapping[TopicPartition, tuple[list[int], Acknowledge]]
    ) -> dict[TopicPartition, int]:
        session = self._sessions[node]
        request = ShareAcknowledgeRequest(self.group, self._member_id, session.epoch, topics=self._rows(offsets))
        try:
            response: ShareAcknowledgeResponse = await self._cluster.request(
                request, node, timeout_ms=2 * ATTEMPT_MS_MAX
            )
        except NoConnection:
            self._lost(node)
            return dict.fromkeys(offsets, int(ErrorCode.NETWORK_EXCEPTION))
        if not self._has_session(node, response.error_code):
            return dict.fromkeys(offsets, response.error_code)
        check(f"acknowledging at broker {node}", response.error_code, response.error_message)
        session.answered()
        return {
            (name, part.partition_index): part.error_code
            for topic in response.responses
            if (name := self._leaders.name_of(topic.topic_id)) is not None
            for part in topic.partitions
        }

    def _has_session(self, node: int, code: int) -> bool:
        if code in NO_SESSION:
            self._sessions[node] = _Session()
        return code not in NO_SESSION

    def _lost(self, node: int) -> None:
        """Forget a node that did not answer or does not lead any more. The next poll looks the leaders up."""
        self._leaders.forget(node)
        self._sessions[node] = _Session()

    def _rows(self, offsets: Mapping[TopicPartition, tuple[list[int], Acknowledge] | None]) -> list[AcknowledgeTopic]:
        topics: dict[str, AcknowledgeTopic] = {}
        for (name, index), acknowledged in sorted(offsets.items(), key=lambda item: item[0]):
            topic = topics.setdefault(name, AcknowledgeTopic(self._leaders.topic_id(name), []))
            batches = [] if acknowledged is None else _runs(*acknowledged)
            topic.partitions.append(AcknowledgePartition(index, batches))
        return list(topics.values())

    def _forgotten(self, places: Iterable[TopicPartition]) -> list[TopicIdPartitions]:
        topics: dict[str, TopicIdPartitions] = {}
        for name, index in sorted(places):
            topics.setdefault(name, TopicIdPartitions(self._leaders.topic_id(name), [])).partitions.append(index)
        return list(topics.values())


def _runs(offsets: Iterable[int], kind: Acknowledge) -> list[AcknowledgementBatch]:
    """Return one row for each run of offsets without a gap."""
    numbered = enumerate(sorted(offsets))
    runs = [[offset for _, offset in run] for _, run in groupby(numbered, lambda pair: pair[1] - pair[0])]
    return [AcknowledgementBatch(run[0], run[-1], [int(kind)]) for run in runs]


def _acquired(topic: str, part: PartitionData) -> list[AcquiredRecords]:
    read = part.records or b""
    assert not isinstance(read, list), "what was decoded is in one buffer"
    rows = part.acquired_records
    return [
        AcquiredRecords(topic, part.partition_index, record, row.delivery_count, batch.append_time is not None)
        for batch in iter_batches(read)
        if not batch.is_control
        for record in batch.records()
        for row in rows
        if row.first_offset <= record.offset <= row.last_offset
    ]


def _gaps(part: PartitionData, records: Iterable[AcquiredRecords]) -> list[int]:
    """Return the acquired offsets that have no record: the leader keeps these locked until they are acknowledged, too."""
    there = {row.record.offset for row in records}
    return [
        offset
        for row in part.acquired_records
        for offset in range(row.first_offset, row.last_offset + 1)
        if offset not in there
    ]
