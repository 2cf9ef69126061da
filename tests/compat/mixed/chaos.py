"""Accidents drawn one after the other, over both kinds: kills of every role, changes of kind, and cuts."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.chaos.history import TOPIC
from tests.chaos.network import Network
from tests.compat.mixed import cuts
from tests.compat.mixed.nodes import KAFKA, OTTLA, Mixed, Node, is_kafka
from tests.compat.mixed.rolling import IDS, Users, finish, running
from tools.apache_kafka.jars import streams_classpath

CHAOS_SECONDS = 3_600


def chaos(directory: Path, seed: int = 1) -> None:
    """Run for an hour, or OTTLA_MIXED_CHAOS_SECONDS; without the rights to make a network nothing is cut."""
    rng, happened = random.Random(seed), Counter[str]()
    accidents, network = ACCIDENTS, None
    if reason := cuts.missing():
        print(f"  no link is cut: {reason}", flush=True)
    else:
        accidents, network = ACCIDENTS | cuts.ACCIDENTS, Network(IDS)
        streams_classpath()  # fetched here: there is no way to a repository from within the network
    ends = time.monotonic() + float(os.environ.get("OTTLA_MIXED_CHAOS_SECONDS", CHAOS_SECONDS))
    with network or nullcontext(), running(directory, (KAFKA, OTTLA, KAFKA), seed, network) as (mixed, users):
        users.add_newer()
        while time.monotonic() < ends:
            users.wait_in_sync()
            users.go_on(rng)
            name = rng.choice(list(accidents))
            happened[name] += 1
            kinds = ", ".join(node.kind for node in mixed.nodes.values())
            mixed.note(f"{name} of {kinds}, {users.text()}")
            accidents[name](mixed, users, rng)
            mixed.wait_brokers(*IDS)
        users.wait_in_sync()
        finish(users, f"{dict(happened)}")


def _kill(users: Users, rng: random.Random, victim: Node) -> None:
    victim.kill()
    users.go_on(rng)
    victim.start()


def _kill_leader(mixed: Mixed, users: Users, rng: random.Random) -> None:
    _kill(users, rng, mixed.nodes[rng.choice(mixed.partitions(TOPIC))[0]])


def _kill_controller(mixed: Mixed, users: Users, rng: random.Random) -> None:
    _kill(users, rng, mixed.wait_leader())


def _kill_one(mixed: Mixed, users: Users, rng: random.Random) -> None:
    _kill(users, rng, rng.choice(list(mixed.nodes.values())))


def _change_one(mixed: Mixed, users: Users, rng: random.Random, how: Callable[[Node], None]) -> None:
    node = rng.choice(list(mixed.nodes.values()))
    how(node)
    node.become(OTTLA if is_kafka(node.kind) else KAFKA).start()


#: One node at a time: with two or all killed, an Apache Kafka leader rejects what it has appended with NOT_ENOUGH_REPLICAS (FINDINGS.md).
ACCIDENTS: dict[str, Callable[[Mixed, Users, random.Random], None]] = {
    "kill of a leader": _kill_leader,
    "kill of the controller": _kill_controller,
    "kill of one": _kill_one,
    "change after a stop": partial(_change_one, how=Node.stop),
    "change after a kill": partial(_change_one, how=Node.kill),
}
STEPS: dict[str, Callable[[Path], None]] = {"chaos": chaos}
