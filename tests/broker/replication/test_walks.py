"""Random commands for the harness: in any order of deliveries, what was acknowledged is in the log of everybody who may lead cleanly.

Only pure parts run, so that a walk takes a fraction of a second. A failing walk is printed as a script, which can become a
transcript as it is. Tried with mistakes put in: they find a watermark that ignores followers, min ISR or a proposed member, a
shrink that is believed before it is made, and a truncation to the watermark. A fetch brings everything at once here, so not a
follower that joins too early: that is the simulated clusters' (tests/sim/).
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import KafkaError
from tests.broker.replication.harness import TOPIC, Broker, ReplicationHarness
from tests.controller.harness import DecisionHarness
from tests.transcripts import Interpreter

WALKS, STEPS = 40, 60
#: The followers that fetch in a quiet time: the second fetch of a follower says that it has the records of the first one.
QUIET = (1, 2, 3, 1, 2, 3)


class Walk:
    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.harness = ReplicationHarness(folder)
        self.interpreter = Interpreter(self.harness.commands(), self.harness.drain)
        self.script: list[str] = []
        #: Offset -> the record's bytes, once it was answered with NONE to a producer that asked for all.
        self.acknowledged: dict[int, bytes] = {}
        self.do(f"topic min_isr={self.random.choice('122')} elr={self.random.choice(['on', 'off'])}")

    @property
    def controller(self) -> DecisionHarness:
        return self.harness.controller

    def do(self, command: str) -> None:
        self.script.append(command)
        for line in self.interpreter.run(command):
            self.script.append(f"    {line}")
            broker, _, answer = line.partition(" answers for ")
            offset, _, error = answer.partition(": ")
            if error == "NONE":
                self.acknowledged[int(offset)] = value(self.harness.brokers[int(broker)], int(offset))
        self.check()

    def step(self) -> None:
        broker = str(self.random.randint(1, 3))
        if self.random.random() < 0.15:
            # A quiet time follows: otherwise hardly any record would ever be acknowledged.
            for command in ("metadata 1 2 3", *(f"fetch {n}" for n in QUIET)):
                self.do(command)
            return
        fenced = [str(n) for n, each in self.controller.image.cluster.brokers.items() if each.fenced]
        commands = {
            f"fetch {broker}": 12,
            f"produce {broker} {self.random.randint(1, 2)}": 12,
            f"metadata {broker}": 4,
            "controller": 6,
            "pass 31s": 3,
            "elect": 1,
        }
        commands |= {f"unfence {n}": 2 for n in fenced} | {f"return {n}": 2 for n in fenced}
        if broker not in fenced:
            commands[f"fence {broker}"] = 1
        command = self.random.choices(list(commands), list(commands.values()))[0]
        partition = self.partition(broker)
        if command.startswith("produce" if not partition.is_leader else "fetch"):
            return
        self.do(command)

    def partition(self, broker: str) -> Partition:
        return self.harness.brokers[int(broker)].partition

    # -- What has to be true after every step ------------------------------------------------------------------------

    def check(self) -> None:
        registration = self.controller.partition(TOPIC)
        for member in (*registration.isr, *registration.elr):
            broker = self.harness.brokers[member]
            for offset, record in self.acknowledged.items():
                has = offset < broker.log.log_end_offset and value(broker, offset) == record
                assert has, f"{member} may lead and has not what was acknowledged at {offset}"
        for broker in self.harness.brokers.values():
            log = broker.log
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, broker.id
        in_charge = [b for b in self.harness.brokers.values() if b.partition.is_leader]
        epochs = [b.partition.leader_epoch for b in in_charge]
        assert len(set(epochs)) == len(epochs), "two leaders of one epoch"


def value(broker: Broker, offset: int) -> bytes:
    """Return the record's value: the batch's bytes without offset and epoch, which a leader sets."""
    return bytes(broker.log.read(offset, max_bytes=1).records)[21:]


@pytest.mark.parametrize("seed", range(WALKS))
def test_what_was_acknowledged_is_with_all_who_may_lead(seed: int, tmp_path: Path) -> None:
    walk = Walk(seed, tmp_path)
    try:
        for _ in range(STEPS):
            walk.step()
    except (AssertionError, KafkaError):
        print("\n".join(walk.script))
        raise
    finally:
        walk.harness.close()
