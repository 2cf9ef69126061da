"""The fast path of Produce is a special case of its handler: both give the same responses and write the same logs."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.broker.produce.repeated import KNOWN_MAX, PREFIX_BYTES_MAX, RepeatedProduce, RepeatedProduces
from ottla.protocol.api import ApiKey, encode_request_header
from ottla.protocol.compile import encode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.server.network.connection import Connection
from ottla.server.network.context import MISSES_MAX, NOT_SERVED, RequestContext
from ottla.server.network.frames import Buffer
from tests.broker.records import batch
from tests.effort import examples
from tests.fuzz.wire import SentBytes, deliver
from tests.sim.cluster import SimNode
from tests.sim.harness import TOPIC, SimClusterHarness
from tests.sim.loop import run
from tests.sim.world import EPOCH_MS

#: The partition has a follower, so that acks=all waits.
ROLES = {1: "broker,controller", 2: "broker"}
SETTINGS = {"default.replication.factor": "2", "min.insync.replicas": "1", "offsets.topic.replication.factor": "2"}
OTHER, MISSING = "payments", "missing"
PARTITIONS = 2
SEEDS, FRAMES = examples(3), 80
#: The limit of virtual time for a response, which is enough for the follower's fetch.
ANSWER_S_MAX = 2.0


class Answers(SentBytes):
    def __init__(self) -> None:
        super().__init__()
        self.has_written = asyncio.Event()

    def write(self, data: Any) -> None:
        super().write(data)
        self.has_written.set()


@dataclass
class Producer:
    """Chooses the next frame, which mostly repeats the frame before, except in the fields that the fast path reads each
    time.
    """

    rng: random.Random
    topic_ids: dict[str, bytes]
    correlation_id: int = 0
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    version: int = 9
    client_id: bytes = b"one"
    acks: int = -1
    topic: str = TOPIC
    timeout_ms: int = 1000
    mixed: bool = False

    def change(self) -> None:
        chosen = self.rng.randrange(6)
        if chosen == 0:
            self.version = self.rng.choice((3, 6, 7, 8, 9, 9, 11, 13, 13))
        elif chosen == 1:
            self.client_id = self.rng.choice((b"one", b"two", b"", b"\xff\xfe"))
        elif chosen == 2:
            self.acks = self.rng.choice((-1, -1, -1, -1, 1, 1, 0, 2))
        elif chosen == 3:
            self.topic = self.rng.choice((TOPIC, TOPIC, TOPIC, OTHER, OTHER, MISSING, "__consumer_offsets"))
        elif chosen == 4:
            self.timeout_ms = self.rng.choice((0, 1000, -5))
        else:
            self.mixed = self.rng.random() < 0.1

    def frame(self) -> bytes:
        if self.rng.random() < 0.12:
            self.change()
        topics = [self.topic_data(self.topic)]
        if self.mixed:
            topics.append(self.topic_data(OTHER))
        return self.damaged(self.framed(topics))

    def framed(self, topics: list[TopicProduceData]) -> bytes:
        self.correlation_id += 1
        body = encode(ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=topics), self.version)
        head = struct.pack(">hhih", ApiKey.PRODUCE, self.version, self.correlation_id, len(self.client_id))
        frame = head + self.client_id + (b"\0" if self.version >= 9 else b"") + body
        return struct.pack(">i", len(frame)) + frame

    def damaged(self, framed: bytes) -> bytes:
        """Return the frame; in a few cases with something that the fast path must not overlook."""
        frame = framed[4:]
        if self.version >= 9 and self.rng.random() < 0.05:
            frame = frame[:-1] + b"\1\x63\1x"  # an unknown tagged field of the request
        if self.rng.random() < 0.02:
            frame = frame[: self.rng.randrange(len(frame))]
        return struct.pack(">i", len(frame)) + frame

    def topic_data(self, topic: str) -> TopicProduceData:
        by_id = self.version >= 13
        topic_id = self.topic_ids.get(topic, b"\7" * 16) if by_id else bytes(16)
        rows = [self.partition_data(topic) for _ in range(1 + (self.mixed and self.rng.random() < 0.5))]
        return TopicProduceData(name="" if by_id else topic, topic_id=topic_id, partition_data=rows)

    def partition_data(self, topic: str) -> PartitionProduceData:
        index = self.rng.choice((0, 0, 0, 1, 7, -1))
        values = [self.rng.randbytes(self.rng.choice((1, 100, 300, 20_000)))]
        kind = self.rng.randrange(20)
        records: bytes | None = batch(values, timestamp=EPOCH_MS)
        assert records is not None
        if kind == 0:
            records = self.rng.choice((None, b"", records[:40], records + records, records[:-1], records + b"\0"))
        elif kind == 1:
            records = records[:-1] + bytes([records[-1] ^ 1])
        elif kind == 2:
            records = batch(values, timestamp=EPOCH_MS, producer_id=9, base_sequence=0, transactional=True)
        elif kind in (3, 4, 5):
            at = self.sequences.get((topic, index), 0) + self.rng.choice((0, 0, 0, -1, 1))
            self.sequences[topic, index] = at + 1
            records = batch(values, timestamp=EPOCH_MS, producer_id=7, producer_epoch=0, base_sequence=max(0, at))
        elif kind == 6:
            records = build_batch([(b"k", value, EPOCH_MS) for value in values * 3])
        return PartitionProduceData(index=index, records=records)


async def play(seed: int, is_short: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the response to each frame, and the logs."""
    harness = SimClusterHarness(ROLES, SETTINGS)
    harness.cluster.start()
    assert await harness.cluster.all_serve(20)
    for topic in (TOPIC, OTHER):
        assert await harness.admin.spawn(harness.admin.create(topic, PARTITIONS, {}, 2), "creates")
    await harness.until("all replicas are there", lambda: len(replicas(harness)) == 4 * PARTITIONS)
    leader = harness.leader()
    ids = {each.topic: each.topic_id for each in replicas(harness)}
    producer = Producer(random.Random(seed), ids)
    client, answers = connect(leader)
    responses: list[bytes] = []
    for _ in range(FRAMES):
        answers.has_written.clear()
        count = len(answers.sent)
        leader.host.lane.context.run(deliver, client, producer.frame(), 1 << 20)
        with suppress(TimeoutError):
            await asyncio.wait_for(answers.has_written.wait(), ANSWER_S_MAX)
        responses.append(b"".join(answers.sent[count:]) + (b"closed" if client.closed else b""))
        if client.closed:
            client, answers = connect(leader)
        if not is_short:
            client.fast_path = None
    logs = [bytes(part.log.read(0, max_bytes=1 << 30).records) for part in replicas(harness) if part.log is not None]
    return responses, logs


