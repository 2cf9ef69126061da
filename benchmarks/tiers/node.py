"""Nodes whose remote storage is versitygw, and the writes, waits and questions of the benchmarks."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from benchmarks.tiers.gate import Gate
from benchmarks.turns import run_load
from ottla.testing import Cluster
from tools import versitygw

if TYPE_CHECKING:
    from confluent_kafka.admin import PartitionMetadata

BUCKET = "tiers"
VALUE_BYTES = 1_000
WAIT_SECONDS_MAX = 600
#: Of one producer: a load that takes more than five minutes has failed, and on a busy machine 10 GB do.
LOAD_RECORDS = 1_000_000
#: All segments but the active one leave the disk as soon as they are copied.
TIERED = {"remote.storage.enable": "true", "local.retention.ms": "1"}
#: With Kafka's 1 GiB a benchmark of 2 GB would have only one such segment.
SEGMENTS = {"segment.bytes": str(64 << 20), "retention.ms": "-1"}
#: The rounds of copies and of retention come each second, not after 30 s and 5 min, so that a figure has no long waits in it.
OFTEN = {"remote.log.manager.task.interval.ms": "1000", "log.retention.check.interval.ms": "1000"}


class TieredNodes:
    """A cluster with its store."""

    def __init__(self, cluster: Cluster, gate: Gate | None, admin_ports: Mapping[int, int]) -> None:
        self.cluster, self._gate, self._admin_ports = cluster, gate, admin_ports

    @property
    def gate(self) -> Gate:
        assert self._gate is not None
        return self._gate

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pids(self) -> list[int]:
        return [self.cluster.pid(node_id) for node_id in self.cluster.nodes]

    def states(self, topic: str) -> list[dict[str, Any]]:
        """Return the page `/tiers` of all nodes: one row for each partition of the topic."""
        found = list[dict[str, Any]]()
        for port in self._admin_ports.values():
            with urlopen(f"http://127.0.0.1:{port}/tiers?topic={topic}", timeout=30) as page:
                found += map(json.loads, page.read().splitlines())
        return found

    def create(self, topic: str, partitions: int, configs: Mapping[str, str], replication: int = 1) -> None:
        options = {"topic": topic, "partitions": partitions, "configs": dict(configs), "replication": replication}
        run_load("create", options | {"bootstrap": self.bootstrap})

    def produce(self, topic: str, records: int) -> None:
        for first in range(0, records, LOAD_RECORDS):
            count = min(LOAD_RECORDS, records - first)
            options = {"bootstrap": self.bootstrap, "topic": topic, "size": VALUE_BYTES, "count": count}
            assert not run_load("produce", options)["errors"]

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # one that is collected takes its answers with it
        for future in admin.incremental_alter_configs([wanted]).values():
            future.result(30)

    def partition(self, topic: str) -> PartitionMetadata:
        """Return the replicas, and those in sync, of a topic's first partition."""
        from confluent_kafka.admin import AdminClient

        found: PartitionMetadata = (
            AdminClient({"bootstrap.servers": self.bootstrap})
            .list_topics(topic, timeout=30)
            .topics[topic]
            .partitions[0]
        )
        return found

    def wait_until_copied(self, topic: str) -> None:
        """Wait until each sealed segment is in the store. Raises TimeoutError."""
        wait_until(
            lambda: all_of(self.states(topic), lambda row: row["copied_to"] is not None and not row["lag_segments"])
        )

    def wait_until_gone(self, topic: str) -> None:
        """Wait until the copied segments have left the disk. Raises TimeoutError."""
        wait_until(
            lambda: all_of(
                self.states(topic), lambda row: not row["lag_segments"] and row["local_start"] == row["copied_to"] + 1
            )
        )


def all_of(rows: list[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> bool:
    return bool(rows) and all(map(holds, rows))


def wait_until(holds: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it is not so after {seconds:.0f} s")
        time.sleep(0.05)


@contextmanager
def nodes(count: int = 1, *, is_gated: bool = False, **properties: str) -> Iterator[TieredNodes]:
    """Run this many nodes. The names of `properties` have underscores for dots."""
    admin_ports = {node_id: _free_port() for node_id in range(1, count + 1)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-tiers-")))
        store = stack.enter_context(versitygw.running(folder, BUCKET))
        gate = stack.enter_context(Gate(int(store["endpoint"].rpartition(":")[2]))) if is_gated else None
        if gate is not None:
            store["endpoint"] = f"http://127.0.0.1:{gate.port}"
        common = {f"ottla.tier.store.{name}": value for name, value in store.items()} | OFTEN | {
            "remote.log.storage.system.enable": "true",
            "ottla.tier.location": f"s3://{BUCKET}/cluster",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(count),
        }  # fmt: skip
        per_node = {
            node_id: common | {"ottla.admin.listener": f"127.0.0.1:{port}"} for node_id, port in admin_ports.items()
        }
        cluster = stack.enter_context(Cluster(count, per_node=per_node, spoilable=False, **properties))
        yield TieredNodes(cluster, gate, admin_ports)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
