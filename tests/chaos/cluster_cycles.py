"""Three nodes, acks=all, min.insync.replicas=2: one of them killed and started again, cycle after cycle, under idempotent load.

The judge is that of the single node (kill_cycles.py). Each cycle waits until all replicas are in sync again, because the promise
is about one lossy crash at a time; what kind of node it was (leader, controller, neither) is left to chance.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ottla.testing import Cluster
from tests.chaos import kill_cycles
from tests.chaos.kill_cycles import Load, judge, read_everything

TOPIC = kill_cycles.TOPIC


@dataclass
class Verdict:
    cycles: int = 0
    acknowledged: int = 0
    read: int = 0
    start_seconds: list[float] = field(default_factory=list)
    isr_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def create_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})  # kept by name: its end would end the request
    topic = NewTopic(TOPIC, kill_cycles.PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(30)


def replicas_differ(cluster: Cluster) -> list[str]:
    """Invariant 3 on the files of stopped nodes: what two replicas both have is the same, byte for byte."""
    from pathlib import Path

    problems = []
    for partition in range(kill_cycles.PARTITIONS):
        contents = {}
        for node in cluster.nodes.values():
            folder = Path(node.dir) / "data" / f"{TOPIC}-{partition}"
            contents[node.id] = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        if len(set(contents.values())) > 1:
            sizes = {node_id: len(content) for node_id, content in contents.items()}
            problems.append(f"replicas of partition {partition} differ: {sizes}")
    return problems


def run(cycles: int, seed: int, base_port: int = 0, directory: str | None = None) -> Verdict:
    rng = random.Random(seed)
    verdict = Verdict(cycles)
    with Cluster(3, base_port=base_port, directory=directory) as cluster:
        create_topic(cluster.bootstrap)
        load = Load(cluster.bootstrap)
        for _ in range(cycles):
            load.wait_for_acknowledgements(rng.randint(1, 400))
            victim = rng.choice(list(cluster.nodes))
            cluster.kill(victim)
            if rng.random() < 0.7:
                load.wait_for_acknowledgements(rng.randint(1, 200))  # two nodes go on alone
            verdict.start_seconds.append(cluster.start(victim))
            verdict.isr_seconds.append(cluster.wait_isr(TOPIC))
        load.stop()
        verdict.acknowledged = len(load.acknowledged)
        places = read_everything(cluster.bootstrap)
        verdict.read = len(places)
        verdict.problems = judge(load, places)
        cluster.wait_isr(TOPIC)
        for node_id in cluster.nodes:
            cluster.stop(node_id)
        verdict.problems += replicas_differ(cluster)
    return verdict
