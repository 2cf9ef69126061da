"""Power failures on three nodes, each on an ext4 image of its own (disks.py), under idempotent load with acks=all.

minority    one node at a time, min.insync.replicas=2, nothing flushed before it is acknowledged: promise (b), KIP-966
all         every node at once, flush.messages=1 on the topic: what is acknowledged is on two disks at least
"""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ottla.testing import Cluster
from tests.chaos.disks import SKIP_REASON, ImageDisk, available
from tests.chaos.history import IN_SYNC_SECONDS_MAX, TOPIC, Load, create_topic, judge, read_everything

KINDS = ("minority", "all")


@dataclass
class Verdict:
    """The result of a run; `problems` is empty when every promise held."""

    failures: int = 0
    acknowledged: int = 0
    read: int = 0
    isr_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def power_loss(cluster: Cluster, disks: dict[int, ImageDisk], node_ids: list[int]) -> None:
    """Cut the power of all these nodes at the same moment, then start them on what their disks held."""
    for node_id in node_ids:
        cluster.pause(node_id)
    for node_id in node_ids:
        disks[node_id].freeze()
    for node_id in node_ids:
        cluster.kill(node_id)
    for node_id in node_ids:
        disks[node_id].power_loss()


def run(kind: str, failures: int, seed: int) -> Verdict:
    rng = random.Random(seed)
    verdict = Verdict(failures)
    configs = {"min_insync_replicas": "2"} | ({"flush_messages": "1"} if kind == "all" else {})
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="ottla-power-")))
        disks = {n: stack.enter_context(ImageDisk(directory, f"disk-{n}")) for n in (1, 2, 3)}
        per_node = {n: {"log.dirs": str(disk.path / "data")} for n, disk in disks.items()}
        cluster = stack.enter_context(Cluster(3, directory=str(directory), per_node=per_node))
        create_topic(cluster.bootstrap, 3, **configs)
        cluster.wait_isr(TOPIC)
        load = Load(cluster.bootstrap)
        for _ in range(failures):
            load.wait_for_acknowledgements(rng.randint(200, 2000))
            victims = list(cluster.nodes) if kind == "all" else [rng.choice(list(cluster.nodes))]
            power_loss(cluster, disks, victims)
            if kind == "minority":
                load.wait_for_acknowledgements(rng.randint(1, 500))  # the other two nodes go on
            cluster.start(*victims)
            verdict.isr_seconds.append(cluster.wait_isr(TOPIC, seconds=IN_SYNC_SECONDS_MAX))
        load.wait_for_acknowledgements(1)
        load.stop()
        verdict.acknowledged = len(load.acknowledged)
        places = read_everything(cluster.bootstrap, leaders_change=True)
        verdict.read = len(places)
        verdict.problems = judge([load], places)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.power_loss", description=__doc__)
    parser.add_argument("--runs", type=int, default=23)
    parser.add_argument("--failures", type=int, default=10, help="in each run")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not available():
        print(f"power loss is not tried: {SKIP_REASON}")
        return 0
    bad = 0
    for number in range(arguments.runs):
        for kind in KINDS:
            seed = arguments.seed + number
            verdict = run(kind, arguments.failures, seed)
            bad += bool(verdict.problems)
            state = "; ".join(verdict.problems) or "nothing lost, doubled or reordered"
            print(
                f"{kind}, seed {seed}: {verdict.failures} power losses, {verdict.acknowledged} acknowledged,"
                f" {verdict.read} read, in sync again <= {max(verdict.isr_seconds):.2f} s: {state}",
                flush=True,
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
