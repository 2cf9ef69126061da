"""Every fault against every kind of client at once, on three nodes whose disks are images: `python -m tests.chaos.together`.

Idempotent producers, a group of consumers, transactions and a compacted topic are under way while nodes are killed, paused,
cut off, filled up, given wrong clocks, or lose their power. One accident at a time: the next one waits until all replicas are
in sync again, because that is the promise (KIP-966 without a flush before the acknowledgement; with it, all nodes may lose
their power at the same moment).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ottla.testing import Cluster
from tests.chaos import power_loss
from tests.chaos.cluster_cycles import victims
from tests.chaos.disks import SKIP_REASON, ImageDisk, available, fill
from tests.chaos.group_history import Group
from tests.chaos.history import IN_SYNC_SECONDS_MAX, TOPIC, Load, create_topic, judge, read_everything
from tests.chaos.loads import KeyedLoad, TransactionalLoad
from tests.effort import RECORDS_PER_SECOND

NODES = (1, 2, 3)
HOUR = 3600
ACCIDENTS_A_RUN = 20
#: The rate of each of the two plain producers: requests are in flight at every accident, and the nodes get the processor.
RECORDS_PER_SECOND_MAX = 1000
INTERNAL = ("__consumer_offsets", "__transaction_state")
#: The clocks differ by less than producer.id.expiration.ms and every retention: expiration by a wrong clock is not tested here.
SKEWS = (12 * HOUR, -12 * HOUR, HOUR, -HOUR)
PROPERTIES = {
    "log_cleaner_backoff_ms": "500",
    "log_message_timestamp_after_max_ms": str(
        1 << 62
    ),  # otherwise a node with a slow clock rejects the clients' timestamps
    "offsets_topic_num_partitions": "5",
    "transaction_state_log_num_partitions": "5",
}


@dataclass
class ChaosHarness:
    """The cluster, its disks, and the random generator."""

    cluster: Cluster
    disks: dict[int, ImageDisk]
    rng: random.Random

    def some(self) -> int:
        return self.rng.choice(NODES)

    def others_of(self, node_id: int) -> int:
        return self.rng.choice([other for other in NODES if other != node_id])

    def lasts(self, low: float, high: float) -> None:
        time.sleep(self.rng.uniform(low, high))


def kill(kind: str) -> Callable[[ChaosHarness], None]:
    def accident(harness: ChaosHarness) -> None:
        killed = victims(harness.cluster, kind, harness.rng)
        for node_id in killed:
            harness.cluster.kill(node_id)
        if len(killed) == 1:
            harness.lasts(0, 1)
        harness.cluster.start(*killed)

    return accident


def pause(harness: ChaosHarness) -> None:
    node_id = harness.some()
    harness.cluster.pause(node_id)
    harness.lasts(0.5, 12)  # some of these times are longer than broker.session.timeout.ms
    harness.cluster.resume(node_id)


def isolate(harness: ChaosHarness) -> None:
    harness.cluster.isolate(harness.some())
    harness.lasts(0.5, 8)
    harness.cluster.heal()


def cut_one_way(harness: ChaosHarness) -> None:
    node_id = harness.some()
    harness.cluster.partition(node_id, harness.others_of(node_id), one_way=True)
    harness.lasts(0.5, 8)
    harness.cluster.heal()


def full_disk(harness: ChaosHarness) -> None:
    ballast = fill(harness.disks[harness.some()].path)
    harness.lasts(0.5, 3)
    ballast.unlink()


def wrong_clock(harness: ChaosHarness) -> None:
    node_id = harness.some()
    harness.cluster.skew_clock(node_id, harness.rng.choice(SKEWS))
    harness.lasts(1.5, 4)
    if harness.rng.random() < 0.5:
        harness.cluster.kill(node_id)
        harness.cluster.start(node_id)
    harness.cluster.skew_clock(node_id, 0)


def power(*, everywhere: bool) -> Callable[[ChaosHarness], None]:
    def accident(harness: ChaosHarness) -> None:
        struck = list(NODES) if everywhere else [harness.some()]
        power_loss.power_loss(harness.cluster, harness.disks, struck)
        if not everywhere:
            harness.lasts(0, 1)
        harness.cluster.start(*struck)

    return accident


#: For each accident its name, its function, and whether it needs a flush before the acknowledgement.
ACCIDENTS: dict[str, tuple[Callable[[ChaosHarness], None], bool]] = {
    "kill of a leader": (kill("leader"), False),
    "kill of a follower": (kill("follower"), False),
    "kill of the controller": (kill("controller"), False),
    "kill of two": (kill("two"), False),
    "kill of all": (kill("all"), False),
    "pause": (pause, False),
    "cut off": (isolate, False),
    "cut one way": (cut_one_way, False),
    "full disk": (full_disk, False),
    "power loss of one": (power(everywhere=False), False),
    "power loss of all": (power(everywhere=True), True),
    "wrong clock": (wrong_clock, False),
}


@dataclass
class Verdict:
    """The result of a run; `problems` is empty when every promise held."""

    accidents: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    transactions: int = 0
    keyed: int = 0
    keyed_left: int = 0
    delivered: int = 0
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        state = "; ".join(self.problems) or "nothing lost, doubled, reordered or torn"
        return (
            f"{self.accidents.total()} accidents {dict(self.accidents)}, {self.acknowledged} acknowledged,"
            f" {self.transactions} transactions committed, {self.keyed} keyed records ({self.keyed_left} left after"
            f" compaction), group saw {self.delivered}: {state}"
        )


def run(accidents: int, seed: int, *, flush: bool, names: tuple[str, ...] = ()) -> Verdict:
    """Run this number of accidents, drawn from those with these names (by default all)."""
    rng, verdict = random.Random(seed), Verdict()
    drawn = [name for name in names or ACCIDENTS if flush or not ACCIDENTS[name][1]]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="ottla-together-")))
        disks = {n: stack.enter_context(ImageDisk(directory, f"disk-{n}")) for n in NODES}
        per_node = {n: {"log.dirs": str(disk.path / "data")} for n, disk in disks.items()}
        properties = PROPERTIES | ({"log_flush_interval_messages": "1"} if flush else {})
        cluster = Cluster(3, directory=str(directory), per_node=per_node, cuttable=True, **properties)
        stack.enter_context(cluster)
        create_topic(cluster.bootstrap, 3, min_insync_replicas="2")
        per_second = RECORDS_PER_SECOND or RECORDS_PER_SECOND_MAX
        loads = [Load(cluster.bootstrap, number, per_second=per_second) for number in range(2)]
        group = Group(cluster.bootstrap, 2)
        transactions, keyed = TransactionalLoad(cluster.bootstrap, seed), KeyedLoad(cluster.bootstrap, seed)
        topics = (TOPIC, transactions.topic, keyed.topic, *INTERNAL)
        harness = ChaosHarness(cluster, disks, rng)
        transactions.wait_for_commits(1)
        for _ in range(accidents):
            for load in loads:
                load.wait_for_acknowledgements(rng.randint(1, 300))
            transactions.wait_for_commits(rng.randint(0, 3))
            name = rng.choice(drawn)
            ACCIDENTS[name][0](harness)
            verdict.accidents[name] += 1
            for topic in topics:
                cluster.wait_isr(topic, seconds=IN_SYNC_SECONDS_MAX)
        transactions.wait_for_commits(1)
        for each in (*loads, transactions, keyed):
            each.stop()
        group.stop(loads)
        verdict.problems = judge(loads, read_everything(cluster.bootstrap, leaders_change=True)) + group.problems[:20]
        verdict.problems += transactions.judge() + keyed.judge()
        verdict.acknowledged = sum(len(load.acknowledged) for load in loads)
        verdict.transactions, verdict.keyed, verdict.keyed_left = (
            transactions.committed,
            keyed.count,
            keyed.records_left,
        )
        verdict.delivered = group.delivered
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.together", description=__doc__)
    parser.add_argument("--accidents", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], choices=list(ACCIDENTS), help="as often as needed")
    arguments = parser.parse_args()
    if not available():
        print(f"the accidents together are not tried: {SKIP_REASON}")
        return 0
    bad, total = 0, Counter[str]()
    for number in range(max(1, arguments.accidents // ACCIDENTS_A_RUN)):
        seed, flush, began = arguments.seed + number, number % 2 == 1, time.monotonic()
        verdict = run(min(ACCIDENTS_A_RUN, arguments.accidents), seed, flush=flush, names=tuple(arguments.only))
        bad += bool(verdict.problems)
        total += verdict.accidents
        flushed = "flushed first" if flush else "not flushed"
        print(f"seed {seed}, {flushed}, {time.monotonic() - began:.0f} s: {verdict.text()}", flush=True)
    print(f"{total.total()} accidents {dict(total)}, {bad} runs with problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
