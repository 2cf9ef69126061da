"""`make compat ARGS=cut-off`: a leader that is cut off while clients still reach it, at Ottla and at Apache Kafka, with default settings.

Three brokers and a controller, each in a network namespace of its own. The leader of a partition loses the controller, or the controller
and the other brokers; two librdkafka producers write meanwhile, one with acks=all and one with acks=1. Two things are measured:
the time without an acknowledgement, and the number of acknowledged records that are gone after the heal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.history import create_topic
from tests.chaos.loads import read
from tests.chaos.namespaces import NamespaceCluster
from tests.compat.librdkafka import Outcome
from tests.compat.mixed.nodes import until
from tools import apache_kafka

TOPIC = "cut"
CONTROLLER = 4
#: The minimum length of a cut, which is longer than broker.session.timeout.ms (9 s at both): until then a producer may have
#: noticed nothing.
CUT_SECONDS_MIN = 20
#: The limit of a cut. A producer that has not gone on by then waits for minutes.
CUT_SECONDS_MAX = 150
#: The pause between two records, in seconds.
PAUSE_S = 0.05
#: The age of the last acknowledgement below which the producer is going on.
FRESH_S = 2.0
#: The limit for Ottla's producers: the session, the time in which a broker looks for others, and the client's way to them, on a
#: busy machine.
OTTLA_SECONDS_MAX = 30
WAIT_SECONDS_MAX = 60
#: The nodes that the leader loses: the controller only, or the other brokers as well.
CONTROLLER_ONLY, ALL_NODES = "controller", "all"
LOST = (CONTROLLER_ONLY, ALL_NODES)


class Apart(NamespaceCluster):
    """Three brokers of Ottla and one controller, each in a namespace of its own."""

    controller_ids = (CONTROLLER,)


class KafkaApart(Apart):
    """Three brokers and a controller of Apache Kafka, each in a namespace of its own."""

    def _command(self, node_id: int, folder: Path) -> list[str]:
        file = folder / "kafka.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node_id, folder).items()))
        words = ("format", "-t", self.cluster_id, "-c", str(file))
        if (done := apache_kafka.run_tool("kafka-storage", *words)).returncode:
            raise apache_kafka.OracleUnavailable(f"format failed: {done.stdout}{done.stderr}")
        return apache_kafka.java_command(
            apache_kafka.TOOLS["kafka-server-start"], str(file), jvm="-Xmx512M -XX:+UseSerialGC", quick=False
        )

    def _is_ready(self, node_id: int) -> bool:
        return True  # Kafka's log has errors only: Metadata shows when brokers are ready


class Producing:
    """A librdkafka producer with its own defaults, in a thread."""

    def __init__(self, bootstrap: str, acks: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "log_level": 0})
        self._ended = threading.Event()
        self._acks = acks
        #: The acknowledged records, and their times.
        self.acknowledged: list[tuple[bytes, float]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        while not self._ended.wait(PAUSE_S):
            value = b"%s-%d" % (self._acks.encode(), count)
            self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            count += 1

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.append((message.value(), time.monotonic()))

    @property
    def is_going_on(self) -> bool:
        return bool(self.acknowledged) and time.monotonic() - self.acknowledged[-1][1] < FRESH_S

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.flush(CUT_SECONDS_MAX)


class Seen(NamedTuple):
    """The effects of a cut on a producer, in seconds after it."""

    stopped_s: float
    went_on_s: float
    acknowledged: int
    lost: int
    went_on_meanwhile: bool

    def __str__(self) -> str:
        pause = f"none acknowledged from {self.stopped_s:.1f} to {self.went_on_s:.1f} s after the cut"
        return f"{pause}{'' if self.went_on_meanwhile else ', when it was mended'}; {self.lost} of {self.acknowledged} lost"


def longest_pause(times: Iterable[float], since: float) -> tuple[float, float]:
    """Return the begin and the end of the longest time between two acknowledgements, as seconds after `since`."""
    after = [0.0, *(each - since for each in times if each > since)]
    return max(pairwise(after), key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))


def measure(cluster: NamespaceCluster, lost: str) -> dict[str, Seen]:
    """Return, by acks, the observations of producers while the leader had no controller, or neither a controller nor other
    brokers.
    """
    until("the brokers", lambda: _brokers_known(cluster) == len(cluster.broker_ids), WAIT_SECONDS_MAX)
    create_topic(cluster.bootstrap, 3, TOPIC)
    cluster.wait_isr(TOPIC, 1)
    leader = cluster.leader(TOPIC, 1)
    producers = {acks: Producing(cluster.bootstrap, acks) for acks in ("all", "1")}
    try:
        until("acknowledgements", lambda: all(each.is_going_on for each in producers.values()), WAIT_SECONDS_MAX)
        if lost == ALL_NODES:
            cluster.isolate(leader)
        else:
            cluster.cut(leader, CONTROLLER)
            cluster.cut(CONTROLLER, leader)
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < CUT_SECONDS_MAX:
            if seconds > CUT_SECONDS_MIN and all(each.is_going_on for each in producers.values()):
                break
            time.sleep(0.1)
        went_on = {acks: each.is_going_on for acks, each in producers.items()}
        cluster.heal()
        until(
            "the old leader knows the new one",
            lambda: cluster.leader_and_isr(TOPIC, leader)[0] not in (-1, leader),
            WAIT_SECONDS_MAX,
        )
    finally:
        for each in producers.values():
            each.stop()
    cluster.wait_isr(TOPIC, 1)
    there = {message.value() for message in read(cluster.bootstrap, TOPIC, "read_uncommitted", partitions=1)}
    found = {}
    for acks, each in producers.items():
        values = {value for value, _ in each.acknowledged}
        pause = longest_pause((at for _, at in each.acknowledged), began)
        found[acks] = Seen(*pause, len(values), len(values - there), went_on[acks])
    return found


def outcomes(logs: Path, names: list[str], report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Return the outcomes. Ottla's producers have to go on within seconds; Apache Kafka's times are only shown."""
    made = []
    for lost in [lost for lost in LOST if lost in names] or LOST:
        for kind in (Apart, KafkaApart):
            folder = logs / f"{kind.__name__}-{lost}"
            folder.mkdir(parents=True)
            began = time.monotonic()
            with kind(folder, **{"num.partitions": "1"}) as cluster:
                seen = measure(cluster, lost)
            for acks, what in seen.items():
                print(f"# {kind.__name__}, {lost} lost, acks={acks}: {what}", flush=True)
            wrong = "" if kind is KafkaApart else "; ".join(_wrong(seen))
            name = f"cut-{lost}-{'apache-kafka' if kind is KafkaApart else 'ottla'}"
            made.append(report(Outcome(name, "FAIL" if wrong else "PASS", time.monotonic() - began, wrong)))
    return made


def _wrong(seen: dict[str, Seen]) -> Iterable[str]:
    if seen["all"].lost:
        yield f"{seen['all'].lost} records of acks=all are lost"
    for acks, what in seen.items():
        if what.went_on_s - what.stopped_s > OTTLA_SECONDS_MAX or not what.went_on_meanwhile:
            yield f"acks={acks}: {what}"


def _brokers_known(cluster: NamespaceCluster) -> int:
    from confluent_kafka.admin import AdminClient

    return len(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}).list_topics(timeout=5).brokers)
