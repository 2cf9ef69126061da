"""A cluster of one leader in memory, at the seam of `ClusterClient.request`: logs, transactions, topics that come and go.

Requests and responses are the real messages. A request may be lost before or after it took effect, as `faults` of the client says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    add_partitions_to_txn as add,
)
from ottla.protocol.messages import (
    create_partitions,
    create_topics,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from ottla.protocol.messages import (
    offset_for_leader_epoch as epochs,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from ottla.protocol.records.record import Record

NODE = 1
LATEST = -1
BATCHES_MAX = 3


class MirrorBroken(AssertionError):
    """The target is not what it must be."""


@dataclass
class Entry:
    base: int
    end: int
    epoch: int
    data: bytes
    pid: int
    is_control: bool


@dataclass
class Log:
    epoch: int = 0
    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.start

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes | bytearray | memoryview, count: int, pid: int = -1, *, control: bool = False) -> int:
        base, made = self.end, bytearray(data)
        made[0:8], made[12:16] = base.to_bytes(8, "big"), self.epoch.to_bytes(4, "big")
        self.entries.append(Entry(base, base + count, self.epoch, bytes(made), pid, control))
        if pid >= 0 and not control:
            self.open.setdefault(pid, base)
        return base

    def mark(self, pid: int, *, committed: bool) -> None:
        if pid in self.open and not committed:
            self.aborted.append((pid, self.open[pid], self.end))
        self.open.pop(pid, None)
        marker = end_txn_batch(
            committed=committed, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=0
        )
        self.append(marker, 1, pid, control=True)

    def cut(self, offset: int) -> None:
        """Lose the batches from this offset on, as in an unclean election."""
        self.entries = [entry for entry in self.entries if entry.end <= offset]
        while self.entries and self.entries[-1].pid >= 0 and not self.entries[-1].is_control:
            self.entries.pop()  # a transaction whose marker was lost would never end
        self.start = min(self.start, self.end)
        self.open = {pid: first for pid, first in self.open.items() if first < self.end}
        self.aborted = [row for row in self.aborted if row[2] < self.end]
        self.epoch += 1

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the end of an epoch as Kafka does: for an epoch older than all, the begin of the lowest known one; for a
        future epoch, nothing.
        """
        if epoch > self.epoch:
            return -1, -1
        if epoch == self.epoch:
            return epoch, self.end
        later = [entry.base for entry in self.entries if entry.epoch > epoch]
        known = [entry.epoch for entry in self.entries if entry.epoch <= epoch]
        return max(known, default=epoch), later[0] if later else self.end

    def values(self) -> list[bytes]:
        """The committed values."""
        return [row.value or b"" for row in self.records()]

    def all_values(self) -> list[bytes]:
        """Return all values, including those of aborted and of open transactions."""
        data = b"".join(entry.data for entry in self.entries if not entry.is_control)
        return [row.value or b"" for batch in iter_batches(data) for row in batch.records()]

    def records(self) -> list[Record]:
        """The committed records."""
        found: list[Record] = []
        for entry in self.entries:
            if entry.is_control or entry.end > self.stable or entry.base < self.start:
                continue
            if any(pid == entry.pid and first <= entry.base < last for pid, first, last in self.aborted):
                continue
            (batch,) = iter_batches(entry.data)
            found += batch.records()
        return found


@dataclass
class Topic:
    id: bytes
    logs: list[Log]
    name: str = ""


