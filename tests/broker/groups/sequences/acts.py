"""The steps that random sequences of consumer and of streams groups have in common: about committed offsets and changes of
topics.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.broker.groups.sequences.step import Step

MEMBERS = "abcd"
#: The acts of a sequence, each with its weight.
Acts = list[tuple[Callable[[], None], int]]


class Script:
    """A sequence that is being made."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.steps: list[Step] = []

    def add(self, verb: str, member: str = "-", **options: str) -> None:
        self.steps.append(Step(verb, member, options))

    def someone(self) -> str:
        return self.chance.choice(MEMBERS[: 2 + (self.chance.random() < 0.3) * 2])

    def rest(self) -> None:
        """Let all members send heartbeats until nothing more happens, then describe the group."""
        for member in MEMBERS[:2] * 2:
            self.add("beat", member, owned="held")
        self.add("describe")

    def topic(self, names: str) -> None:
        """Create, grow or delete one of the topics."""
        add, chance = self.add, self.chance
        name = chance.choice(names)
        chance.choice(
            (
                lambda: add("create", topic=name, partitions=chance.choice("124")),
                lambda: add("grow", topic=name, partitions=chance.choice("3568")),
                lambda: add("drop", topic=name),
            )
        )()

    def offsets(self, versions: tuple[str, ...], commits: int) -> None:
        """Commit, read or delete offsets. `commits` of the choices are a member's commit, in one of these versions."""
        add, chance, someone = self.add, self.chance, self.someone
        topic, partition = chance.choice(("t", "t", "u")), chance.choice("011239")
        version = chance.choice(versions)
        epoch = chance.choice(("same", "same", "same", "prev", "by1", "by-1", "-1", "0"))
        where = {"topic": topic, "v": version}

        def commit() -> None:
            add("commit", someone(), epoch=epoch, partition=partition, offset=chance.choice("0159"), **where)

        chance.choice(
            (
                *(commit,) * commits,
                lambda: add("admin-commit", partition=partition, **where),
                lambda: add("fetch", someone(), epoch=epoch, topic=chance.choice(("t", "all")), v="9"),
                lambda: add("admin-fetch", topic=chance.choice(("t", "u", "all")), v=chance.choice(("8", "9"))),
                lambda: add("forget", topic=topic),
            )
        )()

    def play(self, acts: Acts) -> None:
        for _ in range(self.chance.randrange(8, 22)):
            self.chance.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()
