"""Requests of one connection take effect in the order in which they were sent, whatever each of them waits for (invariant 53)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.node.node import Node
from ottla.protocol.api import APIS, ApiKey, response_header_version
from ottla.protocol.compile import decoder
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records import builder
from ottla.protocol.records.builder import build_batch
from ottla.server.worker_process import WorkerProcess
from ottla.server.workers import Workers
from ottla.server.world import RealWorld
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log
from tests.broker.counted_node import CountedNode
from tests.broker.wire import Wire
from tests.effort import examples
from tests.ports import free_ports
from tests.server.tiny_node import RawClient, request
from tests.workers import OneQueue

T = TypeVar("T")
MIB = 1 << 20
LATEST = -1
PRODUCE_VERSION, LIST_OFFSETS_VERSION = 9, 6


def produce(name: str, sizes: dict[int, int]) -> ProduceRequest:
    """Return a request with one batch of these sizes for each partition. No codec makes the batches much smaller."""
    now_ms = int(time.time() * 1000)
    data = [
        PartitionProduceData(index=index, records=build_batch([(b"k", noise(size), now_ms)]))
        for index, size in sizes.items()
    ]
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=name, partition_data=data)])


def noise(size: int) -> bytes:
    return (NOISE * (size // len(NOISE) + 1))[:size]


NOISE = bytes(range(256)) * 4


def offsets(answer: Any) -> dict[int, int]:
    found = answer.responses[0].partition_responses
    assert not any(each.error_code for each in found), found
    return {each.index: each.base_offset for each in found}


# -- Two waits of one request, over the wire


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedNode]:
    started = CountedNode(tmp_path / "data", monkeypatch)
    yield started
    started.stop()


class Gate:
    """Stops the first call for each of some names, on its worker, until the test lets it through."""

    def __init__(self, *names: str) -> None:
        self.arrived = threading.Semaphore(0)
        self._through = threading.Semaphore(0)
        self._names = set(names)

    def before(self, function: Callable[..., T], name_of: Callable[..., str]) -> Callable[..., T]:
        def gated(*args: Any) -> T:
            name = name_of(*args)
            if name in self._names:
                self._names.remove(name)
                self.arrived.release()
                assert self._through.acquire(timeout=10)
            return function(*args)

        return gated

    def wait(self) -> None:
        assert self.arrived.acquire(timeout=10), "nothing was done on a worker"

    def open(self) -> None:
        self._through.release()


def create(wire: Wire, name: str, partitions: int, **configs: str) -> None:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
    assert wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    deadline = time.monotonic() + 10
    while any(p.error_code for p in wire.request(asked, 12).topics[0].partitions):
        assert time.monotonic() < deadline


def look_around(wire: Wire) -> None:
    """Make a request. During it the node's loop polls all sockets twice, so that earlier requests have been served if they may
    be.
    """
    for _ in range(2):
        wire.request(MetadataRequest(topics=[]), 12)


def test_a_produce_that_is_compressed_twice_keeps_its_place_before_the_next(
    node: CountedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's configuration changes while a worker compresses the batch, so that it is compressed again."""
    with node.wire() as wire, node.wire() as admin:
        create(wire, "t", 1, compression_type="gzip")
        offsets(wire.request(produce("t", {0: 1}), PRODUCE_VERSION))
        times = iter(("first", "second"))
        gate = Gate("first", "second")
        monkeypatch.setattr(builder, "compress", gate.before(builder.compress, lambda *_: next(times, "")))
        log = log_of(node.server, "t", 0)
        sent = [wire.send(produce("t", {0: size}), PRODUCE_VERSION) for size in (900_000, 1)]
        gate.wait()
        before = log.rules
        change = AlterableConfig(name="retention.ms", config_operation=0, value="86400000")
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        admin.request(IncrementalAlterConfigsRequest(resources=[resource]))
        deadline = time.monotonic() + 10
        while log.rules is before:
            assert time.monotonic() < deadline
        gate.open()
        gate.wait()  # the second compression
        look_around(admin)
        gate.open()
        assert [offsets(wire.receive(*each)) for each in sent] == [{0: 1}, {0: 2}]


