"""The time for which writes, or decisions, stop when a node dies, leaves or falls asleep: samples on one cluster, with defaults.

python -m tests.chaos.failover --what kill-leader --samples 20

kill-leader       kill -9 of a partition's leader: the longest gap between acknowledgements, acks=all, 500 writes a second
term-leader       the same for SIGTERM, which hands leadership over first
pause-leader      the same for SIGSTOP: a silent death, noticed by its session's end only (9 s)
kill-controller   kill -9 of the active controller, which does not lead: from the kill to a topic created by a broker that lives
first-record      no accident: a fresh producer's first record, from its making to the acknowledgement
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.testing import Cluster
from tests.broker.wire import Wire
from tests.chaos.history import IMPATIENT, Load, judge, read_everything
from tests.chaos.roles import active_controller, leader_of

KINDS = ("kill-leader", "term-leader", "kill-controller", "pause-leader", "first-record")
RATE = 500
BEFORE_SECONDS = 1.5
RECOVERY_SECONDS_MAX = 60.0
#: The time of writes after the first acknowledgement that follows the accident: a second gap in it would belong to the same
#: failover.
AFTER_SECONDS = 2.0
#: A gap that begins this time before the signal counts for the accident, too: in-flight requests are not answered any more.
MARGIN_SECONDS = 0.1
DECISION_MS_MAX = 20_000


#: The client's time-out for a sleeping broker, which keeps its connections: librdkafka's minute is not what is measured.
SLEEPER_GIVEN_UP = {"socket.timeout.ms": IMPATIENT["socket.timeout.ms"]}


def load_on(cluster: Cluster, topic: str, *, idempotent: bool = True, **more: Any) -> Load:
    """Return a producer as users have it, with the defaults for the loss of a broker."""
    settings = {"linger.ms": 0, "enable.idempotence": idempotent, **more}
    return Load(cluster.bootstrap, topic=topic, partitions=1, per_second=RATE, settings=settings)


def wait_for_acknowledgement_after(load: Load, moment: float) -> None:
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while not load.times or load.times[-1] <= moment:
        assert time.monotonic() < deadline, "writes did not go on"
        time.sleep(0.01)


def longest_gap(load: Load, since: float) -> float:
    """Return the longest time between two acknowledgements of which the later one came after `since`."""
    return max(later - earlier for earlier, later in pairwise(load.times) if later > since)


@dataclass
class Samples:
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def max(self) -> float:
        return max(self.seconds)


def create_topic(cluster: Cluster, name: str, first_replica: int | None = None) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    others = [node_id for node_id in cluster.nodes if node_id != first_replica]
    wanted: dict[str, Any] = {"config": {"min.insync.replicas": "2"}}
    if first_replica is None:
        wanted["replication_factor"] = 3
    else:
        wanted["replica_assignment"] = [[first_replica, *others]]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, **wanted)])[name].result(30)
    cluster.wait_isr(name)


def problems_of(cluster: Cluster, load: Load) -> list[str]:
    """Return what is wrong with acknowledged records: each has to be there once, at the acknowledged offset."""
    return judge([load], read_everything(cluster.bootstrap, load.topic, partitions=1, leaders_change=True))


Accident = Callable[[Cluster, int], None]


def write_gap(
    cluster: Cluster, topic: str, accident: Accident, repair: Accident, samples: Samples, **client: Any
) -> None:
    """Take one sample: `accident` hits the leader, `repair` restores the cluster."""
    create_topic(cluster, topic)
    load = load_on(cluster, topic, **client)
    wait_for_acknowledgement_after(load, time.monotonic() + BEFORE_SECONDS)
    leader = leader_of(cluster, topic)
    began = time.monotonic()
    accident(cluster, leader)
    wait_for_acknowledgement_after(load, began + MARGIN_SECONDS)
    wait_for_acknowledgement_after(load, time.monotonic() + AFTER_SECONDS)
    load.stop()
    samples.seconds.append(longest_gap(load, began))
    repair(cluster, leader)
    cluster.wait_isr(topic)
    samples.problems += problems_of(cluster, load)


def decision_gap(cluster: Cluster, topic: str, samples: Samples) -> None:
    """Take one sample: the controller is killed, and a living broker gets a request for a topic at once."""
    controller = active_controller(cluster)
    asked = next(node for node in cluster.nodes.values() if node.id != controller)
    create_topic(cluster, topic, first_replica=asked.id)
    load = load_on(cluster, topic)
    wait_for_acknowledgement_after(load, time.monotonic() + BEFORE_SECONDS)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=f"{topic}-decided", num_partitions=1, replication_factor=2)],
        timeout_ms=DECISION_MS_MAX,
    )
    with Wire(asked.port) as wire:
        wire.sock.settimeout(RECOVERY_SECONDS_MAX)
        began = time.monotonic()
        cluster.kill(controller)
        answer = wire.request(request).topics[0]
        samples.seconds.append(time.monotonic() - began)
    if answer.error_code:
        samples.problems.append(f"{topic}: the creation was answered {answer.error_code} {answer.error_message}")
    wait_for_acknowledgement_after(load, time.monotonic() + AFTER_SECONDS)
    load.stop()
    cluster.start(controller)
    cluster.wait_isr(topic)
    samples.problems += problems_of(cluster, load)


def first_record(cluster: Cluster, topic: str, samples: Samples) -> None:
    create_topic(cluster, topic)
    began = time.monotonic()
    load = load_on(cluster, topic, idempotent=False)
    wait_for_acknowledgement_after(load, began)
    samples.seconds.append(load.times[0] - began)
    load.stop()
    samples.problems += load.failed[:5]


def take_sample(cluster: Cluster, what: str, topic: str, samples: Samples) -> None:
    match what:
        case "kill-leader":
            write_gap(cluster, topic, Cluster.kill, Cluster.start, samples)
        case "term-leader":
            write_gap(cluster, topic, Cluster.stop, Cluster.start, samples)
        case "pause-leader":
            write_gap(cluster, topic, Cluster.pause, Cluster.resume, samples, **SLEEPER_GIVEN_UP)
        case "kill-controller":
            decision_gap(cluster, topic, samples)
        case "first-record":
            first_record(cluster, topic, samples)
        case _:
            raise AssertionError(what)


def run(what: str, count: int, show: Callable[[str], None] = lambda line: None) -> Samples:
    samples = Samples()
    with Cluster(3) as cluster:
        for number in range(count):
            take_sample(cluster, what, f"{what}-{number}", samples)
            show(f"{what} {number + 1}: {samples.seconds[-1]:.3f} s")
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.failover", description="How long writes or decisions stop.")
    parser.add_argument("--what", choices=KINDS, action="append", help="(default: all)")
    parser.add_argument("--samples", type=int, default=20)
    arguments = parser.parse_args()
    bad = 0
    for what in arguments.what or KINDS:
        samples = run(what, arguments.samples, lambda line: print(line, flush=True))
        bad += bool(samples.problems)
        result = {"what": what, "samples": len(samples.seconds), "p50_s": round(samples.p50, 3)}
        print(json.dumps(result | {"max_s": round(samples.max, 3), "problems": samples.problems}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
