"""Snapshots of a cluster under load, again and again: what a fork has is what the cluster had at one moment (docs/SNAPSHOTS.md).

An application copies records in transactions, with the offsets of its group: in each fork the committed copies are those of the
records below the group's offsets, all of them and no others. Producers write beside it: what was acknowledged before a snapshot
began is in its forks. A consumer commits offsets: none is past the end of its partition. The cluster itself loses nothing.

Forks of the last snapshot are rewound to moments in between, for which all of that holds, too.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from ottla.local.snapshots.rewinding import rewind_fork
from ottla.testing import Cluster
from ottla.testing.snapshots import ClusterSnapshot
from tests.chaos.exactly_once import OFFSETS, open_transactions, read_committed
from tests.chaos.exactly_once import fill as fill_source
from tests.chaos.history import PARTITIONS as WRITTEN_PARTITIONS
from tests.chaos.history import TOPIC, Load, Place, Record, broken_promises, create_topic, judge, read_everything
from tests.chaos.message_copiers import PARTITIONS, SOURCE, TARGET, LibrdkafkaMessageCopier
from tests.cluster.transactor import Nodes
from tests.effort import RECORDS_PER_SECOND

TRANSACTIONAL_ID, GROUP, READERS = "copier", "copiers", "readers"
PRODUCERS = 2
READ_UNCOMMITTED = 0
SETTLED_SECONDS_MAX = 20
#: The rate of each producer in the long form. Each of its 24 checks reads all earlier records: at a higher rate a slow
#: machine did not finish within two minutes.
RECORDS_PER_SECOND_LONG = 2_000
#: Some segments are sealed while the snapshots are taken, and some are not.
SEGMENT_BYTES = str(1 << 20)


@dataclass
class Verdict:
    """The result of a run; `problems` is empty when every promise held."""

    fences_ms: list[float] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    rewound: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(*, snapshots: int, count: int, seed: int, nodes: int) -> Verdict:
    verdict, rng = Verdict(), random.Random(seed)
    moments: list[tuple[int, dict[Record, Place]]] = []
    with Cluster(nodes, num_partitions=str(PARTITIONS), log_segment_bytes=SEGMENT_BYTES) as cluster:
        fill_source(cluster, count)
        create_topic(cluster.bootstrap, nodes)
        rate = RECORDS_PER_SECOND or RECORDS_PER_SECOND_LONG
        loads = [Load(cluster.bootstrap, n, padding=500, per_second=rate) for n in range(PRODUCERS)]
        copier = LibrdkafkaMessageCopier(cluster.bootstrap, TRANSACTIONAL_ID, GROUP, count, seed)
        with _reader(cluster.bootstrap):
            for _ in range(snapshots):
                copier.wait_for_commits(rng.randint(1, 5))
                for load in loads:
                    load.wait_for_acknowledgements(100)
                time.sleep(rng.uniform(0, 0.2))  # at any moment of the transactions in progress
                before = _acknowledged(loads)
                with cluster.snapshot() as taken:
                    verdict.fences_ms.append(taken.about.fence_ms)
                    with taken.fork() as fork:
                        verdict.acknowledged.append(len(before))
                        verdict.problems += _check(fork, before, verdict)
                copier.wait_for_commits(rng.randint(1, 3))
                before = _acknowledged(loads)
                moments.append((time.time_ns() // 1_000_000, before))
                copier.wait_for_commits(rng.randint(1, 3))
            with cluster.snapshot() as taken:
                for time_ms, before in moments:
                    verdict.problems += _rewound(taken, time_ms, before, verdict)
        for load in loads:
            load.stop()
        # Requests that a fork sends to the cluster's nodes, as if it was one of them, would end a follower's fetches or a
        # transaction.
        shrunk = sum(cluster.log(node).count("Shrinking ISR") for node in cluster.nodes)
        if shrunk:
            verdict.problems.append(f"{shrunk} times a follower of the cluster fell behind")
        verdict.problems += judge(loads, read_everything(cluster.bootstrap))
    return verdict


def _acknowledged(loads: Iterable[Load]) -> dict[Record, Place]:
    found: dict[Record, Place] = {}
    for load in loads:
        found |= load.acknowledged
    return found


def _rewound(taken: ClusterSnapshot[Cluster], time_ms: int, before: dict[Record, Place], verdict: Verdict) -> list[str]:
    with TemporaryDirectory(prefix="ottla-rewound-") as place:
        fork = taken.fork(place)
        rewind_fork(place, time_ms)
        verdict.rewound.append(len(before))
        with fork:
            return [f"rewound: {problem}" for problem in _check(fork, before, verdict)]


@contextmanager
def _reader(bootstrap: str) -> Iterator[None]:
    """Run a consumer that commits as fast as it can."""
    from confluent_kafka import Consumer, KafkaException

    ended = threading.Event()

    def read() -> None:
        settings = {"group.id": READERS, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        consumer.subscribe([TOPIC])
        while not ended.is_set():
            if consumer.consume(100, 0.1):
                with suppress(KafkaException):  # the coordinator is busy: the next commit has these offsets as well
                    consumer.commit(asynchronous=False)
        consumer.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _committed(nodes: Nodes) -> list[int]:
    return [max(0, nodes.committed_offset(GROUP, SOURCE, index)) for index in range(PARTITIONS)]


def _half(fork: Cluster, nodes: Nodes) -> list[str]:
    """Return a line about transactions of which a fork has only a part."""
    wanted = Counter(index + PARTITIONS * n for index, end in enumerate(_committed(nodes)) for n in range(end))
    copies = Counter(int(value) for value in read_committed(fork, TARGET))
    if copies == wanted:
        return []
    missing, extra = wanted - copies, copies - wanted
    return [
        f"{missing.total()} copies are missing like {[*missing][:5]}, and {extra.total()} too many like {[*extra][:5]}"
    ]


def _check(fork: Cluster, before: dict[Record, Place], verdict: Verdict) -> list[str]:
    problems = broken_promises(before, read_everything(fork.bootstrap))
    fork.advance(minutes=2)  # transactions that were open in the snapshot time out, and are aborted
    problems += open_transactions(fork, TARGET) + open_transactions(fork, OFFSETS)
    of_fork = Nodes(fork)
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while (wrong := _half(fork, of_fork)) and time.monotonic() < deadline:
        time.sleep(0.2)  # a prepared transaction gets its markers partition by partition
    problems += wrong
    verdict.committed.append(sum(_committed(of_fork)))
    for index in range(WRITTEN_PARTITIONS):
        offset, end = (
            of_fork.committed_offset(READERS, TOPIC, index),
            of_fork.end_offset(TOPIC, index, READ_UNCOMMITTED),
        )
        if offset > end:
            problems.append(f"{READERS} committed {offset} of {TOPIC}-{index}, which ends at {end}")
    fork.write(TOPIC, ["of the fork"])
    return problems
