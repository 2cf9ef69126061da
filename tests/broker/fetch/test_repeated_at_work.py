"""The fast path of Fetch in a running broker: a mistake of the broker under it, and the share of a client's queue that it feeds."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.fetch.pacing import PAUSE_MS_MIN, PAUSE_RECORDS_MIN
from ottla.broker.fetch.reader import FetchedBroker
from ottla.broker.fetch.repeated import DelayedRepeatedFetch, RepeatedFetches, share_of_leaders
from ottla.broker.fetch.session import FetchPartition as Position
from ottla.broker.fetch.session import FetchSession
from ottla.broker.metadata_cache import MetadataCache
from ottla.protocol.api import ApiKey
from ottla.protocol.compile import decoder, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.fetch.test_repeated import ANSWER_S_MAX, WITHOUT, answered, run_on
from tests.broker.produce.test_repeated import connect
from tests.broker.records import batch
from tests.controller.harness import DecisionHarness
from tests.fuzz.wire import deliver
from tests.sim.cluster import SimNode
from tests.sim.harness import TOPIC, SimClusterHarness
from tests.sim.loop import run
from tests.sim.world import EPOCH_MS

VERSION, MAX_WAIT_MS = 17, 300


class Client:
    """Sends the same Fetch without a session again and again, with another offset each time."""

    def __init__(self, harness: SimClusterHarness) -> None:
        self.node: SimNode = harness.leader()
        (self.partition,) = [p for p in self.node.partitions() if p.topic == TOPIC]
        self.connection, self.answers = connect(self.node)
        self._correlation_id = 0

    def send(self, offset: int) -> None:
        self._correlation_id += 1
        self.answers.sent.clear()
        row = FetchPartition(0, self.partition.leader_epoch, offset, -1, -1, 1 << 20)
        topics = [FetchTopic(topic_id=self.partition.topic_id, partitions=[row])]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=WITHOUT, topics=topics
        )
        frame = (
            struct.pack(">hhih", ApiKey.FETCH, VERSION, self._correlation_id, 3) + b"one\0" + encode(request, VERSION)
        )
        run_on(self.node, deliver, self.connection, struct.pack(">i", len(frame)) + frame, 1 << 20)

    async def response(self) -> FetchResponse:
        await asyncio.wait_for(answered(self.connection, self.answers), ANSWER_S_MAX)
        framed = b"".join(self.answers.sent)
        size, correlation_id = struct.unpack_from(">ii", framed)
        assert (size, correlation_id) == (len(framed) - 4, self._correlation_id)
        response, end = decoder(FetchResponse, VERSION)(framed, 9, len(framed))
        assert end == len(framed)
        return cast(FetchResponse, response)

    def append(self, *values: bytes) -> None:
        run_on(self.node, self.partition.append, batch(values, timestamp=EPOCH_MS), -1, EPOCH_MS)


async def one_partition() -> Client:
    harness = SimClusterHarness({1: "broker,controller"}, {"offsets.topic.replication.factor": "1"})
    harness.cluster.start()
    assert await harness.cluster.all_serve(20)
    assert await harness.admin.spawn(harness.admin.create(TOPIC, 1, {}, 1), "creates")
    await harness.until("it is there", lambda: any(p.topic == TOPIC for p in harness.leader().partitions()))
    return Client(harness)


@pytest.mark.parametrize("is_repeated", [True, False], ids=["on the fast path", "by the handler"])
def test_a_waiting_fetch_whose_log_makes_a_mistake_is_answered_and_the_next_one_is_served(
    is_repeated: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not is_repeated:
        monkeypatch.setattr(RepeatedFetches, "__call__", lambda *_: None)

    def mistake(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake")

    async def main() -> None:
        client = await one_partition()
        client.send(0)
        assert not (await client.response()).error_code
        client.send(0)
        (watcher,) = client.partition.watchers.consumers
        assert isinstance(watcher, Position) and watcher.session is not None
        session = watcher.session
        assert isinstance(session.waiting, DelayedRepeatedFetch) == is_repeated
        with monkeypatch.context() as broken:
            broken.setattr(type(client.partition.log), "read", mistake)
            client.append(b"x")
            response = await client.response()
        assert (response.error_code, response.session_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
        assert session.waiting is None
        assert "a mistake" in caplog.text
        client.send(0)
        (topic,) = (await client.response()).responses
        assert [bool(row.records) for row in topic.partitions] == [True]

    run(main())


def test_a_pause_of_a_client_on_the_fast_path_is_seen() -> None:
    async def main() -> None:
        client = await one_partition()
        client.connection.client_software_name = "librdkafka"
        client.append(*[b""] * PAUSE_RECORDS_MIN)
        for _ in range(2):
            client.send(0)
            assert (await client.response()).responses
        await asyncio.sleep(PAUSE_MS_MIN / 1_000 + 0.05)
        client.send(PAUSE_RECORDS_MIN)
        await client.response()
        assert client.node.server is not None
        pacing = client.node.server.broker.components.fetch_sessions.pacing
        assert pacing.pauses == 1

    run(main())


@pytest.mark.parametrize(
    ("read", "share"),
    [(["mine"], 1.0), (["others"], 0.0), (["mine", "others"], 0.25), (["mine", "wide"], 0.5), (["gone"], 0.0)],
)
def test_a_broker_feeds_the_queue_by_its_part_of_the_leaders_of_what_the_client_reads(
    read: list[str], share: float
) -> None:
    """The client is taken to read all partitions of a topic from their leaders, whichever of them it fetches here."""
    controller = DecisionHarness(brokers=3)
    controller.topic("mine", "1 2")
    controller.topic("others", "2 1", partitions=3)
    controller.topic("wide", "3 1")
    metadata = MetadataCache(1, "cluster")
    metadata.image = controller.image
    broker = cast(FetchedBroker, SimpleNamespace(metadata=metadata, replicas=SimpleNamespace(node_id=1)))
    positions = [Position(name, name.encode(), index, 0, 1) for name in read for index in range(2)]
    asked: Any = {(each.topic_id, each.index): each for each in positions}
    assert share_of_leaders(broker, FetchSession(asked, replica_id=-1, uses_topic_ids=True)) == share
