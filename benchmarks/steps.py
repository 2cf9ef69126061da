"""The microseconds of each step of a small request: `python -m benchmarks.steps`. It runs a node without sockets.

The frames of one client are handed to a `Connection` whose transport drops what is written. Each figure is the best of many
slices of some 60 us, because longer ones are always disturbed on a machine with other work; ratios are what counts.
"""

from __future__ import annotations

import asyncio
import gc
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.raw import one_record_batch
from ottla.broker.replication.fetch_requests import FetcherSettings
from ottla.broker.replication.fetcher import LeaderFetcher
from ottla.node.node import Node
from ottla.node.process import GC_THRESHOLDS
from ottla.protocol.api import ApiKey, encode_request_header
from ottla.protocol.compile import decoder, encode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.validate import validate_header
from ottla.server.clock import SystemClock
from ottla.server.network.channel_protocol import ChannelProtocol
from ottla.server.network.client import Channel
from ottla.server.network.connection import Connection
from ottla.server.world import RealWorld
from tests.ports import free_ports

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SLICES, SLICE_US, REQUESTS = 4_000, 60, 10_000
TOPIC, FOLLOWED = "steps", "followed"
MARK_EPOCH, MARK_OFFSET = 0x7A6B5C4D, 0x1A2B3C4D5E6F7081
NOW_MS = int(time.time() * 1000)


class Step(NamedTuple):
    """One row: the call, the part of its cost that is not the row's own and is subtracted, and whose collections are counted."""

    name: str
    call: Callable[[], object]
    without: Callable[[], object] | None = None
    collected: str = ""


Steps = AsyncIterator[Step]


class Sink(asyncio.Transport):
    """A transport that drops all written bytes."""

    written = b""

    def get_extra_info(self, name: str, default: object = None) -> tuple[str, int]:
        return "127.0.0.1", 1

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written = bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def _nothing(self, *args: object, **options: object) -> None:
        """Do nothing: a method of a transport that has no effect here."""

    set_write_buffer_limits = writelines = pause_reading = resume_reading = close = abort = can_write_eof = _nothing


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def best_us(call: Callable[[], object]) -> float:
    best, repeats = 1e9, 4
    for slice_number in range(SLICES):
        began = time.perf_counter_ns()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter_ns() - began) / repeats / 1000)
        await asyncio.sleep(0)  # a turn of the loop serves 20 ms of requests
        if slice_number == 50:
            repeats = max(2, int(SLICE_US / best))
    return best


class Collections:
    """Counts the passes of Python's collector, and their time, while 10,000 requests are served."""

    def __init__(self) -> None:
        self.by_generation = [0, 0, 0]
        self.spent_ns = self._began_ns = 0

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
            return
        self.spent_ns += time.perf_counter_ns() - self._began_ns
        self.by_generation[info["generation"]] += 1

    async def report(self, name: str, call: Callable[[], object]) -> None:
        gc.callbacks.append(self._called)
        for number in range(REQUESTS):
            call()
            if not number % 100:
                await asyncio.sleep(0)
        gc.callbacks.remove(self._called)
        passes = " + ".join(map(str, self.by_generation))
        print(
            f"{passes:>10}  passes of the collector, {self.spent_ns / 1e6:.1f} ms, in {REQUESTS:,} times: {name}",
            flush=True,
        )


