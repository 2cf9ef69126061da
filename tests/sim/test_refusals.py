"""Errors that need a cluster with a failure, at simulated nodes: failed directories, and leaders that have ended or that a
client cannot reach.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.network.client import Channel
from ottla.storage.errors import StorageFailure
from tests.broker.records import batch
from tests.sim.clients.admin import Admin
from tests.sim.cluster import BROKER_PORT, SimCluster
from tests.sim.history import History
from tests.sim.loop import run

INNER_PORT = 9192
TOPIC = "orders"


class Cluster:
    def __init__(self, roles: dict[int, str], settings: dict[str, str]) -> None:
        self.sim = SimCluster(random.Random(1), roles, settings)
        bootstrap = [(node.host.name, BROKER_PORT) for node in self.sim.brokers]
        loop = asyncio.get_running_loop()
        self.admin = Admin("admin", self.sim.hub, random.Random(2), bootstrap, History(loop.time))

    async def begin(self, replication_factor: int) -> None:
        self.sim.start()
        assert await self.sim.all_serve(20)
        assert await self.admin.spawn(self.admin.create(TOPIC, 3, {}, replication_factor), "creates")
        await asyncio.sleep(1)

    async def ask(self, number: int, request: Any, version: int | None = None, port: int = BROKER_PORT) -> Any:
        channel = Channel(self.admin.world, self.sim.by_number[number].host.name, port, "asks")
        answer = await channel.request(request, version=version)
        channel.close()
        return answer


def test_a_directory_that_has_failed_is_named_so_and_nothing_is_moved_or_deleted_there() -> None:
    async def main() -> None:
        settings = {"log.dirs": "/data/a,/data/b", "default.replication.factor": "1", "min.insync.replicas": "1"}
        cluster = Cluster({1: "broker,controller"}, settings)
        await cluster.begin(1)
        node = cluster.sim.by_number[1]
        logs = node.server.logs
        partitions = [p for p in node.partitions() if p.topic == TOPIC]
        assert logs is not None
        for partition in partitions:
            partition.append(batch([b"x"]), 1, node.host.clock.wall_ms())
        failed = logs.open.directory_of(partitions[0].log)
        logs.open.directory_failed(failed, StorageFailure(failed.path, "simulated"))
        described = await cluster.ask(1, DescribeLogDirsRequest(topics=None))
        codes = {result.log_dir: result.error_code for result in described.results}
        assert codes == {
            directory.path: ErrorCode.KAFKA_STORAGE_ERROR if directory is failed else ErrorCode.NONE
            for directory in logs.directories
        }
        moved = AlterReplicaLogDirTopic(name=TOPIC, partitions=[p.index for p in partitions])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=failed.path, topics=[moved])])
        rows = (await cluster.ask(1, request)).results[0].partitions
        assert {row.error_code for row in rows} == {ErrorCode.KAFKA_STORAGE_ERROR}
        there = [p for p in partitions if p.log is not None and logs.open.directory_of(p.log) is not failed]
        (other,) = [directory for directory in logs.directories if directory is not failed]
        assert there, "the logs are spread over both"
        moved.partitions = [there[0].index]
        request.dirs[0].path = other.path
        assert (await cluster.ask(1, request)).results[0].partitions[0].error_code == ErrorCode.NONE
        request.dirs[0].path = "/data/c"
        assert (await cluster.ask(1, request)).results[0].partitions[0].error_code == ErrorCode.LOG_DIR_NOT_FOUND
        cuts = [DeleteRecordsPartition(partition_index=partitions[0].index, offset=1)]
        cut = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=cuts)], timeout_ms=1_000)
        result = (await cluster.ask(1, cut)).topics[0].partitions[0]
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    run(main())


def test_one_partition_that_the_disk_cannot_read_is_one_error_of_a_search_by_time() -> None:
    async def main() -> None:
        settings = {"default.replication.factor": "1", "min.insync.replicas": "1"}
        cluster = Cluster({1: "broker,controller"}, settings)
        await cluster.begin(1)
        node = cluster.sim.by_number[1]
        now_ms = node.host.clock.wall_ms()
        for partition in node.partitions():
            if partition.topic == TOPIC:
                partition.append(batch([b"x"], timestamp=now_ms), 1, now_ms)
        await node.stop()
        node.boot()
        assert await cluster.sim.all_serve(20)
        paths = [path for path in node.host.disk.tree() if f"/{TOPIC}-1/" in path and path.endswith(".log")]
        inode = node.host.disk._must(paths[0])
        inode.unreadable.append((0, len(inode.data)))
        asked = [ListOffsetsPartition(partition_index=index, timestamp=now_ms) for index in range(3)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
        rows = (await cluster.ask(1, request)).topics[0].partitions
        assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        assert [row.offset for row in rows] == [0, -1, 0]

    run(main())


def partition_codes(answer: Any) -> dict[int, int]:
    return {p.partition_index: p.error_code for topic in answer.topics for p in topic.partitions}


def test_a_leader_that_is_gone_and_a_replica_that_is_are_said_as_each_version_knows_it() -> None:
    async def main() -> None:
        cluster = Cluster({1: "broker", 2: "broker", 3: "controller"}, {"offsets.topic.replication.factor": "1"})
        await cluster.begin(1)
        assert await cluster.admin.spawn(cluster.admin.create("copied", 1, {}, 2), "creates")
        led = {p.index for p in cluster.sim.by_number[2].partitions() if p.topic == TOPIC and p.is_leader}
        assert 0 < len(led) < 3
        await cluster.sim.by_number[2].crash(power=False)
        await asyncio.sleep(15)
        expected = {index: ErrorCode.LEADER_NOT_AVAILABLE if index in led else ErrorCode.NONE for index in range(3)}
        described = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
        assert partition_codes(await cluster.ask(1, described)) == expected
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        assert partition_codes(await cluster.ask(1, metadata, 12)) == expected
        copied = MetadataRequest(topics=[MetadataRequestTopic(name="copied")])
        assert partition_codes(await cluster.ask(1, copied, 0)) == {0: ErrorCode.REPLICA_NOT_AVAILABLE}
        assert partition_codes(await cluster.ask(1, copied, 1)) == {0: ErrorCode.NONE}

    run(main())


def test_a_leader_without_the_clients_listener_is_said_as_each_version_knows_it() -> None:
    async def main() -> None:
        names = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INNER:PLAINTEXT"
        cluster = Cluster(
            {1: "broker", 2: "broker", 3: "controller"},
            {"listener.security.protocol.map": names, "inter.broker.listener.name": "PLAINTEXT"},
        )
        one = cluster.sim.by_number[1]
        both = f"PLAINTEXT://n1:{BROKER_PORT},INNER://n1:{INNER_PORT}"
        one.properties |= {"listeners": both, "advertised.listeners": both}
        await cluster.begin(1)
        led = {p.index for p in cluster.sim.by_number[2].partitions() if p.topic == TOPIC and p.is_leader}
        assert 0 < len(led) < 3
        described = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        for request, version in ((described, 0), (metadata, 6)):
            codes = partition_codes(await cluster.ask(1, request, version, port=INNER_PORT))
            assert {index for index, code in codes.items() if code == ErrorCode.LISTENER_NOT_FOUND} == led
        older = partition_codes(await cluster.ask(1, metadata, 5, port=INNER_PORT))
        assert {older[index] for index in led} == {ErrorCode.LEADER_NOT_AVAILABLE}

    run(main())


def test_metadata_of_all_topics_that_cannot_be_encoded_is_an_error_of_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        cluster = Cluster({1: "broker,controller"}, {"default.replication.factor": "1", "min.insync.replicas": "1"})
        await cluster.begin(1)

        def broken(*args: object) -> bytes:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr("ottla.broker.api.metadata.encode_topic", broken)
            assert (await cluster.ask(1, MetadataRequest(topics=None), 13)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        answer = await cluster.ask(1, MetadataRequest(topics=None), 13)
        assert (answer.error_code, [topic.name for topic in answer.topics]) == (ErrorCode.NONE, [TOPIC])

    run(main())
