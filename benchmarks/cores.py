"""Two brokers of one machine against one: `python -m benchmarks.cores [--turns N]`. How much does a second core give?

Clients of a real machine are on other machines; here they would take half of its two cores. So only the brokers' own CPU time
counts: a broker that needs 50 us of it for a request answers 20,000 a second on a core of its own. Broker k and the client
that loads it are pinned to core k. One broker alone, then two at the same time, in strict alternation: what the second takes
from the first (caches, memory, locks of the kernel) shows as more CPU time per request.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.raw import one_in_flight
from benchmarks.usage import cpu_seconds
from ottla.local.nodes import HOST
from ottla.processes.children import spawn
from tests.ports import free_ports

BROKERS = 2
CONNECTIONS = 64
GOAL = 1.7
STOP_SECONDS_MAX = 30


@dataclass
class Machine:
    """A controller and two brokers; broker k leads the only partition of topic k."""

    controller: int
    brokers: list[int]
    ports: list[int]

    def run(self, loaded: int, seconds: float) -> tuple[list[float], float]:
        """Load the first `loaded` brokers; return the CPU microseconds per request of each, and of the controller."""
        before = [cpu_seconds([pid]) for pid in self.brokers]
        controller_before = cpu_seconds([self.controller])
        clients = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.cores", "--client", str(k), str(self.ports[k]), str(seconds)],
                stdout=subprocess.PIPE,
            )
            for k in range(loaded)
        ]
        figures = [json.loads(client.communicate()[0]) for client in clients]
        assert not any(each["errors"] for each in figures), figures
        used = [cpu_seconds([pid]) - was for pid, was in zip(self.brokers, before, strict=True)]
        requests = [each["requests"] for each in figures]
        per_request = [cpu / count * 1e6 for cpu, count in zip(used, requests, strict=False)]
        return per_request, (cpu_seconds([self.controller]) - controller_before) / sum(requests) * 1e6


@contextmanager
def machine() -> Iterator[Machine]:
    ports = free_ports(11)
    with tempfile.TemporaryDirectory() as directory, open(Path(directory) / "log", "wb") as log:
        words = [
            f"listeners=PLAINTEXT://{HOST}:{ports[0]},CONTROLLER://{HOST}:{ports[1]}",
            f"log.dirs={directory}/data",
        ]
        overrides = [word for each in words for word in ("--override", each)]
        node = spawn(["--processes", str(BROKERS), *overrides], log)
        try:
            assert os.read(node.ready_fd, 64), Path(log.name).read_text()
            children = sorted(psutil.Process(node.process.pid).children(), key=lambda child: child.create_time())
            controller, *brokers = [child.pid for child in children]
            for core, pid in enumerate(brokers):
                os.sched_setaffinity(pid, {core})
            admin = AdminClient({"bootstrap.servers": f"{HOST}:{ports[0]}"})
            topics = [NewTopic(_topic(k), 1, replica_assignment=[[1001 + k]]) for k in range(BROKERS)]
            for future in admin.create_topics(topics).values():
                future.result(60)
            yield Machine(controller, brokers, [ports[0], ports[10]])
        finally:
            node.process.terminate()
            node.process.wait(STOP_SECONDS_MAX)


def _topic(k: int) -> str:
    return f"cores-{k}"


def _client(k: int, port: int, seconds: float) -> None:
    os.sched_setaffinity(0, {k})
    print(json.dumps(one_in_flight([(HOST, port)], _topic(k), CONNECTIONS, seconds)))


def _stolen() -> tuple[int, int]:
    """Return the ticks that the hypervisor gave to other machines, and all ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--client", nargs=3, metavar=("K", "PORT", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        k, port, seconds = arguments.client
        _client(int(k), int(port), float(seconds))
        return 0
    if (os.cpu_count() or 1) < BROKERS:
        parser.error(f"needs {BROKERS} cores")
    stolen = _stolen()
    ratios, alone, together, controllers = [], [], [], []
    with machine() as under_test:
        under_test.run(BROKERS, 1.0)  # warm up
        for turn in range(arguments.turns):
            (one,), _ = under_test.run(1, arguments.seconds)
            both, controller = under_test.run(BROKERS, arguments.seconds)
            ratios.append(sum(one / each for each in both))
            alone.append(one)
            together += both
            controllers.append(controller)
            shown = " and ".join(f"{each:.1f}" for each in both)
            print(f"turn {turn + 1}: one broker {one:.1f} us a request, two {shown}: {ratios[-1]:.2f}x")
    stolen = (_stolen()[0] - stolen[0], _stolen()[1] - stolen[1])
    ratio = statistics.median(ratios)
    print(
        f"median: one broker {statistics.median(alone):.1f} us of CPU a request, each of two {statistics.median(together):.1f}, "
        f"the controller {statistics.median(controllers):.2f}; two brokers do {ratio:.2f}x of one "
        f"(goal {GOAL}x: {'met' if ratio >= GOAL else 'NOT met'}); {stolen[0] / stolen[1]:.0%} of the time was stolen"
    )
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
