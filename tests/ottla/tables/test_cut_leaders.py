"""Tables of a cluster whose workers, leaders and committers are killed, beside a leader that is cut off and goes on working
at the store.

The store is a folder, which no cut of the network reaches: a leader that is cut off goes on to offer what it believes to be
its own, and to commit what others offer.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.effort import LONG
from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

from ottla.server.config.tables.topic_tables import BYTES, FILES, ICEBERG
from ottla.server.table_work import TableSettings
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.offline import find_topic
from ottla.tables.opening import open_tables
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.ottla.tables.test_broker_tables import FAST, has_mapped, wait_for_rows

KILLS = int(os.environ.get("OTTLA_KILLS", "200" if LONG else "12"))
#: A leader is not cut off for so many kills, then it is for so many.
WHOLE, CUT = 3, 3
TOPIC, PARTITIONS, RECORDS = "orders", 3, 30
NODES = (1, 2, 3)
#: The longest time between records and a kill: a process of tables needs two seconds to start, and an interval is 0.2 s.
PAUSE_S_MAX = 1.0
#: Sessions end soon, so that a leader that is cut off is replaced before the next kill. With one replica in sync less, its
#: records would be committed by itself alone.
PROPERTIES = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "ottla.table.maintenance.interval.ms": "5000",
}


def workers_of(cluster: Cluster, node: int) -> list[psutil.Process]:
    """Return the process that works on tables beside a node, if it runs."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(cluster.pid(node)).children():
            with suppress(psutil.NoSuchProcess):
                found += [child] * has_mapped(child, "pyarrow")
    return found


class Accidents:
    """The kills of a cluster's processes, and the node that is cut off."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._cluster, self._chance = cluster, chance
        self._zombie: int | None = None
        self.counted = {"worker": 0, "leader": 0, "committer": 0, "zombie": 0}

    def leader(self, partition: int) -> int:
        """Return the leader, once all nodes that are not cut off are in sync: a kill of the last one in sync would stop the
        partition for good.
        """
        leaders: list[int] = []

        def is_led() -> bool:
            others = {*NODES} - {self._zombie}
            (topic,) = self._cluster.metadata([TOPIC], min(others)).topics
            partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
            leaders[:] = [each.leader_id for each in partitions]
            return others.issuperset(leaders) and all(others.issubset(each.isr_nodes) for each in partitions)

        eventually(is_led, f"all but {self._zombie} to be in sync", 120)
        return leaders[partition]

    def strike(self, number: int) -> None:
        phase = number % (WHOLE + CUT)
        if phase == WHOLE:
            self._zombie = self.leader(self._chance.randrange(PARTITIONS))
            self._cluster.isolate(self._zombie, clients=True)
        elif phase == 0 and self._zombie is not None:
            self._cluster.heal()
            self._zombie = None
        what = self._chance.choice([each for each in self.counted if each != "zombie" or self._zombie is not None])
        self.counted[what] += 1
        partition = 0 if what == "committer" else self._chance.randrange(PARTITIONS)
        if what in ("worker", "zombie"):
            cut = self._zombie if what == "zombie" else None
            self._kill_worker(lambda: cut or self.leader(partition))
        else:
            node = self.leader(partition)
            self._cluster.kill(node)
            self._cluster.start(node)

    def _kill_worker(self, node: Callable[[], int]) -> None:
        """Kill the process that works on tables beside a node, once it has started: it may have been killed a moment ago."""

        def is_killed() -> bool:
            found = workers_of(self._cluster, node())
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            return bool(found)

        eventually(is_killed, "a process to work on tables", 120)


@pytest.mark.chaos
@pytest.mark.timeout(3_600 if LONG else 600)
def test_a_table_is_its_log_after_kills_of_who_works_on_it_beside_a_leader_that_is_cut_off() -> None:
    chance = random.Random(44)
    acknowledged = 0

    def count(error: object, message: object) -> None:
        nonlocal acknowledged
        assert error is None, error
        acknowledged += 1

    with Cluster(len(NODES), cuttable=True, per_node=dict.fromkeys(NODES, PROPERTIES)) as cluster:
        cluster.topic(TOPIC, partitions=PARTITIONS, configs={"ottla.table.format": ICEBERG, **FAST})
        accidents = Accidents(cluster, chance)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        for number in range(KILLS):
            for each in range(RECORDS):
                producer.produce(TOPIC, f"{number} {each}", partition=each % PARTITIONS, on_delivery=count)
            producer.flush(chance.uniform(0, PAUSE_S_MAX))
            time.sleep(chance.uniform(0, PAUSE_S_MAX))  # what works on tables is killed at any of its steps
            accidents.strike(number)
        cluster.heal()
        assert producer.flush(120) == 0
        assert acknowledged == KILLS * RECORDS
        found = wait_for_rows(cluster, TOPIC, ICEBERG, acknowledged)
        assert found == {(each.partition, each.offset): each.value for each in cluster.records(TOPIC, acknowledged)}
        for node in NODES:
            cluster.stop(node)
        sweep(cluster)
        assert len(wait_for_rows(cluster, TOPIC, ICEBERG, acknowledged)) == acknowledged
    print(f"killed {accidents.counted}")


def sweep(cluster: Cluster) -> None:
    """Delete the files that no commit names, whatever their age, and check that none is left."""
    (partition,) = Path(cluster.directory, "node-1").rglob(f"{TOPIC}-0")
    owner = find_topic([str(partition.parent)], TOPIC).owner
    settings = TableSettings(ICEBERG, str(Path(cluster.directory) / "tables"), FILES, BYTES, BYTES, {})
    opened = open_tables(settings, owner)
    at_once = MaintenancePolicy(age_ms=0, versions_max=1)
    for _ in range(2):
        opened.maintenance(at_once).run(1 << 50)
    last = opened.log.last()
    assert last is not None and not opened.maintenance(at_once).orphans(last)
