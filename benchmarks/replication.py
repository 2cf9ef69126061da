"""The contents of a follower's fetch, and the cost of a replicated record: `python -m benchmarks.replication [--turns N]`.

Three nodes, replication factor 3, acks=all. A number of producers each have a Produce of one record under way
(benchmarks/raw.py). All Fetch requests that the nodes answer meanwhile are counted: those of followers, and some four a second
of the quorum. The CPU time is that of all three nodes together. The last line is the time of a message at 500 a second, from
produce() to the consumer's poll().
"""

from __future__ import annotations

import argparse
import re
import statistics
import urllib.request
from collections import defaultdict

from benchmarks.rows import REPLICATED, STEADY
from benchmarks.turns import run_load
from benchmarks.usage import MachineTime, cpu_seconds
from ottla.local.nodes import HOST
from ottla.testing import Cluster

PRODUCERS = (1, 8, 32, 128)
PARTITIONS = 6
FOLLOWERS = 2
TOPIC = "replication"
FETCHES = re.compile(r'^kafka_network_requestmetrics_requests_total\{request="Fetch"\} ([0-9.e+]+)$', re.MULTILINE)


def fetches(cluster: Cluster) -> float:
    """Return the number of Fetch requests that the nodes have answered so far."""
    total = 0.0
    for node in cluster.nodes.values():
        with urllib.request.urlopen(f"http://{HOST}:{node.admin_port}/metrics", timeout=30) as answer:
            total += sum(float(found) for found in FETCHES.findall(answer.read().decode()))
    return total


def measure(cluster: Cluster, producers: int, seconds: float) -> dict[str, float]:
    """Measure one run with this number of producers."""
    options = {"bootstrap": cluster.bootstrap, "topic": TOPIC, "partitions": PARTITIONS, "connections": producers}
    pids = [cluster.pid(node_id) for node_id in cluster.nodes]
    clock, fetched, used = MachineTime.now(), fetches(cluster), cpu_seconds(pids)
    found = run_load("one_record", {**options, "seconds": seconds})
    used, fetched = cpu_seconds(pids) - used, fetches(cluster) - fetched
    assert not found["errors"], found
    return {
        "records/s": found["per_s"],
        "p50 ms": found["p50_ms"],
        "p99 ms": found["p99_ms"],
        "us CPU/record": used / found["requests"] * 1e6,
        # multiplied, because each follower fetches each record
        "records/fetch": found["requests"] * FOLLOWERS / fetched,
        "stolen %": clock.stolen_percent(),
    }


def create(cluster: Cluster) -> None:
    run_load("create", {**REPLICATED, "bootstrap": cluster.bootstrap, "topic": TOPIC, "partitions": PARTITIONS})
    cluster.wait_isr(TOPIC)


def steady(cluster: Cluster) -> dict[str, float]:
    """Measure the time of a message at a steady rate."""
    found = run_load("end_to_end", {**STEADY, "bootstrap": cluster.bootstrap, "topic": TOPIC, "partitions": PARTITIONS})
    return {"p50 ms": found["p50_ms"], "p99 ms": found["p99_ms"]}


def shown(name: str, figures: dict[str, float]) -> str:
    return f"{name:>16}: " + "  ".join(f"{value:10,.2f} {key}" for key, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--producers", type=int, nargs="*", default=PRODUCERS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    runs = defaultdict(list)
    with Cluster(3, spoilable=False) as cluster:
        create(cluster)
        for _ in range(arguments.turns):
            for producers in arguments.producers:
                runs[f"{producers} producers"].append(measure(cluster, producers, arguments.seconds))
            runs["500 messages/s"].append(steady(cluster))
    for name, found in runs.items():
        print(shown(name, {key: statistics.median(each[key] for each in found) for key in found[0]}))


if __name__ == "__main__":
    main()
