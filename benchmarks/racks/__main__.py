"""Many brokers in three racks with delay and loss between them: `python -m benchmarks.racks`. Needs root, iproute2 and Linux.

All nodes are forks of one process, in network namespaces that are made here and removed at the end. A stock producer writes a small
steady load all the time, and a stock consumer reads from the nearest replica. The story: nothing happens; the rack of the active
controller is cut off, and mended; all nodes are restarted, one after the other; a broker is lost with its disk, and a new one takes its
place. Of each stretch the table has what clients saw and what nodes used. benchmarks/scale-log.md has a run.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.racks import contents
from benchmarks.racks.clients import Client
from benchmarks.racks.figures import HEAD, Stretch, availability, near_share, row
from benchmarks.racks.fleet import CONTROLLERS, Fleet, wait_until
from benchmarks.racks.network import RackNetwork
from benchmarks.usage import MachineTime, cpu_seconds, machine
from tests.docker.namespace_harness import available

RACKS, REPLICAS = 3, 3
#: The topics of the load and of the consumer.
BUSY_TOPICS = 100
SETTLE_SECONDS_MAX = 600
HELD = re.compile(r"held for (\d+) ms \((\d+) ms of CPU\) by (.*)")
HELD_LINES = 20


@dataclass
class Story:
    """The events of the fleet, and the measurements of each stretch between them."""

    fleet: Fleet
    stretches: list[Stretch] = field(default_factory=list)
    #: The rack of the clients.
    home: int = 1

    @contextmanager
    def stretch(self, name: str) -> Iterator[Stretch]:
        fleet = self.fleet
        before = fleet.cpu()
        found = Stretch(name, time.monotonic_ns())
        try:
            yield found
        except Exception as failure:  # the next stretches are measured all the same
            traceback.print_exc()
            found.said.append(f"failed: {type(failure).__name__}: {str(failure)[:200]}")
        found.end_ns = time.monotonic_ns()
        for node_id, (pid, seconds) in fleet.cpu().items():
            earlier = before.get(node_id, (0, 0.0))
            found.cpu[node_id] = (seconds - earlier[1] * (earlier[0] == pid)) / found.seconds
        found.memory, found.turns = fleet.memory(), fleet.longest_turns()
        self.stretches.append(found)
        print(row(found, None, fleet.brokers, CONTROLLERS), file=sys.stderr, flush=True)

    def begin(self, topics: int, partitions: int) -> None:
        fleet = self.fleet
        with self.stretch("start") as found:
            found.said.append(f"all serve after {fleet.start_first():.0f} s")
        with self.stretch("topics are made, until all replicas are in sync"):
            contents.create(fleet, contents.topic_names(topics), partitions, REPLICAS)
        with self.stretch("records are written"):
            contents.fill(fleet)

    def in_sync(self) -> float:
        """Wait until all replicas are in sync; return the seconds."""
        fleet = self.fleet
        return wait_until("all replicas in sync", lambda: not fleet.known(self.home).out_of_sync(), SETTLE_SECONDS_MAX)

    def without(self, brokers: list[int]) -> float:
        """Wait until the clients' rack knows no leader on these brokers; return the seconds."""
        return wait_until(
            "other leaders", lambda: not self.fleet.known(self.home).led_by([*brokers, -1]), SETTLE_SECONDS_MAX
        )

    def cut_and_mend(self, rack: int, seconds: float) -> None:
        fleet = self.fleet
        lost = fleet.of_rack(rack)
        before = fleet.active_controller(self.home)
        led = len(fleet.known(self.home).led_by(lost))
        with self.stretch(f"rack {rack} with the active controller is cut off, {len(lost)} brokers") as found:
            began = time.monotonic()
            fleet.network.cut(rack)
            wait_until("another controller", lambda: fleet.active_controller(self.home) not in (-1, before), 120)
            found.said.append(f"another controller after {time.monotonic() - began:.1f} s")
            self.without(lost)
            found.said.append(f"{led:,} partitions have other leaders after {time.monotonic() - began:.1f} s")
        with self.stretch("it stays cut off"):
            time.sleep(seconds)
        with self.stretch("it is mended") as found:
            fleet.network.cut()
            found.said.append(f"all in sync after {self.in_sync():.1f} s")

    def restart_all(self, at_once: int) -> None:
        """Restart the brokers rack by rack, some of a rack at once, none of which share a partition; then the controllers."""
        fleet = self.fleet
        began, longest = time.monotonic(), 0.0
        with self.stretch("rolling restart of all") as found:
            for rack in fleet.network.racks:
                brokers = fleet.of_rack(rack)
                for begin in range(0, len(brokers), at_once):
                    step = time.monotonic()
                    self._restart(brokers[begin : begin + at_once])
                    longest = max(longest, time.monotonic() - step)
            brokers_took = time.monotonic() - began
            active = fleet.active_controller(self.home)
            for controller in sorted(CONTROLLERS, key=lambda each: each == active):
                self._restart([controller])
            found.said.append(f"brokers, {at_once} at once: {brokers_took:.0f} s, {longest:.1f} s a step at most")
            found.said.append(f"controllers: {time.monotonic() - began - brokers_took:.0f} s")

    def _restart(self, node_ids: list[int]) -> None:
        self.fleet.stop(node_ids)
        self.fleet.start(node_ids)
        self.in_sync()

    def lose_and_replace(self, broker: int) -> None:
        fleet = self.fleet
        rack, new = fleet.members[broker].rack, max(fleet.brokers) + 1
        replicas = fleet.known(self.home).replicas_on(broker)
        led = len(fleet.known(self.home).led_by([broker]))
        with self.stretch("kill -9 of a broker, its disk is gone") as found:
            fleet.lose(broker)
            found.said.append(f"{led:,} partitions have other leaders after {self.without([broker]):.1f} s")
        with self.stretch(f"a new broker takes its place, {replicas:,} replicas") as found:
            fleet.add(new, rack)
            began = time.monotonic()
            fleet.start([new])
            found.said.append(f"it serves after {time.monotonic() - began:.1f} s")
            self._ottla("move", "run", "--even", "--drain", str(broker), "--yes")
            found.said.append(f"`ottla move run --even --drain {broker}` ends after {time.monotonic() - began:.1f} s")
            found.said.append(f"all in sync {self.in_sync():.1f} s later")
            self._ottla("broker", "remove", str(broker), "--yes")
            found.said.append(f"{fleet.known(self.home).replicas_on(new):,} replicas are on it")

    def _ottla(self, *words: str) -> None:
        command = [sys.executable, "-m", "ottla", *words, "-b", self.fleet.bootstrap(self.home)]
        with self.fleet.network.inside(self.home):
            process = subprocess.Popen([*command, "--timeout", str(SETTLE_SECONDS_MAX)], stdout=subprocess.DEVNULL)
        if process.wait():
            raise RuntimeError(f"ottla {' '.join(words)} ended with {process.returncode}")


