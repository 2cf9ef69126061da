"""Sequences about what a member may commit, about members that are asked for partitions twice, and about classic members beside others.

They are in a module of their own, so that the recorded answers to consumer.py and streams.py stay the same.
"""

from __future__ import annotations

from random import Random

from tests.broker.groups.sequences.acts import MEMBERS, Acts, Script
from tests.broker.groups.sequences.step import Sequence


def commits_sequence(chance: Random) -> Sequence:
    """Return commits by members, with older epochs, too, or by a producer without a member, in a transaction or not.

    Classic clients that get a member id do not join with it.
    """
    kind = chance.choice(("consumer", "consumer", "streams"))
    script = Script(chance)
    add, someone = script.add, script.someone

    def join(member: str) -> None:
        add("join", member, **({"topology": "stateless:t"} if kind == "streams" else {"assignor": "range"}))

    def commit() -> None:
        options = {"topic": "t", "partition": chance.choice("01239"), "offset": chance.choice("0159")}
        epoch = chance.choice(("same", "same", "prev", "prev", "by-1", "by1", "-1", "0"))
        verbs = ("txn-commit", "txn-commit", "commit", "admin-txn-commit", "admin-txn-commit")
        match chance.choice(verbs):
            case "admin-txn-commit":
                add("admin-txn-commit", epoch=chance.choice(("-1", "-1", "-1", "0", "3")), **options)
            case verb:
                add(verb, someone(), epoch=epoch, **options)

    acts: Acts = [
        (lambda: join(someone()), 12),
        (lambda: add("beat", someone(), owned="held"), 25),
        (script.rest, 8),
        (commit, 35),
        (lambda: add("txn-end", committed=chance.choice("110")), 10),
        (lambda: add("admin-fetch", topic="t", stable=chance.choice("01"), v="9"), 8),
        (lambda: add("forget", topic=chance.choice("tu")), 6),
        (lambda: add("leave", someone()), 6),
        (lambda: add("ask-id"), 8),
        (lambda: add(chance.choice(("list", "classic", "delete", "describe"))), 6),
        (lambda: add("jump", seconds=chance.choice(("2.5", "7.5"))), 3),
    ]
    if chance.random() < 0.3:
        add("ask-id")
    if chance.random() < 0.9:
        join("a")
    script.play(acts)
    script.rest()
    return Sequence(kind, tuple(script.steps))


def revocations_sequence(chance: Random) -> Sequence:
    """Return a sequence in which a member is asked to revoke partitions again while it revokes others; each time it has its
    whole rebalance timeout.
    """
    script = Script(chance)
    add = script.add
    topics = chance.choice(("t", "t+u"))
    add("join", "a", topics=topics, rebalance="5000", assignor="range")
    others = list(MEMBERS[1:])
    for _ in range(chance.randrange(2, 4)):
        if others and chance.random() < 0.8:
            add("join", others.pop(0), topics=chance.choice(("t", topics)), assignor="range")
        for _ in range(chance.randrange(1, 3)):
            add("beat", "a", **chance.choice(({"owned": "held"}, {"owned": "held"}, {"owned": "less"}, {})))
        if others != list(MEMBERS[1:]) and chance.random() < 0.5:
            add("beat", "b", owned="held")
        add("jump", seconds=chance.choice(("1.5", "3.5")))
    add("beat", "a", owned=chance.choice(("held", "less")))
    add("jump", seconds=chance.choice(("3.5", "6.5")))
    add("describe")
    add("beat", "a", owned="held")
    script.rest()
    return Sequence("consumer", tuple(script.steps))


def mixed_sequence(chance: Random) -> Sequence:
    """Return a sequence in which classic members join a consumer group, and stay when the others have left.

    Two cases are left out, because docs/DIFFERENCES.md has them: a client that joins an empty consumer group with a member id,
    and the time from a leave to the next target.
    """
    script = Script(chance)
    add = script.add
    new, classic = MEMBERS[:2], MEMBERS[2:]
    present = {"a"}
    add("join", "a", assignor="range")

    def join() -> None:
        member = chance.choice(new)
        present.add(member)
        add("join", member, assignor="range")

    def leave() -> None:
        member = chance.choice(sorted(present))
        if len(present) > 1:
            present.discard(member)
            add("leave" if member in new else "classic-leave", member)
            for other in sorted(present & set(new))[:1]:
                add("beat", other, owned="held")

    def classic_join() -> None:
        member, protocol = chance.choice(classic), chance.choice(("range", "range", "range+roundrobin", "sticky"))
        if not present & set(new):
            member, protocol = chance.choice(sorted(present)), "range"
        if protocol == "range":
            present.add(member)
        add("classic-join", member, protocol=protocol)

    def one(verb: str, **options: str) -> None:
        add(verb, chance.choice(classic), **options)

    acts: Acts = [
        (lambda: add("beat", chance.choice(new), owned="held"), 20),
        (join, 6),
        (leave, 8),
        (classic_join, 16),
        (lambda: one("classic-sync", epoch=chance.choice(("same", "same", "prev"))), 12),
        (lambda: one("classic-beat", epoch=chance.choice(("same", "same", "prev"))), 12),
        (lambda: one("commit", epoch=chance.choice(("same", "prev", "by-1")), partition=chance.choice("0123")), 8),
        (lambda: one("txn-commit", epoch=chance.choice(("same", "prev")), partition=chance.choice("0123")), 5),
        (lambda: add("describe"), 6),
        (lambda: add("classic"), 3),
    ]
    script.play(acts)
    add("describe")
    return Sequence("consumer", tuple(script.steps))
