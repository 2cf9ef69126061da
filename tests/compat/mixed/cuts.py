"""Cuts of the network between a node of Apache Kafka and one of Ottla, one way or both ways, and their end, under load."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from tests.chaos.history import TOPIC
from tests.chaos.network import SKIP_REASON, Network, available
from tests.compat.mixed.nodes import KAFKA, OTTLA, Mixed, Node, is_kafka, until
from tests.compat.mixed.rolling import IDS, Users, finish, running

KINDS = (KAFKA, OTTLA, OTTLA)
Link = tuple[int, int]


def missing() -> str | None:
    """Return what is missing on this machine for a network of its own, or None."""
    return None if available() else SKIP_REASON


def links_between_kinds(mixed: Mixed) -> list[Link]:
    """Return the links between each node of Kafka and each of Ottla."""
    nodes = mixed.nodes.values()
    return [(a.id, b.id) for a in nodes if is_kafka(a.kind) for b in nodes if not is_kafka(b.kind)]


def cut(mixed: Mixed, users: Users, rng: random.Random, links: Iterable[Link]) -> None:
    """Lose the packets from the first to the second of each pair, until a replica is out of the ISR and producers have
    gone on.
    """
    assert mixed.network is not None
    _spread_leaders(mixed)
    links = list(links)
    cut_off = set.intersection(*map(set, links))
    active = mixed.wait_leader()
    mixed.note(f"cut {links}; the active controller is {active.kind} {active.id}")
    witnesses = [node for node in mixed.nodes.values() if node.id not in cut_off]
    for sender, receiver in links:
        mixed.network.cut(sender, receiver)
    try:
        until(f"the cut of {links} is noticed", lambda: any(_lacks_a_replica(mixed, node) for node in witnesses))
        users.write_on(rng)
    finally:
        mixed.network.heal()
        mixed.note("heal")
    users.go_on(rng)


def isolate(mixed: Mixed, users: Users, rng: random.Random, node_id: int) -> None:
    """Cut the node's links to both others, both ways. Clients still reach it."""
    others = [other for other in IDS if other != node_id]
    cut(mixed, users, rng, [link for other in others for link in ((node_id, other), (other, node_id))])


def _spread_leaders(mixed: Mixed) -> None:
    """Move leaders so that each node leads a partition, and each cut is between a leader and its follower."""

    def spread() -> bool:
        mixed.request(ElectLeadersRequest(topic_partitions=None, timeout_ms=4_000), ApiKey.ELECT_LEADERS, 2)
        return {leader for leader, _ in mixed.partitions(TOPIC)} == set(IDS)

    until("each node leads", spread)


def _lacks_a_replica(mixed: Mixed, witness: Node) -> bool:
    return any(isr != sorted(IDS) for _, isr in mixed.partitions(TOPIC, witness))


def cut_links(directory: Path, seed: int = 1) -> None:
    """Cut every link between the kinds, in each direction and in both, first while Kafka's node is the active controller, then
    Ottla's.

    In each of the two rounds each node is isolated, too, whether it is the active controller or only a leader.
    """
    rng, cuts = random.Random(seed), Counter[str]()
    with Network(IDS) as network, running(directory, KINDS, seed, network) as (mixed, users):
        users.go_on(rng)
        for kind in (OTTLA, KAFKA):
            for kafka, ottla in links_between_kinds(mixed):
                there, back = (kafka, ottla), (ottla, kafka)
                for name, links in (("to Ottla", [there]), ("to Kafka", [back]), ("both ways", [there, back])):
                    _lead(mixed, users, kind)
                    cut(mixed, users, rng, links)
                    cuts[name] += 1
            for node_id in IDS:
                _lead(mixed, users, kind)
                isolate(mixed, users, rng, node_id)
                cuts["isolated"] += 1
        users.wait_in_sync()
        finish(users, f"{dict(cuts)}")


def _lead(mixed: Mixed, users: Users, kind: str) -> None:
    """Wait until all are in sync and the active controller is a node of this kind. An active controller of the other kind is
    started again.
    """
    users.wait_in_sync()
    while (active := mixed.wait_leader()).kind != kind:
        active.stop()
        active.start()
        mixed.wait_brokers(*IDS)
        users.wait_in_sync()


def cut_one(mixed: Mixed, users: Users, rng: random.Random, *, is_one_way: bool) -> None:
    """Cut a link between the kinds, or any link if all nodes are of one kind."""
    first, second = rng.choice(links_between_kinds(mixed) or [(1, 2), (1, 3), (2, 3)])
    if rng.random() < 0.5:
        first, second = second, first
    cut(mixed, users, rng, [(first, second)] if is_one_way else [(first, second), (second, first)])


def isolate_one(mixed: Mixed, users: Users, rng: random.Random) -> None:
    isolate(mixed, users, rng, rng.choice(IDS))


ACCIDENTS: dict[str, Callable[[Mixed, Users, random.Random], None]] = {
    "cut one way": partial(cut_one, is_one_way=True),
    "cut both ways": partial(cut_one, is_one_way=False),
    "isolation": isolate_one,
}
STEPS: dict[str, Callable[[Path], None]] = {"network-cuts": cut_links}
