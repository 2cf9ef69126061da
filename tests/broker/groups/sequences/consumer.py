"""Sequences of consumer groups (KIP-848)."""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.broker.groups.modern.assignment import assignment_of
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import TopicIdPartitions
from tests.broker.groups.sequences.acts import MEMBERS, Acts, Script
from tests.broker.groups.sequences.classic import ClassicPlayer
from tests.broker.groups.sequences.player import Member, names_of
from tests.broker.groups.sequences.step import Sequence, actual

SHORT_SESSION = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "2000"}


class ConsumerPlayer(ClassicPlayer):
    protocol = "consumer"

    async def join(
        self,
        member: Member,
        topics: str = "t",
        instance: str = "",
        assignor: str = "",
        rack: str = "",
        regex: str = "",
        rebalance: str = "60000",
        owned: str = "none",
    ) -> Any:
        member.instance = instance or None
        member.epoch, member.previous_epoch, member.held, member.named = 0, 0, None, None
        return await self._beat(
            member,
            0,
            owned,
            rack_id=rack or None,
            rebalance_timeout_ms=int(rebalance),
            subscribed_topic_names=[self.topic(name) for name in names_of(topics)],
            subscribed_topic_regex=self._regex(regex),
            server_assignor=assignor or None,
        )

    async def beat(
        self,
        member: Member,
        epoch: str = "same",
        owned: str = "",
        topics: str = "",
        regex: str | None = None,
        assignor: str = "",
    ) -> Any:
        fields: dict[str, Any] = {"server_assignor": assignor or None}
        if topics:
            fields["subscribed_topic_names"] = [self.topic(name) for name in names_of(topics) if name != "none"]
        if regex is not None:
            fields["subscribed_topic_regex"] = self._regex(regex) if regex else ""
        return await self._beat(member, member.epoch_of(epoch), owned, **fields)

    async def full(
        self,
        member: Member,
        epoch: str = "same",
        owned: str = "held",
        topics: str = "t",
        instance: str = "",
        assignor: str = "",
    ) -> Any:
        """Send a request with all fields, as a client does after an error."""
        member.instance = instance or None
        return await self._beat(
            member,
            member.epoch_of(epoch),
            owned,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic(name) for name in names_of(topics)],
            server_assignor=assignor or None,
        )

    async def leave(self, member: Member, epoch: str = "-1", instance: str | None = None) -> Any:
        kept, member.instance = member.instance, member.instance if instance is None else instance
        answer = await self._beat(member, int(epoch), "", remembers=False)
        member.instance = kept
        return answer

    def _regex(self, regex: str) -> str | None:
        """Return an expression that matches topics of this sequence alone."""
        whose = self.owner if self.sequence.has_own_topics else "all"
        return actual(regex, whose) if regex else None

    async def _beat(self, member: Member, epoch: int, owned: str, remembers: bool = True, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            self.group, member.id, epoch, member.instance, topic_partitions=self._owned(member, owned), **fields
        )
        answer = await self.side.request(request, 1)
        if not answer.error_code and remembers:
            member.advance(answer.member_epoch)
            if request.topic_partitions is not None:
                member.named = assignment_of(request.topic_partitions)
            if answer.assignment is not None:
                held = [(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions]
                has_named = member.named == assignment_of(answer.assignment.topic_partitions)
                is_full = "rebalance_timeout_ms" in fields
                if self.side.sends_again and held == member.held and not has_named and not is_full:
                    # Ottla sends the assignment again while the member has not reported exactly it (docs/DIFFERENCES.md).
                    answer.assignment = None
                member.held = held
        if fields.get("subscribed_topic_regex"):
            await self.settle()
        return answer

    def _owned(self, member: Member, word: str) -> list[TopicIdPartitions] | None:
        """Return the partitions that a member reports: `held` is its assignment, `less` the assignment without the last
        partition of each topic, `more` has a partition besides.
        """
        held = [TopicIdPartitions(topic_id, sorted(partitions)) for topic_id, partitions in member.held or ()]
        match word:
            case "none":
                return []
            case "held":
                return held
            case "less":
                return [TopicIdPartitions(each.topic_id, each.partitions[:-1]) for each in held if each.partitions[1:]]
            case "more":
                return [TopicIdPartitions(self.topic_id("t"), [0, 1, 2, 3])]
            case "unknown":
                return [TopicIdPartitions(b"\1" * 16, [0])]
        return None

    async def describe(self) -> Any:
        return await self.side.request(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1)


# ---- chance


def consumer_sequence(chance: Random) -> Sequence:
    kind = chance.choice(("plain", "plain", "plain", "topics", "regex", "time"))
    own = kind in ("topics", "regex") or chance.random() < 0.1
    # The uniform assignor follows Java's hash maps (docs/DIFFERENCES.md) when members want several topics.
    assignor = "range" if kind == "regex" else chance.choice(("range", "uniform"))
    # No member rejoins as a static one, or stops being one: docs/DIFFERENCES.md has that case.
    instances = {member: chance.choice((None, None, "i", "j")) for member in MEMBERS}
    resolved = 0
    topics = ("t", "t+u", "u") if assignor == "range" else ("t",)
    versions = ("8", "9", "9", "9", "10") if not own else ("8", "9", "9")
    script = Script(chance)
    add, someone = script.add, script.someone

    def expression(*choice: str) -> dict[str, str]:
        """Return a change of the expression. A group's expressions are resolved at most every ten seconds."""
        nonlocal resolved
        if resolved:
            add("jump", seconds="10.5")
        resolved += 1
        return {"regex": chance.choice(choice)}

    def join(member: str) -> None:
        options = {"topics": chance.choice(topics)}
        if assignor != "uniform" or chance.random() < 0.2:
            options["assignor"] = assignor
        if kind == "regex" and resolved < 2 and chance.random() < 0.6:
            options |= expression("t", "[tu]", "t|u", "(", "w", ".")
            options["topics"] = chance.choice(("", "", "u"))
        if instance := instances[member]:
            options["instance"] = instance
        if chance.random() < 0.15:
            options |= chance.choice(({"rack": "r"}, {"assignor": "x"}, {"owned": "more"}, {"rebalance": "-1"}))
        if assignor == "range" and chance.random() < 0.03:
            options["topics"] = ""
        if kind == "time" and chance.random() < 0.5:
            options["rebalance"] = "1500"
        add("join", member, **options)

    def beat(member: str) -> None:
        options = {}
        if chance.random() < 0.7:
            options["owned"] = chance.choices(("held", "less", "none", "more", "unknown"), (60, 8, 8, 4, 2))[0]
        if chance.random() < 0.2:
            options["epoch"] = chance.choice(("prev", "prev", "by1", "by-1", "by7", "-3"))
        if chance.random() < 0.1:
            options["topics"] = chance.choice((*topics, "none", "t+x") if assignor == "range" else topics)
        if chance.random() < 0.05:
            options["assignor"] = chance.choice(("range", "x") if assignor == "range" else ("uniform", "x"))
        if kind == "regex" and resolved < 2 and chance.random() < 0.2:
            options |= expression("t", "u", "", "[")
        add("beat", member, **options)

    def full(member: str) -> None:
        options = {"epoch": chance.choice(("same", "prev")), "topics": topics[0]}
        if assignor == "range":
            options["assignor"] = assignor
        add("full", member, **options, **({"instance": instance} if (instance := instances[member]) else {}))

    def leave() -> None:
        options = {"epoch": chance.choice(("-1", "-1", "-2"))}
        if chance.random() < 0.2:
            options["instance"] = chance.choice(("i", "j"))
        add("leave", someone(), **options)

    acts: Acts = [
        (lambda: join(someone()), 14),
        (lambda: beat(someone()), 40),
        (script.rest, 8),
        (leave, 10),
        (lambda: script.offsets(versions, commits=2), 16),
        (lambda: add("describe"), 6),
        (lambda: add(chance.choice(("list", "classic", "delete"))), 5),
        (lambda: full(someone()), 4),
    ]
    if kind in ("topics", "regex"):
        acts.append((lambda: script.topic("tuw"), 12))
    if kind == "time":
        acts.append((lambda: add("jump", seconds=chance.choice(("2.5", "2.5", "9"))), 12))
    if chance.random() < 0.9:
        join("a")
    script.play(acts)
    script.rest()
    return Sequence("consumer", tuple(script.steps), own, SHORT_SESSION if kind == "time" else {})