def replicas(harness: SimClusterHarness) -> list[Any]:
    return [p for node in harness.cluster.brokers for p in node.partitions() if p.topic in (TOPIC, OTHER)]


def connect(node: SimNode) -> tuple[Connection, Answers]:
    assert node.server is not None
    listener = next(each for each in node.server.listeners if each.name != "CONTROLLER")
    client, answers = Connection(listener, listener._dispatcher, 0), Answers()
    client.connection_made(answers)
    return client, answers


def test_random_requests_get_the_responses_of_the_handler_on_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[bool] = []
    serve = RepeatedProduce.serve

    def counted(short: RepeatedProduce, connection: Connection, buf: Buffer, pos: int, end: int) -> int:
        outcome = serve(short, connection, buf, pos, end)
        served.append(outcome != NOT_SERVED)
        return outcome

    monkeypatch.setattr(RepeatedProduce, "serve", counted)
    monkeypatch.setattr("ottla.broker.produce.repeated.MISSES_MAX", 2)
    asked = 0
    for seed in range(SEEDS):
        by_handler, logs = run(play(seed, is_short=False))
        assert len(served) == asked
        by_fast_path, short_logs = run(play(seed, is_short=True))
        for number, (expected, found) in enumerate(zip(by_handler, by_fast_path, strict=True)):
            assert found == expected, f"seed {seed}, response {number}"
        assert short_logs == logs, f"seed {seed}"
        asked = len(served)
    assert SEEDS * 5 < sum(served) < len(served)