class ModelCluster:
    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng
        self.topics: dict[str, Topic] = {}
        #: Topics that were deleted, by the id of each.
        self.deleted: dict[bytes, Topic] = {}
        self.forbidden: set[str] = set()
        #: Committed offsets of groups without members.
        self.groups: dict[str, dict[tuple[str, int], int]] = {}
        self._written: set[tuple[int, int, str, int, int]] = set()
        #: Topics that take no records.
        self.refusing: set[str] = set()
        #: The times in seconds at which transactions of each transactional id were committed.
        self.commits: dict[str, list[float]] = {}
        self._ids: dict[str, list[Any]] = {}
        self._made = 0

    def create(self, name: str, partitions: int) -> Topic:
        self._made += 1
        self.topics[name] = Topic(self._made.to_bytes(16, "big"), [Log() for _ in range(partitions)], name)
        return self.topics[name]

    def delete(self, name: str, *, forget: bool = True) -> None:
        """Delete a topic. Without `forget` its coordinator was unreachable, and still has the committed offsets."""
        topic = self.topics.pop(name)
        self.deleted[topic.id] = topic
        if forget:
            for committed in self.groups.values():
                for place in [place for place in committed if place[0] == name]:
                    del committed[place]

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic, also one that was deleted."""
        there = {topic.id: topic for topic in self.topics.values()} | self.deleted
        return there.get(topic_id)

    def write(self, name: str, index: int, values: Sequence[bytes]) -> None:
        self.topics[name].logs[index].append(build_batch([(None, value, 1) for value in values]), len(values))

    def write_transaction(self, name: str, index: int, values: Sequence[bytes], *, committed: bool) -> None:
        self._made += 1
        log, pid = self.topics[name].logs[index], 1_000 + self._made
        rows = [(None, value, 1) for value in values]
        data = build_batch(rows, producer_id=pid, producer_epoch=0, base_sequence=0, transactional=True)
        log.append(data, len(values), pid)
        log.mark(pid, committed=committed)

    def log(self, name: str, index: int) -> Log | None:
        topic = self.topics.get(name)
        return topic.logs[index] if topic is not None and index < len(topic.logs) else None

    # -- Requests --------------------------------------------------------------------------------------------------------

    async def answer(self, request: Any) -> Any:
        if isinstance(request, fetch.FetchRequest):
            response = self._fetch(request)
            if not any(part.records or part.error_code for topic in response.responses for part in topic.partitions):
                await asyncio.sleep(request.max_wait_ms / 1000)
                response = self._fetch(request)
            return response
        return getattr(self, f"_{type(request).__name__}")(request)

    def _MetadataRequest(self, request: metadata.MetadataRequest) -> object:
        names = sorted(self.topics) if request.topics is None else [row.name or "" for row in request.topics]
        rows = []
        for name in names:
            if (topic := self.topics.get(name)) is None:
                rows.append(metadata.MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
                continue
            parts = [
                metadata.MetadataResponsePartition(partition_index=i, leader_id=NODE, leader_epoch=log.epoch)
                for i, log in enumerate(topic.logs)
            ]
            rows.append(metadata.MetadataResponseTopic(0, name, topic.id, partitions=parts))
        brokers = [metadata.MetadataResponseBroker(NODE, self.name, 1)]
        return metadata.MetadataResponse(brokers=brokers, cluster_id=self.name, topics=rows)

    def _FindCoordinatorRequest(self, request: find_coordinator.FindCoordinatorRequest) -> object:
        rows = [find_coordinator.Coordinator(key, NODE, self.name, 1) for key in request.coordinator_keys]
        return find_coordinator.FindCoordinatorResponse(coordinators=rows)

    def _CreateTopicsRequest(self, request: create_topics.CreateTopicsRequest) -> object:
        rows = []
        for row in request.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS if row.name in self.topics else ErrorCode.NONE
            if not code:
                self.create(row.name, row.num_partitions)
            rows.append(create_topics.CreatableTopicResult(name=row.name, error_code=code))
        return create_topics.CreateTopicsResponse(topics=rows)

    def _CreatePartitionsRequest(self, request: create_partitions.CreatePartitionsRequest) -> object:
        results = []
        for row in request.topics:
            topic = self.topics.get(row.name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE
            if topic is not None:
                topic.logs += [Log() for _ in range(row.count - len(topic.logs))]
            results.append(create_partitions.CreatePartitionsTopicResult(name=row.name, error_code=code))
        return create_partitions.CreatePartitionsResponse(results=results)

    def _DescribeConfigsRequest(self, request: Any) -> object:
        return SimpleNamespace(results=[], error_code=0)

    def _ListOffsetsRequest(self, request: list_offsets.ListOffsetsRequest) -> object:
        def row(name: str, part: list_offsets.ListOffsetsPartition) -> list_offsets.ListOffsetsPartitionResponse:
            log = self.log(name, part.partition_index)
            if log is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return list_offsets.ListOffsetsPartitionResponse(part.partition_index, code)
            end = log.stable if request.isolation_level else log.end
            offset = end if part.timestamp == LATEST else log.start
            epoch = log.epoch if part.timestamp == LATEST else next((entry.epoch for entry in log.entries), log.epoch)
            return list_offsets.ListOffsetsPartitionResponse(part.partition_index, 0, offset=offset, leader_epoch=epoch)

        topics = [
            list_offsets.ListOffsetsTopicResponse(topic.name, [row(topic.name, part) for part in topic.partitions])
            for topic in request.topics
        ]
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _OffsetForLeaderEpochRequest(self, request: epochs.OffsetForLeaderEpochRequest) -> object:
        topics = []
        for topic in request.topics:
            rows = []
            for part in topic.partitions:
                log = self.log(topic.topic, part.partition)
                if log is None:
                    rows.append(epochs.EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, part.partition))
                else:
                    rows.append(epochs.EpochEndOffset(0, part.partition, *log.epoch_end(part.leader_epoch)))
            topics.append(epochs.OffsetForLeaderTopicResult(topic.topic, rows))
        return epochs.OffsetForLeaderEpochResponse(topics=topics)

    def _fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        names = {topic.id: name for name, topic in self.topics.items()}
        rows = []
        for topic in request.topics:
            parts = [self._read(names.get(topic.topic_id), part, request) for part in topic.partitions]
            rows.append(fetch.FetchableTopicResponse(topic_id=topic.topic_id, partitions=parts))
        return fetch.FetchResponse(responses=rows)

    def _read(self, name: str | None, part: fetch.FetchPartition, request: fetch.FetchRequest) -> fetch.PartitionData:
        found = fetch.PartitionData(partition_index=part.partition)
        log = self.log(name or "", part.partition)
        if log is None:
            found.error_code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif name in self.forbidden:
            found.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif part.current_leader_epoch != log.epoch:
            older = part.current_leader_epoch < log.epoch
            found.error_code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not log.start <= part.fetch_offset <= log.end:
            found.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            limit = log.stable if request.isolation_level else log.end
            read = [entry for entry in log.entries if entry.end > part.fetch_offset and entry.end <= limit]
            read = read[:BATCHES_MAX]
            found.records = b"".join(entry.data for entry in read)
            found.high_watermark, found.last_stable_offset, found.log_start_offset = log.end, log.stable, log.start
            found.aborted_transactions = [
                fetch.AbortedTransaction(pid, first)
                for pid, first, last in log.aborted
                if read and first < read[-1].end and last >= read[0].base
            ]
        return found

    # -- Transactions ----------------------------------------------------------------------------------------------------

    def _InitProducerIdRequest(self, request: init_producer_id.InitProducerIdRequest) -> object:
        # Each producer without transactions is a different one.
        name = request.transactional_id or f"idempotent {len(self._ids)}"
        row = self._ids.setdefault(name, [len(self._ids), -1, set()])
        self._complete(row, committed=False)
        row[1] += 1
        return init_producer_id.InitProducerIdResponse(producer_id=row[0], producer_epoch=row[1])

    def _complete(self, row: list[Any], *, committed: bool) -> None:
        for name, index, topic_id in sorted(row[2]):
            if name in self.topics and self.topics[name].id == topic_id:
                self.topics[name].logs[index].mark(row[0], committed=committed)
        row[2] = set()

    def _is_fenced(self, name: str, epoch: int) -> bool:
        return bool(self._ids[name][1] != epoch)

    def _AddPartitionsToTxnRequest(self, request: add.AddPartitionsToTxnRequest) -> object:
        name = request.v3_and_below_transactional_id
        fenced = self._is_fenced(name, request.v3_and_below_producer_epoch)
        places = [(row.name, index) for row in request.v3_and_below_topics for index in row.partitions]
        missing = [place for place in places if self.log(*place) is None]
        if not fenced and not missing:
            self._ids[name][2] |= {(*place, self.topics[place[0]].id) for place in places}

        def code(place: tuple[str, int]) -> int:
            if fenced:
                return ErrorCode.PRODUCER_FENCED
            if place in missing:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.OPERATION_NOT_ATTEMPTED if missing else ErrorCode.NONE

        topics = [
            add.AddPartitionsToTxnTopicResult(
                row.name,
                [add.AddPartitionsToTxnPartitionResult(index, code((row.name, index))) for index in row.partitions],
            )
            for row in request.v3_and_below_topics
        ]
        return add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _ProduceRequest(self, request: produce.ProduceRequest) -> object:
        topics = []
        for topic in request.topic_data:
            rows = []
            for part in topic.partition_data:
                data = bytes(cast(Any, part.records))
                (batch,) = iter_batches(data)
                log = self.log(topic.name, part.index)
                if log is None:
                    code, base = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
                elif topic.name in self.refusing:
                    code, base = ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1
                elif request.transactional_id and self._is_fenced(request.transactional_id, batch.producer_epoch):
                    code, base = ErrorCode.INVALID_PRODUCER_EPOCH, -1
                elif request.transactional_id:
                    code, base = ErrorCode.NONE, log.append(data, batch.count, batch.producer_id)
                else:
                    code, base = ErrorCode.NONE, self._once(log, topic.name, part.index, batch, data)
                rows.append(produce.PartitionProduceResponse(part.index, code, base))
            topics.append(produce.TopicProduceResponse(topic.name, partition_responses=rows))
        return produce.ProduceResponse(responses=topics)

    def _once(self, log: Log, name: str, index: int, batch: Any, data: bytes) -> int:
        """Append a batch of an idempotent producer, if it is no duplicate."""
        key = (batch.producer_id, batch.producer_epoch, name, index, batch.base_sequence)
        if key in self._written:
            return log.end
        self._written.add(key)
        return log.append(data, batch.count)

    def _EndTxnRequest(self, request: end_txn.EndTxnRequest) -> object:
        if self._is_fenced(request.transactional_id, request.producer_epoch):
            return end_txn.EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        self._complete(self._ids[request.transactional_id], committed=request.committed)
        if request.committed:
            self.commits.setdefault(request.transactional_id, []).append(asyncio.get_running_loop().time())
        return end_txn.EndTxnResponse()

    # -- Groups ------------------------------------------------------------------------------------------------------------

    def _ListGroupsRequest(self, request: list_groups.ListGroupsRequest) -> object:
        rows = [list_groups.ListedGroup(name, "consumer", "Empty", "classic") for name in sorted(self.groups)]
        return list_groups.ListGroupsResponse(groups=rows)

    def _DescribeGroupsRequest(self, request: describe_groups.DescribeGroupsRequest) -> object:
        rows = [describe_groups.DescribedGroup(group_id=name, group_state="Empty") for name in request.groups]
        return describe_groups.DescribeGroupsResponse(groups=rows)

    def _OffsetFetchRequest(self, request: offset_fetch.OffsetFetchRequest) -> object:
        groups = []
        for group in request.groups:
            topics: dict[str, offset_fetch.OffsetFetchResponseTopics] = {}
            for (name, index), offset in sorted(self.groups.get(group.group_id, {}).items()):
                row = topics.setdefault(name, offset_fetch.OffsetFetchResponseTopics(name, partitions=[]))
                row.partitions.append(offset_fetch.OffsetFetchResponsePartitions(index, offset))
            groups.append(offset_fetch.OffsetFetchResponseGroup(group.group_id, list(topics.values())))
        return offset_fetch.OffsetFetchResponse(groups=groups)

    def _OffsetCommitRequest(self, request: offset_commit.OffsetCommitRequest) -> object:
        committed = self.groups.setdefault(request.group_id, {})
        topics = []
        for topic in request.topics:
            row = offset_commit.OffsetCommitResponseTopic(topic.name, partitions=[])
            for part in topic.partitions:
                is_there = self.log(topic.name, part.partition_index) is not None
                if is_there:
                    committed[topic.name, part.partition_index] = part.committed_offset
                code = ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row.partitions.append(PartitionErrorCode(part.partition_index, code))
            topics.append(row)
        return offset_commit.OffsetCommitResponse(topics=topics)
