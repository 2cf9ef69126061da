"""AlterReplicaLogDirs at simulated nodes with two log directories: leaders, followers, the controller, and the events that end
a move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla.broker.replication import log_moves
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from tests.broker.records import batch
from tests.sim.cluster import SimNode
from tests.sim.loop import run
from tests.sim.test_refusals import TOPIC, Cluster
from tests.storage.chores import to_rename

TWO = {"log.dirs": "/data/a,/data/b", "default.replication.factor": "1", "min.insync.replicas": "1"}
LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_moves, "PIECE_BYTES", 700)
    monkeypatch.setattr(log_moves, "SLICE_BYTES", 2000)


def logs_of(node: SimNode) -> Logs:
    assert node.server is not None and node.server.logs is not None
    return node.server.logs


def log_of(node: SimNode, index: int = 0) -> Log:
    found = logs_of(node).open.by_name(TOPIC, index)
    assert found is not None
    return found


def directory_of(node: SimNode, index: int = 0) -> str:
    return logs_of(node).open.directory_of(log_of(node, index)).path


def other_than(path: str) -> str:
    return "/data/a" if path == "/data/b" else "/data/b"


def registration(node: SimNode, index: int = 0) -> PartitionRegistration:
    assert node.server is not None and node.server.broker is not None
    topic = node.server.broker.replicas.image.topics.by_name(TOPIC)
    assert topic is not None
    return topic.partitions[index]


def is_registered_there(node: SimNode, path: str) -> bool:
    directory = next(directory for directory in logs_of(node).directories if directory.path == path)
    return registration(node).directory(node.number) == directory.directory_id


def fill(node: SimNode, records: int = 60) -> None:
    partition = next(p for p in node.partitions() if p.topic == TOPIC and p.index == 0)
    for i in range(records):
        partition.append(batch([bytes([i]) * 100]), 1, node.host.clock.wall_ms())


def limit(node: SimNode, rate: int) -> None:
    assert node.server is not None and node.server.broker is not None
    node.server.broker.configs.node.set_dynamic({LIMIT: str(rate)}, {})


async def move(cluster: Cluster, number: int, path: str, topic: str = TOPIC, index: int = 0) -> int:
    rows = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)])
    return int((await cluster.ask(number, request)).results[0].partitions[0].error_code)


async def described(cluster: Cluster, number: int) -> dict[tuple[str, bool], int]:
    """(directory, is future) -> lag of the topic's first partition."""
    answer = await cluster.ask(number, DescribeLogDirsRequest(topics=None))
    return {
        (result.log_dir, row.is_future_key): row.offset_lag
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
        if topic.name == TOPIC and row.partition_index == 0
    }


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    for _ in range(int(seconds * 20)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the condition never held")


async def one_node() -> tuple[Cluster, SimNode]:
    cluster = Cluster({1: "broker,controller"}, TWO)
    await cluster.begin(1)
    node = cluster.sim.by_number[1]
    fill(node)
    return cluster, node


def test_a_moving_replica_is_described_with_its_lag_and_the_move_goes_on_after_a_kill() -> None:
    async def main() -> None:
        cluster, node = await one_node()
        source = directory_of(node)
        target = other_than(source)
        limit(node, 500)
        assert await move(cluster, 1, target) == ErrorCode.NONE
        await asyncio.sleep(4)
        rows = await described(cluster, 1)
        assert rows.keys() == {(source, False), (target, True)}
        assert 0 < rows[target, True] < 60
        assert await move(cluster, 1, target) == ErrorCode.NONE, "again"
        await node.crash(power=False)
        node.boot()
        assert await cluster.sim.all_serve(20)
        fill(node, 5)
        await until(lambda: directory_of(node) == target)
        assert is_registered_there(node, target), "the controller knew before the replica was there"
        assert log_of(node).log_end_offset == 65
        assert (await described(cluster, 1)).keys() == {(target, False)}
        await node.stop()
        node.boot()
        assert await cluster.sim.all_serve(20)
        assert directory_of(node) == target and log_of(node).log_end_offset == 65

    run(main())


def test_a_request_for_the_current_directory_ends_the_move_and_a_deletion_takes_the_copy_along() -> None:
    async def main() -> None:
        cluster, node = await one_node()
        source = directory_of(node)
        limit(node, 100)
        assert await move(cluster, 1, other_than(source)) == ErrorCode.NONE
        await asyncio.sleep(3)
        assert await move(cluster, 1, source) == ErrorCode.NONE
        assert (await described(cluster, 1)).keys() == {(source, False)}
        assert await move(cluster, 1, other_than(source)) == ErrorCode.NONE
        await asyncio.sleep(3)
        assert len(await described(cluster, 1)) == 2
        assert await cluster.admin.spawn(cluster.admin.delete(TOPIC), "deletes")
        await until(lambda: logs_of(node).open.by_name(TOPIC, 0) is None)
        await until(lambda: not to_rename(logs_of(node)))
        assert not logs_of(node).open.futures()
        left = [name for path in ("/data/a", "/data/b") for name in node.host.disk.list_dir(path)]
        assert not [name for name in left if name.startswith(TOPIC) and not name.endswith("-delete")]

    run(main())


def test_a_follower_and_a_leader_move_and_stay_in_sync() -> None:
    async def main() -> None:
        cluster = Cluster({1: "broker,controller", 2: "broker"}, TWO)
        await cluster.begin(2)
        leader = cluster.sim.by_number[registration(cluster.sim.by_number[1]).leader]
        fill(leader)
        for node in cluster.sim.nodes:
            target = other_than(directory_of(node))
            assert await move(cluster, node.number, target) == ErrorCode.NONE
            for _ in range(10):
                fill(leader, 3)
                await asyncio.sleep(0.02)
            await until(lambda node=node, target=target: directory_of(node) == target)
            assert is_registered_there(node, target)
        end = log_of(leader).log_end_offset
        await until(lambda: all(log_of(node).log_end_offset == end for node in cluster.sim.nodes))
        await until(lambda: log_of(leader).high_watermark == end)
        assert registration(leader).leader == leader.number
        assert set(registration(leader).isr) == {1, 2}

    run(main())


def test_a_partition_that_is_not_here_yet_is_created_in_the_directory_that_was_named() -> None:
    async def main() -> None:
        cluster, node = await one_node()
        for index, path in enumerate(("/data/b", "/data/b", "/data/a")):
            assert await move(cluster, 1, path, "later", index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await cluster.admin.spawn(cluster.admin.create("later", 3, {}, 1), "creates")
        await until(lambda: all(logs_of(node).open.by_name("later", index) for index in range(3)))
        logs = [logs_of(node).open.by_name("later", index) for index in range(3)]
        assert [logs_of(node).open.directory_of(log).path for log in logs if log] == ["/data/b", "/data/b", "/data/a"]

    run(main())


def test_a_replica_of_another_broker_long_names_and_cordoned_directories_are_refused() -> None:
    async def main() -> None:
        cluster = Cluster({1: "broker,controller", 2: "broker"}, TWO | {"cordoned.log.dirs": "/data/b"})
        await cluster.begin(1)
        led = registration(cluster.sim.by_number[1]).leader
        assert await move(cluster, 3 - led, "/data/a") == ErrorCode.REPLICA_NOT_AVAILABLE
        assert await move(cluster, led, "/data/a", "t" * 230) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await move(cluster, led, "/data/b") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await move(cluster, led, "/data/c") == ErrorCode.LOG_DIR_NOT_FOUND

    run(main())


def test_a_move_that_is_ended_and_begins_again_before_the_controller_knows_comes_to_its_end() -> None:
    """The controller has registered the target for the first of the two moves, and the reports of both ends wait for another
    report.
    """

    async def main() -> None:
        cluster = Cluster({1: "broker,controller", 2: "broker"}, TWO)
        await cluster.begin(2)
        node = cluster.sim.by_number[2]
        fill(cluster.sim.by_number[registration(node).leader])
        source = directory_of(node)
        target = other_than(source)
        assert node.server is not None and node.server.broker is not None
        moves = node.server.broker.replicas.moves
        # the metadata has arrived, but the turn that replaces the log has not run yet
        moves._is_accepted = lambda move: False
        assert await move(cluster, 2, target) == ErrorCode.NONE
        await until(lambda: is_registered_there(node, target))
        for link in (("n1", "n2"), ("n2", "n1")):
            cluster.sim.hub.cut(*link)
        reports = node.server.broker.replicas.assignments
        assert reports is not None
        node.host.lane.context.run(reports.assign, bytes(16), 7, bytes(16))  # is sent first, and not answered
        await asyncio.sleep(0.1)
        del moves._is_accepted
        assert await move(cluster, 2, source) == ErrorCode.NONE
        assert await move(cluster, 2, target) == ErrorCode.NONE
        await until(lambda: any(each.asked for each in moves._moves.values()), 2)
        for link in (("n1", "n2"), ("n2", "n1")):
            cluster.sim.hub.mend(*link)
        await until(lambda: directory_of(node) == target)
        assert is_registered_there(node, target)

    run(main())


def test_a_source_that_fails_after_the_controller_agreed_is_given_back_so_that_the_failure_is_noticed() -> None:
    async def main() -> None:
        cluster = Cluster({1: "broker,controller", 2: "broker"}, TWO)
        await cluster.begin(2)
        node = cluster.sim.by_number[2]
        leader = cluster.sim.by_number[registration(node).leader]
        fill(leader)
        source = directory_of(node)
        target = other_than(source)
        assert node.server is not None and node.server.broker is not None
        moves = node.server.broker.replicas.moves
        # the metadata has arrived, but the turn that replaces the log has not run yet
        moves._is_accepted = lambda move: False
        assert await move(cluster, 2, target) == ErrorCode.NONE
        await until(lambda: is_registered_there(node, target))
        logs = logs_of(node)
        failed = logs.open.directory_of(log_of(node))
        logs.open.directory_failed(failed, StorageFailure(failed.path, "simulated"))
        other = cluster.sim.by_number[1]
        await until(lambda: set(registration(other).isr) == {1})
        assert registration(other).directory(2) == failed.directory_id

    run(main())