def test_a_produce_that_waits_for_two_rolls_keeps_its_place_before_the_next(
    node: CountedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a worker prepares the roll of one partition, another connection fills the segment of the partition that had
    room.
    """
    with node.wire() as wire, node.wire() as other:
        create(wire, "t", 3, segment_bytes=str(MIB))
        offsets(wire.request(produce("t", {0: 600_000, 1: 300_000, 2: 600_000}), PRODUCE_VERSION))
        gate = Gate("t-1", "t-2")
        for method in ("sync_dir", "sync_file"):
            waited = gate.before(getattr(OsFiles, method), lambda _, path: path.rpartition("/data/")[2].split("/")[0])
            monkeypatch.setattr(OsFiles, method, waited)
        sent = [
            wire.send(produce("t", sizes), PRODUCE_VERSION)
            for sizes in ({0: 600_000, 1: 600_000, 2: 600_000}, {0: 1, 1: 1, 2: 1})
        ]
        gate.wait()  # the roll of partition 2
        assert offsets(other.request(produce("t", {1: 400_000}), PRODUCE_VERSION)) == {1: 1}
        gate.open()
        gate.wait()  # the roll of partition 1, which has no room by now
        look_around(other)
        gate.open()
        assert [offsets(wire.receive(*each)) for each in sent] == [{0: 1, 1: 2, 2: 1}, {0: 2, 1: 3, 2: 2}]


# -- Random requests, rolls and changes of configuration

PARTITIONS = 2
SEGMENT_BYTES = 300_000
#: Batches of the last size are compressed on a worker; a few of the others together cause a roll.
SIZES = (1, 100_000, 180_000)


class ScriptedWorkers(OneQueue):
    """Runs a worker's call on the loop, after the turns and changes that the test has drawn for it."""

    def __init__(self, workers: Workers, script: deque[list[Callable[[], object]]]) -> None:
        self._workers = workers
        self._script = script

    async def run(self, function: Callable[..., T], *args: object) -> T:
        for change in self._script.popleft() if self._script else ():
            await asyncio.sleep(0)
            change()
        return function(*args)

    def process(self) -> WorkerProcess:
        return self._workers.process()

    def apart(self, name: str) -> ScriptedWorkers:
        return ScriptedWorkers(self._workers.apart(name), deque())


class ScriptedNode:
    """A node on the test's own event loop. Its workers do what the test draws."""

    def __init__(self, directory: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.script: deque[list[Callable[[], object]]] = deque()
        self.port, controller = free_ports(2)
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory),
            "offsets.topic.replication.factor": "1",
            "num.partitions": str(PARTITIONS),
        }
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self._real = RealWorld(self.loop)
        workers = ScriptedWorkers(self._real.workers, self.script)
        self.node = Node(replace(self._real.world, workers=workers), self._properties)
        await self.node.start()
        client = await self.client()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        while True:
            client.send(request(ApiKey.METADATA, 9, asked))
            if not (await answer(client, ApiKey.METADATA, 9)).topics[0].error_code:
                break
        client.close()

    async def client(self) -> RawClient:
        return RawClient(*await asyncio.open_connection("127.0.0.1", self.port))

    def log(self, partition: int) -> Log:
        return log_of(self.node, "t", partition)

    def stop(self) -> None:
        self.script.clear()

        async def end() -> None:
            await self.node.stop()
            await self._real.close()

        self.loop.run_until_complete(end())
        self.loop.close()


def log_of(node: Node, topic: str, partition: int) -> Log:
    assert node.broker is not None
    log = node.broker.replicas.by_name[topic][partition].log
    assert log is not None
    return log


async def answer(client: RawClient, api_key: int, version: int) -> Any:
    frame = bytearray(await client.frame())
    pos = 5 if response_header_version(api_key, version) == 1 else 4
    return decoder(APIS[ApiKey(api_key)].response, version)(frame, pos, len(frame))[0]


def latest(partition: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])


partitions = st.integers(0, PARTITIONS - 1)
produced = st.dictionaries(partitions, st.sampled_from(SIZES), min_size=1)
requests = st.lists(st.one_of(produced, produced, partitions), min_size=2, max_size=5)
#: The changes: "fill" uses up the room of an active segment, as another connection may; "codec" and "rules" change the
#: configuration.
changes = st.lists(st.tuples(st.sampled_from(["fill", "codec", "rules"]), partitions), min_size=1, max_size=3)


def change(node: ScriptedNode, kind: str, partition: int) -> None:
    log = node.log(partition)
    if kind == "fill":
        now_ms = int(time.time() * 1000)
        log.append(memoryview(build_batch([(b"k", noise(SIZES[1]), now_ms)])), leader_epoch=0, now_ms=now_ms)
        return
    config = log.config
    codec = "gzip" if config.compression_type == "producer" else "producer"
    log.update_config(
        replace(config, compression_type=codec)
        if kind == "codec"
        else replace(config, max_message_bytes=config.max_message_bytes + 1)
    )


async def take_effect_in_order(node: ScriptedNode, sent: list[Any]) -> None:
    client = await node.client()
    for each in sent:
        is_produce = isinstance(each, dict)
        message = produce("t", each) if is_produce else latest(each)
        api_key, version = (
            (ApiKey.PRODUCE, PRODUCE_VERSION) if is_produce else (ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)
        )
        client.send(request(api_key, version, message))
    seen = dict.fromkeys(range(PARTITIONS), -1)
    for each in sent:
        if isinstance(each, dict):
            got = offsets(await answer(client, ApiKey.PRODUCE, PRODUCE_VERSION))
            assert got.keys() == each.keys()
            for partition, offset in got.items():
                assert offset > seen[partition], "a later request was appended first"
                seen[partition] = offset
        else:
            found = (await answer(client, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)).topics[0].partitions[0]
            assert found.error_code == 0 and found.offset > seen[each], "the answer is older than an earlier request"
            seen[each] = found.offset - 1
    client.close()


def test_random_requests_of_a_connection_take_effect_in_order(tmp_path: Path) -> None:
    node = ScriptedNode(tmp_path)
    node.loop.run_until_complete(take_effect_in_order(node, [dict.fromkeys(range(PARTITIONS), 1)]))  # creates the files
    for partition in range(PARTITIONS):
        log = node.log(partition)
        log.update_config(replace(log.config, segment_bytes=SEGMENT_BYTES, compression_type="gzip"))

    @settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
    @given(sent=requests, drawn=st.lists(changes, min_size=1, max_size=6))
    def holds(sent: list[Any], drawn: list[list[tuple[str, int]]]) -> None:
        node.script.clear()
        node.script.extend([partial(change, node, kind, partition) for kind, partition in each] for each in drawn)
        node.loop.run_until_complete(take_effect_in_order(node, sent))

    try:
        holds()
    finally:
        node.stop()
