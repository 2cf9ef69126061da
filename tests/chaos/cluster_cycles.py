"""Three nodes, acks=all, min.insync.replicas=2: nodes killed and started again, cycle after cycle, while producers write and a
group reads. Who dies is drawn: a leader, a follower, the active controller, two of three, or all at once.

Each cycle waits until all replicas are in sync again, because the promise is about one accident at a time. kill -9 leaves the
page cache, so even all at once may lose nothing; what a power failure may lose is in power_loss.py.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla.testing import Cluster
from tests.chaos.group_history import Group
from tests.chaos.history import IN_SYNC_SECONDS_MAX, PARTITIONS, TOPIC, Load, create_topic, judge, read_everything
from tests.chaos.roles import active_controller, follower_of, leader_of

SINGLE = ("leader", "follower", "controller")
TOGETHER = ("two", "all")
EVERYTHING = (*SINGLE, *SINGLE, *TOGETHER)
CYCLES_A_RUN = 20
PRODUCERS = 3
MEMBERS = 2


@dataclass
class Verdict:
    """The result of a run; `problems` is empty when every promise held."""

    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    read: int = 0
    delivered: int = 0
    assignments: int = 0
    start_seconds: list[float] = field(default_factory=list)
    isr_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def victims(cluster: Cluster, kind: str, rng: random.Random) -> list[int]:
    partition = rng.randrange(PARTITIONS)
    match kind:
        case "leader":
            return [leader_of(cluster, TOPIC, partition)]
        case "follower":
            return [follower_of(cluster, TOPIC, partition)]
        case "controller":
            return [active_controller(cluster)]
        case "two":
            return rng.sample(list(cluster.nodes), 2)
    return list(cluster.nodes)


def replicas_differ(cluster: Cluster) -> list[str]:
    """Return the differences between replicas on the files of stopped nodes (invariant 3): records that two replicas both have
    are equal, byte for byte.
    """
    problems = []
    for partition in range(PARTITIONS):
        contents = {}
        for node in cluster.nodes.values():
            folder = Path(node.dir) / "data" / f"{TOPIC}-{partition}"
            contents[node.id] = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        if len(set(contents.values())) > 1:
            sizes = {node_id: len(content) for node_id, content in contents.items()}
            problems.append(f"replicas of partition {partition} differ: {sizes}")
    return problems


def run(cycles: int, seed: int, kinds: Sequence[str] = EVERYTHING) -> Verdict:
    rng = random.Random(seed)
    verdict = Verdict()
    with Cluster(3) as cluster:
        create_topic(cluster.bootstrap, 3, min_insync_replicas="2")
        loads = [Load(cluster.bootstrap, number) for number in range(PRODUCERS)]
        group = Group(cluster.bootstrap, MEMBERS)
        for _ in range(cycles):
            for load in loads:
                load.wait_for_acknowledgements(rng.randint(1, 300))
            kind = rng.choice(kinds)
            verdict.kills[kind] += 1
            killed = victims(cluster, kind, rng)
            for node_id in killed:
                cluster.kill(node_id)
            if len(killed) == 1 and rng.random() < 0.7:
                rng.choice(loads).wait_for_acknowledgements(rng.randint(1, 200))  # the other two nodes go on
            verdict.start_seconds.append(cluster.start(*killed))
            verdict.isr_seconds.append(cluster.wait_isr(TOPIC, seconds=IN_SYNC_SECONDS_MAX))
        for load in loads:
            load.stop()
        group.stop(loads)
        verdict.acknowledged = sum(len(load.acknowledged) for load in loads)
        verdict.delivered, verdict.assignments = group.delivered, group.assignments
        places = read_everything(cluster.bootstrap, leaders_change=True)
        verdict.read = len(places)
        verdict.problems = judge(loads, places) + group.problems[:20]
        cluster.wait_isr(TOPIC, seconds=IN_SYNC_SECONDS_MAX)
        for node_id in cluster.nodes:
            cluster.stop(node_id)
        verdict.problems += replicas_differ(cluster)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.cluster_cycles", description=__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kills: Counter[str] = Counter()
    acknowledged, bad = 0, 0
    for number in range(arguments.cycles // CYCLES_A_RUN):
        seed, began = arguments.seed + number, time.monotonic()
        verdict = run(CYCLES_A_RUN, seed)
        kills += verdict.kills
        acknowledged += verdict.acknowledged
        bad += bool(verdict.problems)
        state = "; ".join(verdict.problems) or "nothing lost, doubled or reordered"
        print(
            f"seed {seed}: {dict(verdict.kills)}, {verdict.acknowledged} acknowledged, {verdict.read} read, group saw"
            f" {verdict.delivered} in {verdict.assignments} assignments, start <= {max(verdict.start_seconds):.2f} s,"
            f" in sync again <= {max(verdict.isr_seconds):.2f} s, {time.monotonic() - began:.0f} s: {state}",
            flush=True,
        )
    print(f"{kills.total()} accidents {dict(kills)}, {acknowledged} acknowledged records, {bad} runs with problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
