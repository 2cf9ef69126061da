"""The fast path of Fetch is a special case of its handler: both give the same responses, and leave the same state behind."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.broker.fetch.repeated import RepeatedFetch, RepeatedFetches
from ottla.broker.replication.throttle import Throttle
from ottla.protocol.api import ApiKey
from ottla.protocol.compile import decoder, encode
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.server.clock import Deadline
from ottla.server.network.connection import Connection
from ottla.server.network.context import NOT_SERVED
from ottla.server.network.frames import Buffer
from ottla.storage.log.log import Origin
from ottla.storage.log.retention import delete_records
from tests.broker.produce.test_repeated import Answers, connect
from tests.broker.records import batch
from tests.effort import examples
from tests.fuzz.wire import deliver
from tests.sim.cluster import SimNode
from tests.sim.harness import TOPIC, SimClusterHarness
from tests.sim.loop import run
from tests.sim.world import EPOCH_MS
from tests.storage.logs_for_tests import marker

#: Node 2 follows with a fetcher of its own; the test asks in its name as well.
ROLES = {1: "broker,controller", 2: "broker"}
FOLLOWER = 2
SETTINGS = {"default.replication.factor": "2", "min.insync.replicas": "1", "offsets.topic.replication.factor": "2"}
OTHER = "payments"
PARTITIONS = 3
SEEDS, FRAMES = examples(6), 120
#: The limit of virtual time for a response, which is above the longest max_wait_ms.
ANSWER_S_MAX = 2.0
WRITE_S = 0.02
FULL, WITHOUT = 0, -1


@dataclass
class Reader:
    """Chooses the next request of one client, which mostly repeats the request before with other positions."""

    rng: random.Random
    leaders: list[Any]
    correlation_id: int = 0
    session_id: int = 0
    epoch: int = 0
    version: int = 17
    client_id: bytes = b"one"
    replica_id: int = -1
    max_wait_ms: int = 300
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    isolation_level: int = 0
    has_session: bool = True
    held: list[Any] = field(default_factory=list)

    def change(self) -> None:
        chosen = self.rng.randrange(9)
        if chosen == 0:
            self.version = self.rng.choice((11, 12, 13, 14, 15, 16, 17, 17, 18))
        elif chosen == 1:
            self.client_id = self.rng.choice((b"one", b"two", b"", b"\xff\xfe"))
        elif chosen == 2:
            self.replica_id = self.rng.choice((-1, -1, FOLLOWER, FOLLOWER, 9))
        elif chosen == 3:
            self.max_wait_ms = self.rng.choice((0, 300, 300, 20))
        elif chosen == 4:
            self.min_bytes = self.rng.choice((1, 1, 1, 0, 500))
        elif chosen == 5:
            self.max_bytes = self.rng.choice((1 << 20, 1 << 20, 400, 1, 0, -1))
        elif chosen == 6:
            self.isolation_level = self.rng.choice((0, 0, 1))
        elif chosen == 7:
            self.has_session = self.rng.random() < 0.7
        if chosen != 3:
            self.session_id = 0  # a request that differs opens a session of its own

    def frame(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.04:
            self.change()
        if self.session_id and rng.random() < 0.03:
            self.session_id = 0
        session_id, epoch = self.session_id, self.epoch if self.session_id else FULL
        if not self.has_session:
            session_id, epoch = 0, WITHOUT
        forgotten: list[ForgottenTopic] = []
        if epoch > 0:
            if rng.random() < 0.02:
                epoch += 1
            if rng.random() < 0.02:
                forgotten = [ForgottenTopic(topic=TOPIC, topic_id=self.leaders[0].topic_id, partitions=[1])]
            asked = [each for each in self.held if rng.random() < 0.6]
            if rng.random() < 0.03:
                asked.append(rng.choice(self.leaders))
        elif epoch == WITHOUT and self.held and rng.random() < 0.9:
            asked = list(self.held)
        else:
            asked = self.held = [each for each in self.leaders if rng.random() < 0.5]
        request = FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            topics=self.topics(asked),
            forgotten_topics_data=forgotten,
        )
        if self.version >= 15:
            request.replica_state = ReplicaState(replica_id=self.replica_id)
        else:
            request.replica_id = self.replica_id
        return self.framed(request)

    def topics(self, asked: list[Any]) -> list[FetchTopic]:
        topics: list[FetchTopic] = []
        for partition in asked:
            row = self.position(partition)
            if not topics or topics[-1].topic_id != partition.topic_id:
                topics.append(FetchTopic(topic=partition.topic, topic_id=partition.topic_id, partitions=[]))
            topics[-1].partitions.append(row)
        return topics

    def position(self, partition: Any) -> FetchPartition:
        rng, log = self.rng, partition.log
        end = log.log_end_offset
        offset = rng.choice((end, end, end, max(0, end - 1), log.high_watermark, log.log_start_offset))
        epoch = partition.leader_epoch
        if rng.random() < 0.02:
            offset = rng.choice((-1, end + 1, 0))
        return FetchPartition(
            partition=partition.index if rng.random() < 0.99 else 77,
            current_leader_epoch=rng.choice((epoch, epoch, -1)) if rng.random() < 0.98 else epoch + 1,
            fetch_offset=offset,
            last_fetched_epoch=rng.choice((-1, log.epochs.latest)) if self.version >= 12 else -1,
            log_start_offset=rng.choice((-1, 0)),
            partition_max_bytes=rng.choice((1 << 20, 1 << 20, 300, 0)) if rng.random() < 0.98 else -1,
            replica_directory_id=b"\7" * 16 if self.version >= 17 and rng.random() < 0.01 else bytes(16),
        )

    def framed(self, request: FetchRequest) -> bytes:
        self.correlation_id += 1
        head = struct.pack(">hhih", ApiKey.FETCH, self.version, self.correlation_id, len(self.client_id))
        frame = head + self.client_id + (b"\0" if self.version >= 12 else b"") + encode(request, self.version)
        chosen = self.rng.random()
        if chosen < 0.02:
            frame = frame[:-1] + b"\1\x63\1x"  # an unknown tagged field of the request
        elif chosen < 0.03:
            frame = frame[: self.rng.randrange(len(frame))]
        return struct.pack(">i", len(frame)) + frame

    def answered(self, framed: bytes) -> None:
        """Take the session from the last response."""
        if len(framed) < 12:
            return
        flexible = self.version >= 12
        response: FetchResponse = decoder(FetchResponse, self.version)(framed, 9 if flexible else 8, len(framed))[0]
        if response.error_code or not response.session_id:
            self.session_id = 0
        elif response.session_id == self.session_id:
            self.epoch += 1
        else:
            self.session_id, self.epoch = response.session_id, 1


async def play(seed: int) -> tuple[list[bytes], list[Any]]:
    """Return the responses to each frame, and the state after each."""
    harness = SimClusterHarness(ROLES, SETTINGS)
    harness.cluster.start()
    assert await harness.cluster.all_serve(20)
    for topic in (TOPIC, OTHER):
        assert await harness.admin.spawn(harness.admin.create(topic, PARTITIONS, {}, 2), "creates")
    await harness.until("all replicas are there", lambda: len(leaders(harness)) == 2 * PARTITIONS)
    node = harness.leader()
    mine = [each for each in leaders(harness) if each.node_id == node.number]
    rng = random.Random(seed)
    reader = Reader(rng, mine)
    client, answers = connect(node)
    responses: list[bytes] = []
    states: list[Any] = []
    for _ in range(FRAMES):
        count = len(answers.sent)
        for _ in range(1 if rng.random() < 0.97 else 2):
            run_on(node, deliver, client, reader.frame(), 1 << 20)
        if rng.random() < 0.7:
            await asyncio.sleep(rng.choice((0, WRITE_S)))
            run_on(node, disturb, rng, mine)
        with suppress(TimeoutError):
            await asyncio.wait_for(answered(client, answers), ANSWER_S_MAX)
        written = b"".join(answers.sent[count:])
        responses.append(written + (b"closed" if client.closed else b""))
        if client.closed:
            client.connection_lost(None)
            client, answers = connect(node)
            reader.session_id = 0
        else:
            reader.answered(written)
        states.append(state(node, mine))
    return responses, states


async def answered(client: Connection, answers: Answers) -> None:
    while client.is_waiting:
        answers.has_written.clear()
        await answers.has_written.wait()


def disturb(rng: random.Random, mine: list[Any]) -> None:
    """Append, mostly; now and then do something that the fast path meets rarely."""
    partition = rng.choice(mine)
    chosen = rng.randrange(12)
    if chosen < 7:
        for each in rng.sample(mine, rng.choice((1, 1, 2))):
            records = batch([rng.randbytes(rng.choice((1, 100, 300)))], timestamp=EPOCH_MS)
            with suppress(KafkaError):  # the partition is offline
                each.append(records, -1, EPOCH_MS)
    elif chosen == 7:
        log = partition.log
        delete_records(log, rng.randint(log.log_start_offset, log.high_watermark))
        partition.watchers.fire()
    elif chosen == 8:
        partition.leader_throttle = None if partition.leader_throttle else Throttle(partition._wakeups.clock)
    elif chosen == 9:
        partition.watchers.fire()
    elif chosen == 10:
        transact(partition)
    elif not partition.offline:
        partition.offline, partition.leader_log = True, None
        partition.watchers.fire()
        partition._wakeups.clock.call_later(1, lambda: go_online(partition))


def transact(partition: Any) -> None:
    """Begin a transaction, or abort the one that is open. Each transaction has a producer of its own."""
    log = partition.log
    log.producers.requires_verification = False
    open_ids = [each.producer_id for each in log.producers if each.current_txn_first_offset >= 0]
    with suppress(KafkaError):
        if open_ids:
            partition.append(marker(open_ids[0], 0, commit=False), -1, EPOCH_MS, Origin.COORDINATOR)
        else:
            fields = {"producer_id": 5 + log.log_end_offset, "producer_epoch": 0, "base_sequence": 0}
            partition.append(batch([b"t"], timestamp=EPOCH_MS, transactional=True, **fields), -1, EPOCH_MS)


def go_online(partition: Any) -> None:
    partition.offline, partition.leader_log = False, partition.log


def run_on(node: SimNode, call: Any, *arguments: Any) -> None:
    node.host.lane.context.run(call, *arguments)


def leaders(harness: SimClusterHarness) -> list[Any]:
    found = [p for node in harness.cluster.brokers for p in node.partitions() if p.topic in (TOPIC, OTHER)]
    return sorted((p for p in found if p.is_leader and len(p.isr.members) == 2), key=lambda p: (p.topic, p.index))


def state(node: SimNode, mine: list[Any]) -> Any:
    """Return everything that a Fetch may change."""
    assert node.server is not None
    components = node.server.broker.components
    route = next(x for x in node.server.listeners if x.name != "CONTROLLER")._dispatcher.routes.get(ApiKey.FETCH)
    sessions = components.fetch_sessions
    return {
        "partitions": [
            (
                str(p), p.reads, p.failed_reads, p.bytes_out, p.replication_bytes_out, sorted(p.isr.members),
                p.log.high_watermark, p.log.log_end_offset, [repr(f) for f in p.followers.values()],
                len(p.watchers.followers), len(p.watchers.consumers),
            )
            for p in mine
        ],
        "sessions": [
            (
                each.id, each.epoch, each.last_used_ms, each.contact_ms, each.waiting is None,
                [(w.topic, w.index) for w in each.active],
                [
                    (w.topic, w.index, w.fetch_offset, w.max_bytes, w.current_leader_epoch, w.last_fetched_epoch,
                     w.sent_high_watermark, w.sent_log_start_offset, w.watched is None)
                    for w in each.partitions.values()
                ],
            )
            for each in sessions._sessions.values()
        ],
        "delays": (sessions.follower_delays.count, sessions.consumer_delays.count),
        "timers": sum(waits(entry) for entries in components.wheel._slots.values() for entry in entries),
        "answered": (route.requests, Counter(route.errors)),
    }  # fmt: skip


def waits(entry: Any) -> bool:
    """Return whether an entry of the wheel is of a request that waits. The fast path's stays when its request is done."""
    if not isinstance(entry, Deadline):
        return True
    return entry._operation is not None and entry._operation.is_waiting


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether the fast path has served each request that it was asked to."""
    found: list[bool] = []
    serve = RepeatedFetch.serve

    def counted(short: RepeatedFetch, connection: Connection, buf: Buffer, pos: int, end: int) -> int:
        served = serve(short, connection, buf, pos, end)
        found.append(served != NOT_SERVED)
        return served

    monkeypatch.setattr(RepeatedFetch, "serve", counted)
    return found


def test_random_requests_get_the_responses_of_the_handler_and_leave_the_same_state(
    monkeypatch: pytest.MonkeyPatch, served: list[bool]
) -> None:
    monkeypatch.setattr("ottla.broker.fetch.repeated.MISSES_MAX", 2)
    asked = 0
    for seed in range(SEEDS):
        with monkeypatch.context() as handler_only:
            handler_only.setattr(RepeatedFetches, "__call__", lambda *_: None)
            by_handler, expected = run(play(seed))
        assert len(served) == asked
        by_fast_path, found = run(play(seed))
        for number, pair in enumerate(zip(by_handler, by_fast_path, expected, found, strict=True)):
            assert pair[1] == pair[0], f"seed {seed}, response {number}"
            for what in pair[2]:
                assert pair[3][what] == pair[2][what], f"seed {seed}, {what} after frame {number}"
        asked = len(served)
    assert SEEDS * 20 < sum(served) < len(served)


def test_partitions_that_come_to_a_client_without_a_session_leave_it_on_the_fast_path(served: list[bool]) -> None:
    """librdkafka's first Fetch has the partitions whose offset it knows; thousands of Fetches with all partitions follow, and
    wait for records.
    """

    async def fetch(names: tuple[int, ...]) -> None:
        harness = SimClusterHarness({1: "broker,controller"}, {"offsets.topic.replication.factor": "1"})
        harness.cluster.start()
        assert await harness.cluster.all_serve(20)
        assert await harness.admin.spawn(harness.admin.create(TOPIC, PARTITIONS, {}, 1), "creates")
        found = [p for node in harness.cluster.brokers for p in node.partitions() if p.topic == TOPIC]
        mine = sorted(found, key=lambda p: p.index)
        node = harness.leader()
        client, answers = connect(node)
        for count in names:
            rows = [FetchPartition(p.index, p.leader_epoch, 0, -1, -1, 1 << 20) for p in mine[:count]]
            topics = [FetchTopic(topic_id=mine[0].topic_id, partitions=rows)]
            request = FetchRequest(
                max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, session_epoch=WITHOUT, topics=topics
            )  # it waits, and watches the partitions that have come
            frame = struct.pack(">hhih", ApiKey.FETCH, 17, 1, 3) + b"one\0" + encode(request, 17)
            run_on(node, deliver, client, struct.pack(">i", len(frame)) + frame, 1 << 20)
            await asyncio.wait_for(answered(client, answers), ANSWER_S_MAX)

    run(fetch((1, 2, PARTITIONS, 1, PARTITIONS)))
    assert served == [True] * 4