class Bench:
    """A node with one topic of one partition, and a connection to it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        listener = next(each for each in node.listeners if each.name == "PLAINTEXT")
        self.listener = listener
        self.dispatcher = listener._dispatcher
        self.components = node.broker.components
        self.partition = self.components.replicas.by_name[TOPIC][0]
        log = self.partition.leader_log
        assert log is not None
        self.log = log

    def connect(self) -> tuple[Connection, Sink]:
        connection, sink = Connection(self.listener, self.dispatcher, 1), Sink()
        connection.connection_made(sink)
        return connection, sink

    async def deliver(self, frame: bytes) -> Callable[[], object]:
        size = len(frame)
        connection, sink = self.connect()

        def call() -> None:
            connection.get_buffer(size)[:size] = frame
            connection.buffer_updated(size)

        call()
        await until(lambda: sink.written != b"")
        return call

    async def session(
        self, asked: Callable[[int, int, int], bytes], offset: Callable[[], int]
    ) -> tuple[Callable[[], None], Sink]:
        """Open a session; return a call that fetches from `offset()` on. `asked(session id, epoch, offset)` makes a request."""
        sessions = self.components.fetch_sessions
        before = set(sessions._sessions)
        await self.deliver(asked(0, 0, offset() - 1))
        [session_id] = set(sessions._sessions) - before
        session = sessions._sessions[session_id]
        marked = bytearray(asked(session_id, MARK_EPOCH, MARK_OFFSET))
        epoch_at, offset_at = marked.index(struct.pack(">i", MARK_EPOCH)), marked.index(struct.pack(">q", MARK_OFFSET))
        connection, sink = self.connect()

        def fetch() -> None:
            struct.pack_into(">i", marked, epoch_at, session.epoch)
            struct.pack_into(">q", marked, offset_at, offset())
            connection.get_buffer(len(marked))[: len(marked)] = marked
            connection.buffer_updated(len(marked))

        return fetch, sink


def frame_of(key: ApiKey, version: int, request: object) -> bytes:
    body = encode_request_header(key, version, 7, "steps") + encode(request, version)
    return struct.pack(">i", len(body)) + body


async def produce_rows(bench: Bench) -> Steps:
    batch = one_record_batch(bytes(100))
    partition_data = PartitionProduceData(index=0, records=batch)
    for version in (7, 9, 12):
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition_data])]
        )
        frame = frame_of(ApiKey.PRODUCE, version, request)
        call = await bench.deliver(frame)
        collected = "a Produce" if version == 12 else ""
        yield Step(f"Produce v{version}, one record of 100 B: all but the kernel", call, collected=collected)
    decode, buffer = decoder(ProduceRequest, version), bytearray(frame)
    body = frame.index(b"steps") + len(b"steps") + 1
    yield Step("  decode", lambda: decode(buffer, body, len(frame)))
    records = memoryview(bytearray(batch))
    partition, log = bench.partition, bench.log
    yield Step("  partition.append", lambda: partition.append(records, -1, NOW_MS))
    yield Step("    log.append", lambda: log.append(records, leader_epoch=partition.leader_epoch, now_ms=NOW_MS))
    yield Step("      validate_header with CRC", lambda: validate_header(records, len(records), log.rules, NOW_MS))
    partition.advance_high_watermark()


async def fetch_rows(bench: Bench) -> Steps:
    """Measure fetches. They ask the kernel whether bytes are in memory (mincore) that came before the last check for flushes."""
    topic_id, log = bench.partition.topic_id, bench.log
    log.segments.active.file.age()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    for version in (11, 17):
        topic = FetchTopic(
            topic=TOPIC if version < 13 else "", topic_id=topic_id if version >= 13 else bytes(16), partitions=[wanted]
        )
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])
        frame = frame_of(ApiKey.FETCH, version, request)
        yield Step(f"Fetch v{version}, 1 KB found, no session: all but the kernel", await bench.deliver(frame))


async def session_rows(bench: Bench) -> Steps:
    """Measure a reader in a session (KIP-227) that fetches each record once, as a follower and the Java consumer do."""
    partition, log, version = bench.partition, bench.log, 17
    records = memoryview(bytearray(one_record_batch(bytes(100))))

    def asked(session_id: int, epoch: int, offset: int) -> bytes:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=partition.topic_id, partitions=[wanted])]
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics
        )
        return frame_of(ApiKey.FETCH, version, request)

    partition.append(records, -1, NOW_MS)
    fetch, sink = await bench.session(asked, lambda: log.log_end_offset - 1)
    fetch()
    await until(lambda: sink.written != b"")  # the response comes in a later turn if this one's budget is spent
    yield Step("Fetch v17 of one record, in a session: all but the kernel (0.6 us are this bench's)", fetch)

    def append_and_fetch() -> None:
        partition.append(records, -1, NOW_MS)
        fetch()

    collected = "an append and a Fetch"
    yield Step("  with an append before each, whose watch it is", append_and_fetch, collected=collected)


async def follower_rows(bench: Bench) -> Steps:
    """Measure, at the leader, the Fetch of a follower for each record, in its session."""
    partition, log, version = bench.partition, bench.log, 17
    now_ms = bench.components.world.clock.mono_ms()
    partition.become_leader(log, partition.leader_epoch, partition.isr.partition_epoch, (1, 2), (1, 2), now_ms)
    records = memoryview(bytearray(one_record_batch(bytes(100))))

    def asked(session_id: int, epoch: int, offset: int) -> bytes:
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        topics = [FetchTopic(topic_id=partition.topic_id, partitions=[wanted])]
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics,
            replica_state=ReplicaState(replica_id=2),
        )  # fmt: skip
        return frame_of(ApiKey.FETCH, version, request)

    fetch, _ = await bench.session(asked, lambda: log.log_end_offset - 1)

    def append() -> None:
        partition.append(records, -1, NOW_MS)

    def append_and_fetch() -> None:
        partition.append(records, -1, NOW_MS)
        fetch()

    yield Step("A follower's Fetch v17 that finds one record", append_and_fetch, append)
    at_end, _ = await bench.session(asked, lambda: log.log_end_offset)
    wakeups = partition._wakeups

    def wait_and_wake() -> None:
        at_end()
        partition.append(records, -1, NOW_MS)
        wakeups._run()

    name = "A follower's Fetch v17 that waits and is woken by the append of one record"
    yield Step(name, wait_and_wake, append, "a follower's Fetch that waits, and the append")


async def fetcher_rows(bench: Bench) -> Steps:
    """Measure the follower's side: from the bytes of a response with one record to the bytes of its next request."""
    partition = bench.components.replicas.by_name[FOLLOWED][0]
    log = partition.log
    assert log is not None
    epoch = partition.leader_epoch + 1
    partition.become_follower(log, 2, epoch, partition.isr.partition_epoch, (1, 2), (1, 2))
    settings = FetcherSettings(1, 1, 500, 1 << 20, 10 << 20, 1_000, 30_000)
    fetcher = LeaderFetcher(bench.components.world, settings, 2, lambda: None, lambda: 7)
    protocol, sink = ChannelProtocol(bench.components.world, "steps"), Sink()
    protocol.connection_made(sink)
    fetcher.session.add(partition)
    fetcher._connected(protocol, 17)

    def answer(correlation_id: int, offset: int, records: bytes) -> bytearray:
        data = PartitionData(
            partition_index=0, high_watermark=offset, last_stable_offset=offset, log_start_offset=0,
            aborted_transactions=None, records=records,
        )  # fmt: skip
        topics = [FetchableTopicResponse(topic_id=partition.topic_id, partitions=[data])]
        body = struct.pack(">ix", correlation_id) + encode(FetchResponse(session_id=5, responses=topics), 17)
        return bytearray(struct.pack(">i", len(body)) + body)

    batch = bytearray(one_record_batch(bytes(100)))
    struct.pack_into(">q", batch, 0, MARK_OFFSET + 1)
    struct.pack_into(">i", batch, 12, epoch)
    frame = answer(0, MARK_OFFSET, bytes(batch))
    watermark_at = frame.index(struct.pack(">q", MARK_OFFSET))
    offset_at = frame.index(struct.pack(">q", MARK_OFFSET + 1))

    def receive() -> None:
        struct.pack_into(">i", frame, 4, protocol.wire._last_correlation_id)
        struct.pack_into(">q", frame, watermark_at, log.log_end_offset)
        struct.pack_into(">q", frame, offset_at, log.log_end_offset)
        protocol.get_buffer(len(frame))[: len(frame)] = frame
        protocol.buffer_updated(len(frame))

    receive()  # the response to the full request, which opens the session
    await until(lambda: log.log_end_offset == 1)  # its files are made by a worker
    name = "The fetcher: a response with one record, append, its next request (0.6 us are this bench's)"
    yield Step(name, receive, collected="the fetcher's turn")
    assert sink.written
    fetcher.close()