def measure(story: Story, arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Run the whole story; return the figures of the two clients."""
    fleet = story.fleet
    story.begin(arguments.topics, arguments.partitions)
    with story.stretch("idle"):
        time.sleep(arguments.seconds)
    active_rack = fleet.members[fleet.active_controller(1)].rack
    story.home, far = (rack for rack in fleet.network.racks if rack != active_rack)
    busy = {"topics": contents.topic_names(min(BUSY_TOPICS, arguments.topics)), "partitions": arguments.partitions}
    reader = Client(
        fleet.network,
        far,
        "read",
        {"bootstrap": fleet.bootstrap(far), "rack": fleet.rack_name(far), **busy},
    )
    load = Client(
        fleet.network, story.home, "load", {"bootstrap": fleet.bootstrap(story.home), "rate": arguments.rate, **busy}
    )
    try:
        time.sleep(arguments.seconds / 2)
        with story.stretch(f"quiet, {arguments.rate} records/s"):
            time.sleep(arguments.seconds)
        story.cut_and_mend(active_rack, arguments.seconds)
        story.restart_all(arguments.at_once)
        story.lose_and_replace(fleet.of_rack(far)[0])
        with story.stretch("quiet again"):
            time.sleep(arguments.seconds)
        return load.figures(), (reader.figures(), far)
    finally:
        load.kill()
        reader.kill()


def page(arguments: argparse.Namespace, story: Story, seen: Any, reader: Any, clock: MachineTime) -> Iterator[str]:
    fleet = story.fleet
    yield (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {os.cpu_count()} cores ({machine()}), {arguments.brokers} brokers and "
        f"{len(CONTROLLERS)} controllers in {RACKS} racks, {arguments.delay_ms:g} ms one way and {100 * arguments.loss:g} % loss "
        f"between racks, {arguments.topics:,} topics, {arguments.topics * arguments.partitions:,} partitions with {REPLICAS} replicas; "
        f"load average {os.getloadavg()[2]:.1f} over the last 15 minutes, stolen {clock.stolen_percent():.1f} %"
    )
    yield ""
    yield from HEAD
    for each in story.stretches:
        yield row(each, seen and availability(seen, each.begin_ns, each.end_ns), fleet.brokers, CONTROLLERS)
    yield ""
    if reader is not None:
        found, far = reader
        near = [broker for broker in fleet.brokers if fleet.members[broker].rack == far]
        count = found["looks"][-1][1] if found["looks"] else 0
        share = near_share(found["looks"], near)
        yield f"The consumer read {count:,} records; share of its partitions read in its own rack at the end: {share}"
    if seen is not None:
        yield f"Records that were not acknowledged, by error: {seen['failures'] or 'none'}"
    yield f"The cable used {cpu_seconds([fleet.network.cable_pid]):.1f} s of CPU."
    held = sorted(
        (
            (int(m[2]), int(m[1]), node_id, m[3])
            for node_id, line in fleet.log_lines("event loop was held")
            if (m := HELD.search(line))
        ),
        reverse=True,
    )
    yield f"Turns above 100 ms: {len(held)}; those with the most CPU:"
    for cpu_ms, late_ms, node_id, where in held[:HELD_LINES]:
        yield f"- {cpu_ms} ms of CPU in {late_ms} ms, node {node_id}: {where}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.racks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--brokers", type=int, default=50)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=10, help="of each topic")
    parser.add_argument("--delay-ms", type=float, default=1.0, help="one way, between racks")
    parser.add_argument("--loss", type=float, default=0.001, help="share of frames lost between racks")
    parser.add_argument("--rate", type=float, default=50.0, help="records a second of the load")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of the stretches in which nothing happens, and of the cut"
    )
    parser.add_argument("--at-once", type=int, default=1, help="brokers of a rack that are restarted at once")
    parser.add_argument("--directory", default=None, help="where the nodes' files are (a temporary one)")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a property of all nodes")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    arguments = parser.parse_args()
    if not available():
        raise SystemExit("benchmarks.racks: needs root, iproute2 and network namespaces")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"signal {number}"))
    properties = dict(each.split("=", 1) for each in arguments.override)
    clock = MachineTime.now()
    directory = tempfile.mkdtemp(prefix="ottla-racks-", dir=arguments.directory)
    seen = reader = None
    with (
        RackNetwork(RACKS, delay_ms=arguments.delay_ms, loss=arguments.loss) as network,
        Fleet(network, arguments.brokers, directory, properties) as fleet,
    ):
        story = Story(fleet)
        try:
            seen, reader = measure(story, arguments)
        finally:  # keep what was measured before a failure
            print("\n".join(page(arguments, story, seen, reader, clock)), file=arguments.out, flush=True)


if __name__ == "__main__":
    main()
