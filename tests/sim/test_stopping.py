"""Stopping a node and deleting topics on a simulated cluster: the work on workers, its order, and its size."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable

import pytest

from ottla.node.load_and_close import LOGS_PER_CALL
from ottla.storage.directories.logs import Logs
from ottla.storage.log.log import Log
from tests.sim.clients.admin import Admin
from tests.sim.cluster import BROKER_PORT, SimCluster
from tests.sim.history import History
from tests.sim.loop import run

TOGETHER = dict.fromkeys((1, 2, 3), "broker,controller")
PARTITIONS = 40


async def started(topic: str) -> tuple[SimCluster, Admin]:
    """Three nodes, and one topic whose partitions all have files, as after a first record."""
    cluster = SimCluster(
        random.Random(1), TOGETHER, {"log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "500"}
    )
    bootstrap = [(node.host.name, BROKER_PORT) for node in cluster.brokers]
    admin = Admin("admin", cluster.hub, random.Random(2), bootstrap, History(asyncio.get_running_loop().time))
    cluster.start()
    assert await cluster.all_serve(10)
    assert await admin.spawn(admin.create(topic, PARTITIONS, {}, 3), "creates")
    for node in cluster.brokers:
        assert node.server is not None and node.server.logs is not None
        for _ in range(200):
            if sum(log.topic == topic for log in node.server.logs.open) == PARTITIONS:
                break
            await asyncio.sleep(0.05)
        for log in node.server.logs.open:
            if log.topic == topic:
                log.roll()
                log.room.make_room(100, 0, 0, 0, 0, log.log_end_offset)
    return cluster, admin


def test_a_stopping_controller_hands_over_before_it_closes_its_logs_and_closes_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[tuple[int, bool]] = []

    async def main() -> None:
        cluster, _ = await started("orders")
        active = cluster.active_controller
        assert active is not None and active.server is not None
        server = active.server
        whole = Logs.close_some

        def close_some(logs: Logs, some: Iterable[Log]) -> None:
            some = list(some)
            closed.append((len(some), server.metadata.raft.is_leader))
            whole(logs, some)

        monkeypatch.setattr(Logs, "close_some", close_some)
        await active.stop()
        assert active.host.disk.exists("/data/.kafka_cleanshutdown")

    run(main())
    assert sum(count for count, _ in closed) >= PARTITIONS
    assert max(count for count, _ in closed) <= LOGS_PER_CALL
    assert not any(leads for _, leads in closed), "the quorum is handed over first"


def test_a_deleted_topic_leaves_each_node_with_one_sync_of_the_log_directory_and_then_the_disk() -> None:
    async def main() -> None:
        cluster, admin = await started("orders")
        node = cluster.brokers[0]
        disk, counts = node.host.disk, Counter[str]()

        def count(kind: str, path: str) -> None:
            if kind == "sync directory" or "/orders-" in path:
                counts[f"{kind} {path}" if kind == "sync directory" else kind] += 1

        disk.on_call = count
        assert await admin.spawn(admin.delete("orders"), "deletes")
        for _ in range(300):
            if not any("orders-" in name for name in disk.list_dir("/data")):
                break
            await asyncio.sleep(0.1)
        assert (counts["rename"], counts["remove tree"]) == (PARTITIONS, PARTITIONS)
        # Checkpoints are written meanwhile, each with its own sync; one sync for each partition would make forty.
        assert counts["sync directory /data"] < PARTITIONS / 2

    run(main())