def test_a_connection_that_writes_to_two_topics_in_turn_gets_another_fast_path_after_a_number_of_misses() -> None:
    async def main() -> None:
        harness = SimClusterHarness({1: "broker,controller"}, SETTINGS | {"default.replication.factor": "1"})
        harness.cluster.start()
        assert await harness.cluster.all_serve(20)
        for topic in (TOPIC, OTHER):
            assert await harness.admin.spawn(harness.admin.create(topic, 1, {}, 1), "creates")
        await harness.until("they are there", lambda: len(replicas(harness)) == 2)
        leader = harness.leader()
        client, answers = connect(leader)
        producer = Producer(random.Random(1), {})

        async def send(topic: str) -> Any:
            row = PartitionProduceData(index=0, records=batch([b"x"], timestamp=EPOCH_MS))
            topics = [TopicProduceData(name=topic, partition_data=[row])]
            answers.has_written.clear()
            leader.host.lane.context.run(deliver, client, producer.framed(topics), 1 << 20)
            await asyncio.wait_for(answers.has_written.wait(), ANSWER_S_MAX)
            return client.fast_path

        first = await send(TOPIC)
        assert first is not None
        for _ in range(MISSES_MAX - 1):
            assert await send(TOPIC) is first
            assert await send(OTHER) is first
        assert await send(OTHER) not in (first, None)
        assert all(p.log.log_end_offset == MISSES_MAX for p in replicas(harness))
        client, answers = connect(leader)
        assert await send(TOPIC) is first, "connections share what begins with the same bytes"

    run(main())


def test_a_connection_with_a_low_limit_of_requests_has_no_fast_path_and_refuses_what_is_above_it() -> None:
    async def main() -> None:
        harness = SimClusterHarness({1: "broker,controller"}, SETTINGS | {"default.replication.factor": "1"})
        harness.cluster.start()
        assert await harness.cluster.all_serve(20)
        assert await harness.admin.spawn(harness.admin.create(TOPIC, 1, {}, 1), "creates")
        await harness.until("it is there", lambda: len(replicas(harness)) == 1)
        leader = harness.leader()
        client, answers = connect(leader)
        client.request_bytes_max = 1_000
        producer = Producer(random.Random(1), {})

        def send(value: bytes) -> None:
            row = PartitionProduceData(index=0, records=batch([value], timestamp=EPOCH_MS))
            topics = [TopicProduceData(name=TOPIC, partition_data=[row])]
            answers.has_written.clear()
            leader.host.lane.context.run(deliver, client, producer.framed(topics), 1 << 20)

        for _ in range(2):
            send(b"x")
            await asyncio.wait_for(answers.has_written.wait(), ANSWER_S_MAX)
            assert client.fast_path is None, "a fast path does not look at the limit"
        send(bytes(1_000))
        assert client.closed
        assert [p.log.log_end_offset for p in replicas(harness)] == [2]

    run(main())


def test_fast_paths_of_a_thousand_kinds_of_requests_are_kept_and_none_of_a_long_client_id() -> None:
    async def main() -> None:
        harness = SimClusterHarness({1: "broker,controller"}, SETTINGS | {"default.replication.factor": "1"})
        harness.cluster.start()
        assert await harness.cluster.all_serve(20)
        leader = harness.cluster.nodes[0]
        assert leader.server is not None
        client, _ = connect(leader)
        produces = RepeatedProduces(leader.server.broker.components)
        route = client._dispatcher.routes.get(ApiKey.PRODUCE)
        request = ProduceRequest(
            acks=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData()])]
        )

        def known(client_id: str) -> RepeatedProduce | None:
            context = RequestContext(ApiKey.PRODUCE, 9, client_id, client)
            frame = encode_request_header(ApiKey.PRODUCE, 9, 0, context.client_id) + encode(request, 9)
            return produces(client._dispatcher, route, request, context, frame)

        for number in range(KNOWN_MAX + 10):
            assert known(f"client-{number}") is not None
        assert 0 < len(produces._known) <= KNOWN_MAX
        assert known("x" * PREFIX_BYTES_MAX) is None
        assert max(map(len, produces._known)) <= PREFIX_BYTES_MAX

    run(main())
