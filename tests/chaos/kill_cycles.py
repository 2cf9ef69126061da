"""kill -9 and restart of a single node under idempotent load, again and again: no acknowledged record may be lost, doubled or moved."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.chaos.history import Load, create_topic, judge, read_everything
from tests.chaos.node_process import NodeProcess


@dataclass
class Verdict:
    """The result of a run of cycles; `problems` is empty when every promise held."""

    cycles: int = 0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    restart_seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(cycles: int, seed: int, **properties: str) -> Verdict:
    """Run one new node, kill it `cycles` times under load, then read and judge the records."""
    rng = random.Random(seed)
    verdict = Verdict(cycles)
    node = NodeProcess(**properties)
    try:
        node.start()
        create_topic(node.bootstrap, 1)
        load = Load(node.bootstrap)
        for _ in range(cycles):
            load.wait_for_acknowledgements(rng.randint(1, 400))  # a kill can come at any moment of a busy node
            node.kill()
            verdict.restart_seconds.append(node.start())
        load.stop()
        verdict.sent, verdict.acknowledged = load.sent, len(load.acknowledged)
        places = read_everything(node.bootstrap)
        verdict.read = len(places)
        verdict.problems = judge([load], places)
    finally:
        node.remove()
    return verdict
