"""A cluster of three brokers in memory with the topic of a registry: its leader moves, and it stores producer states as a real
partition does.

It answers the same messages as `mirror_model.py`. In addition, the leader rejects batches of an old producer epoch, recognises
a repeated batch, moves with and without a loss of records, and compacts. Brokers learn of a new leader with a delay.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.failures import Kind
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import fetch, find_coordinator, list_offsets, metadata, produce
from ottla.protocol.messages import offset_for_leader_epoch as epochs
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.records.batch import BatchView, iter_batches
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.record import Record
from ottla.registry.schema_records import noop_record
from ottla.server.address import Address
from tests.sim.loop import OUTSIDE
from tests.sim.mirror_client import LoopClock
from tests.sim.mirror_model import Entry, Log, ModelCluster
from tests.sim.registry_group import ModelGroup

NODES = (1, 2, 3)
TOPIC = "_schemas"
#: A broker learns of another leader within this time.
VIEW_S_MAX = 0.5
#: The longest time for which a request, or a response, is in flight.
WAY_S = 0.01
#: The time for which compaction keeps tombstones: no reader is paused for longer.
TOMBSTONE_S = 40.0
GROUP_REQUESTS = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
}


@dataclass
class KnownProducer:
    """The state of a producer in a partition: its epoch, the next sequence number, and the offsets of its batches by sequence
    number.
    """

    epoch: int
    next: int
    batches: dict[int, int] = field(default_factory=dict)


@dataclass
class RegistryLog(Log):
    """The partition of one topic id."""

    #: Where each leader epoch began.
    begins: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    #: For each batch: its time, producer, epoch, first sequence number and count.
    came: dict[int, tuple[float, int, int, int, int]] = field(default_factory=dict)
    producers: dict[int, KnownProducer] = field(default_factory=dict)
    #: Compaction has read up to this offset. Each replica compacts its own log, so no cut goes below it.
    cleaned: int = 0
    #: Whether the last batch came from a producer of which a cut has removed all batches: then the partition accepts any
    #: sequence number.
    is_blind: bool = False

    def take(self, batch: BatchView, data: bytes) -> tuple[int, int, bool]:
        """Append a batch. Return the error code, its offset, and whether it is new."""
        row = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count
        known = self.producers.get(batch.producer_id)
        self.is_blind = known is None and batch.base_sequence > 0
        if known is not None and batch.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1, False
        if known is not None and batch.producer_epoch == known.epoch:
            if batch.base_sequence in known.batches:
                return ErrorCode.NONE, known.batches[batch.base_sequence], False
            if batch.base_sequence != known.next:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, False
        elif known is not None and batch.base_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, False
        base = self.append(data, batch.count)
        self.came[base] = (asyncio.get_running_loop().time(), *row)
        self._learn(base)
        return ErrorCode.NONE, base, True

    def _learn(self, base: int) -> None:
        _, producer, epoch, sequence, count = self.came[base]
        known = self.producers.get(producer)
        if known is None or known.epoch != epoch:
            known = self.producers[producer] = KnownProducer(epoch, sequence)
        known.next = sequence + count
        known.batches[sequence] = base

    def lead(self) -> None:
        """Another broker leads, without a loss."""
        self.epoch += 1
        self.begins.append((self.epoch, self.end))

    def cut(self, offset: int) -> None:
        super().cut(offset)
        self.begins = [row for row in self.begins if row[1] <= self.end]
        self.begins.append((self.epoch, self.end))
        self.came = {base: row for base, row in self.came.items() if base < self.end}
        self.producers = {}
        for base in sorted(self.came):
            self._learn(base)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if epoch > self.epoch:
            return -1, -1
        known = max((each for each, _ in self.begins if each <= epoch), default=epoch)
        return known, next((begin for each, begin in self.begins if each > epoch), self.end)

    def compact(self, limit: int) -> None:
        """Remove the records before `limit` that have a later record with the same key, and old tombstones."""
        now_s = asyncio.get_running_loop().time()
        self.cleaned = max(self.cleaned, limit)
        last: dict[bytes | None, int] = {}
        views = [next(iter(iter_batches(entry.data))) for entry in self.entries]
        rows = [list(view.records()) for view in views]
        for entry, records in zip(self.entries, rows, strict=True):
            if entry.end <= limit:
                last |= {record.key: record.offset for record in records}
        kept: list[Entry] = []
        for entry, view, records in zip(self.entries, views, rows, strict=True):
            if entry.end > limit or entry is self.entries[-1]:
                kept.append(entry)
                continue
            old = now_s - self.came.get(entry.base, (now_s,))[0] > TOMBSTONE_S
            stay = [row for row in records if last[row.key] == row.offset and not (row.value is None and old)]
            if stay:
                entry.data = rebuild_batch(view, stay)
                kept.append(entry)
        self.entries = kept


class RegistryCluster(ModelCluster):
    """The brokers.

    `on_append` is called with the records of each batch that was appended, and whether the batch could not be compared with its
    producer's earlier batches.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__("kafka", rng)
        self.leader = self.coordinator = NODES[0]
        self._views = dict.fromkeys(NODES, (self.leader, 0))
        self.group = ModelGroup()
        self.on_append: Callable[[list[Record], bool], None] = lambda records, is_blind: None
        self._grown = asyncio.Event()

    @property
    def schemas(self) -> RegistryLog:
        log = self.topics[TOPIC].logs[0]
        assert isinstance(log, RegistryLog)
        return log

    def create(self, name: str, partitions: int) -> Any:
        made = super().create(name, partitions)
        made.logs = [RegistryLog() for _ in range(partitions)]
        self._spread(0.0)
        return made

    def move(self, leader: int | None = None) -> None:
        """Move the leadership to another broker; -1: there is no leader for a while."""
        self.leader = self.rng.choice([node for node in NODES if node != self.leader]) if leader is None else leader
        if TOPIC in self.topics and self.leader > 0:
            self.schemas.lead()
        self._spread(VIEW_S_MAX)

    def cut(self, offset: int) -> None:
        """Move the leadership to another broker, which does not have the records after the offset."""
        self.schemas.cut(offset)
        self.leader = self.rng.choice(NODES)
        self._spread(VIEW_S_MAX)

    def write_noop(self, greatest_ids: dict[str, int]) -> None:
        """Write the record that an instance writes when it becomes the leader."""
        key, value = noop_record(greatest_ids)
        self.schemas.append(build_batch([(key, value, 1)]), 1)

    def _spread(self, late_s: float) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
        if TOPIC not in self.topics:
            return
        topic_id, view = self.topics[TOPIC].id, (self.leader, self.schemas.epoch)
        for node in NODES:
            if node == self.leader or not late_s:
                self._views[node] = view
            else:
                delay_s = self.rng.random() * late_s
                asyncio.get_running_loop().call_later(
                    delay_s, self._learn, node, topic_id, view, context=OUTSIDE.context
                )

    def _learn(self, node: int, topic_id: bytes, view: tuple[int, int]) -> None:
        is_there = TOPIC in self.topics and self.topics[TOPIC].id == topic_id
        if is_there and view[1] >= self._views[node][1]:
            self._views[node] = view

    # -- Requests --------------------------------------------------------------------------------------------------------

    async def answer_at(self, request: Any, node: int) -> Any:
        """Answer as this broker."""
        group = GROUP_REQUESTS.get(type(request))
        if group is not None:
            if node != self.coordinator:
                return group(error_code=ErrorCode.NOT_COORDINATOR)
            return await self.group.answer(request)
        match request:
            case InitProducerIdRequest() if request.transactional_id and node != self.coordinator:
                return InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
            case metadata.MetadataRequest():
                return self._metadata(request, node)
            case fetch.FetchRequest():
                return await self._fetched(request, node)
            case produce.ProduceRequest() if node != self.leader:
                part = produce.PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
                return produce.ProduceResponse(responses=[produce.TopicProduceResponse(partition_responses=[part])])
            case list_offsets.ListOffsetsRequest() if node != self.leader:
                row = list_offsets.ListOffsetsPartitionResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                topic = list_offsets.ListOffsetsTopicResponse(TOPIC, [row])
                return list_offsets.ListOffsetsResponse(topics=[topic])
            case epochs.OffsetForLeaderEpochRequest() if node != self.leader:
                end = epochs.EpochEndOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
                result = epochs.OffsetForLeaderTopicResult(TOPIC, [end])
                return epochs.OffsetForLeaderEpochResponse(topics=[result])
        return await self.answer(request)

    def _metadata(self, request: metadata.MetadataRequest, node: int) -> object:
        response: Any = self._MetadataRequest(request)
        response.brokers = [metadata.MetadataResponseBroker(each, self.name, each) for each in NODES]
        for topic in response.topics:
            for part in topic.partitions:
                part.leader_id, part.leader_epoch = self._views[node]
        return response

    def _FindCoordinatorRequest(self, request: find_coordinator.FindCoordinatorRequest) -> object:
        node = self.coordinator
        code = ErrorCode.NONE if node > 0 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        rows = [find_coordinator.Coordinator(key, node, self.name, node, code) for key in request.coordinator_keys]
        return find_coordinator.FindCoordinatorResponse(coordinators=rows)

    async def _fetched(self, request: fetch.FetchRequest, node: int) -> object:
        response = self._fetch_at(request, node)
        if any(part.records or part.error_code for topic in response.responses for part in topic.partitions):
            return response
        with_news = self._grown
        try:
            async with asyncio.timeout(request.max_wait_ms / 1000):
                await with_news.wait()
        except TimeoutError:
            pass
        return self._fetch_at(request, node)

    def _fetch_at(self, request: fetch.FetchRequest, node: int) -> fetch.FetchResponse:
        response = self._fetch(request)
        if node != self.leader:
            for topic in response.responses:
                for part in topic.partitions:
                    part.records, part.error_code = b"", ErrorCode.NOT_LEADER_OR_FOLLOWER
        return response

    def _ProduceRequest(self, request: produce.ProduceRequest) -> object:
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        data = bytes(part.records or b"")
        (batch,) = iter_batches(data)
        code, base = int(ErrorCode.UNKNOWN_TOPIC_ID), -1
        if TOPIC in self.topics and self.topics[TOPIC].id == topic.topic_id:
            code, base, is_new = self.schemas.take(batch, data)
            if is_new:
                (entry,) = [entry for entry in self.schemas.entries[-1:] if entry.base == base]
                (stored,) = iter_batches(entry.data)
                self.on_append(list(stored.records()), self.schemas.is_blind)
                self._grow()
        row = produce.PartitionProduceResponse(part.index, code, base)
        return produce.ProduceResponse(responses=[produce.TopicProduceResponse(partition_responses=[row])])

    def _grow(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


class Wire:
    """The faults of all connections of an instance: they are slow, some of the requests are lost, or no message passes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lost = 0.0
        self.way_s = WAY_S
        self.open = asyncio.Event()
        self.open.set()
        #: It is called with a Produce request before the request takes effect, and again afterwards; it returns True if the
        #: response is lost.
        self.on_produce: Callable[[bool], bool] = lambda is_done: False

    async def way(self) -> None:
        await asyncio.sleep(self.rng.random() * self.way_s)
        await self.open.wait()


class WireClient(ClusterClient):
    """A client of an instance. A request that was sent takes effect in the lane of the cluster, even if the instance ends."""

    def __init__(self, cluster: RegistryCluster, wire: Wire, world: Any, timeout_ms: int = 20_000) -> None:
        super().__init__(world, [Address(cluster.name, each) for each in NODES], timeout_ms)
        self._model, self._wire = cluster, wire
        #: Requests of one connection take effect in the order in which they are sent.
        self._order = {node: asyncio.Lock() for node in NODES}

    async def request(
        self, request: object, node: int | None = None, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        carried = outside(self._carry(request, self._wire.rng.choice(NODES) if node is None else node))
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        done, _ = await asyncio.wait({carried}, timeout=limit_ms / 1000)
        if not done:
            raise NoConnection("no answer in time", Kind.TIMED_OUT)
        return carried.result()

    async def _carry(self, request: object, node: int) -> Any:
        wire, is_produce = self._wire, isinstance(request, produce.ProduceRequest)
        async with self._order[node]:
            await wire.way()
            is_lost = wire.rng.random() < wire.lost
            if (is_lost and wire.rng.random() < 0.5) or (is_produce and wire.on_produce(False)):
                raise NoConnection("lost before")
            await wire.open.wait()
            answering = outside(self._model.answer_at(request, node))
            # A request that waits at the broker does not delay the following ones: its effect has happened.
            if isinstance(request, JoinGroupRequest | SyncGroupRequest):
                await asyncio.sleep(0)
            else:
                await asyncio.wait({answering})
        response = await answering
        if is_produce and wire.on_produce(True):
            raise NoConnection("lost after")
        await wire.way()
        if is_lost:
            raise NoConnection("lost after")
        return response


def outside(coroutine: Any) -> asyncio.Task[Any]:
    """Run a coroutine in the lane of the cluster, which no fault of an instance can end."""
    return asyncio.get_running_loop().create_task(coroutine, context=OUTSIDE.context.copy())


class SimClock(LoopClock):
    """The clock of all instances."""

    def mono_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000_000)

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> Any:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)