ROWS = (produce_rows, fetch_rows, session_rows, follower_rows, fetcher_rows)


@asynccontextmanager
async def a_node(clock: type[SystemClock] = SystemClock) -> AsyncIterator[Bench]:
    """Start a node with the topics of the steps, and stop it."""
    loop = asyncio.get_running_loop()
    real = RealWorld(loop)
    world = replace(real.world, clock=clock(loop))
    broker_port, controller_port = free_ports(2)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        node = Node(
            world,
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": directory,
            },
        )
        await node.start()
        channel = Channel(world, "127.0.0.1", broker_port, "steps")
        names = (TOPIC, FOLLOWED)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        await channel.request(CreateTopicsRequest(topics=topics, timeout_ms=5000))
        await until(lambda: all(name in node.broker.components.replicas.by_name for name in names))
        yield Bench(node)
        channel.close()
        await node.stop()
    await real.close()


async def measure() -> None:
    async with a_node() as bench:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        for rows in ROWS:
            async for step in rows(bench):
                microseconds = await best_us(step.call)
                if step.without is not None:
                    microseconds -= await best_us(step.without)
                print(f"{microseconds:7.2f} us  {step.name}", flush=True)
                if step.collected:
                    await Collections().report(step.collected, step.call)


def main() -> None:
    import uvloop

    uvloop.run(measure())


if __name__ == "__main__":
    main()
