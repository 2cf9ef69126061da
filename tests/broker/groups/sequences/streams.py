"""Sequences of streams groups (KIP-1071)."""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.shared_structs import KeyValue, TaskIds
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Topology,
)
from tests.broker.groups.sequences.acts import Acts, Script
from tests.broker.groups.sequences.player import Member
from tests.broker.groups.sequences.step import Sequence, actual
from tests.broker.groups.sequences.transactional import TransactionalPlayer
from tests.broker.groups.streams.topologies import joined, stateful, stateless, word_count

SHORT_SESSION = {"streams.session.timeout.ms": "6000", "streams.heartbeat.interval.ms": "2000"}
MISSING_INTERNAL_TOPICS = 3
CREATION_TRIES_MAX = 10
NOTHING: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


class StreamsPlayer(TransactionalPlayer):
    protocol = "streams"

    async def join(
        self,
        member: Member,
        topology: str = "stateless:t",
        epoch: str = "0",
        process: str = "",
        rebalance: str = "60000",
        instance: str = "",
        rack: str = "",
        tags: str = "",
        owned: str = "none",
    ) -> Any:
        member.epoch, member.previous_epoch, member.held = 0, 0, None
        return await self._beat(
            member,
            0,
            topology=self._topology(topology, int(epoch)),
            process_id=process or f"process-{member.id}",
            rebalance_timeout_ms=int(rebalance),
            instance_id=instance or None,
            rack_id=rack or None,
            client_tags=[KeyValue("k", tag) for tag in tags],
            **self._owned(member, owned),
        )

    async def beat(self, member: Member, epoch: str = "same", owned: str = "", shutdown: str = "") -> Any:
        fields = self._owned(member, owned)
        return await self._beat(member, member.epoch_of(epoch), shutdown_application=bool(shutdown), **fields)

    async def leave(self, member: Member, epoch: str = "-1") -> Any:
        return await self.side.request(StreamsGroupHeartbeatRequest(self.group, member.id, int(epoch)), 0)

    async def _beat(self, member: Member, epoch: int, **fields: Any) -> Any:
        answer = await self.side.request(StreamsGroupHeartbeatRequest(self.group, member.id, epoch, **fields), 0)
        if not answer.error_code:
            member.advance(answer.member_epoch)
            if answer.active_tasks is not None:
                member.held = [
                    [(each.subtopology_id, each.partitions) for each in tasks or ()]
                    for tasks in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
                ]
        elif answer.error_code == -1:
            answer.error_message = None
        for status in answer.status or ():
            if status.status_code == MISSING_INTERNAL_TOPICS:
                await self._until_there(status.status_detail.partition("missing: ")[2].split(", "))
            # Kafka names missing topics in the order of its hash map.
            detail, colon, names = status.status_detail.partition("missing: ")
            status.status_detail = detail + colon + ", ".join(sorted(names.split(", ")))
        return answer

    async def _until_there(self, topics: list[str]) -> None:
        """Wait for internal topics, which are created after the response."""
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in topics], False)
        for _ in range(CREATION_TRIES_MAX):
            await self.settle()
            if not any(topic.error_code for topic in (await self.side.request(request, 12)).topics):
                break
        await self.settle()

    def _topology(self, text: str, epoch: int) -> Topology:
        kind, _, names = text.partition(":")
        topics = [self.topic(name) for name in names.split(",")]
        store = actual("store", self.owner)
        match kind:
            case "stateful":
                return stateful(*topics, epoch=epoch, name=store)
            case "count":
                return word_count(topics[0], store, epoch)
            case "joined":
                return joined(topics, epoch)
        return stateless(*topics, epoch=epoch)

    def _owned(self, member: Member, word: str) -> dict[str, Any]:
        """Return the tasks that a member reports: `held` are its assigned tasks; `more` and `unknown` add tasks that it was not
        assigned, or that do not exist.
        """
        if not word:
            return {}
        if word == "none" or member.held is None:
            return NOTHING
        lists = [[TaskIds(key, sorted(partitions)) for key, partitions in tasks] for tasks in member.held]
        if word == "more":
            first = next((tasks for tasks in lists[0] if tasks.subtopology_id == "0"), None)
            lists[0] = [tasks for tasks in lists[0] if tasks is not first]
            lists[0].append(TaskIds("0", sorted({0, 1, 2, 3}.union(first.partitions if first else ()))))
        elif word == "unknown":
            lists[0].append(TaskIds("9", [0]))
        return dict(zip(NOTHING, lists, strict=True))

    async def describe(self) -> Any:
        return await self.side.request(StreamsGroupDescribeRequest(group_ids=[self.group]), 0)


# ---- chance


def streams_sequence(chance: Random) -> Sequence:
    kind = chance.choice(("plain", "plain", "internal", "topics", "epochs", "time"))
    own = kind == "topics" or chance.random() < 0.1
    configs = dict(SHORT_SESSION) if kind == "time" else {}
    if kind == "internal" and chance.random() < 0.3:
        configs["streams.num.standby.replicas"] = "1"
    if kind == "internal":
        topologies = (chance.choice(("stateful:t", "stateful:t,u", "count:t", "count:u")),)
    else:
        topologies = (
            chance.choice(
                ("stateless:t", "stateless:t", "stateless:t,u", "joined:t,u", "stateless:u", "stateless:t,x")
            ),
        )
    # Java's hash maps decide which of two processes with the same load gets a task first: so all members share one process, or
    # each has its own.
    is_one_process = chance.random() < 0.15
    versions = ("8", "9", "9", "9")
    script = Script(chance)
    add, someone = script.add, script.someone

    def join(member: str) -> None:
        options = {"topology": chance.choice(topologies)}
        if kind == "epochs":
            options["epoch"] = chance.choice("0012")
            if chance.random() < 0.4:
                options["topology"] = chance.choice(("stateless:t", "stateless:t,u"))
        if chance.random() < 0.12:
            options |= chance.choice(
                (
                    {"rack": "r"},
                    {"instance": "i"},
                    {"owned": "more"},
                    {"rebalance": "-1"},
                    {"tags": "zz"},
                    {"tags": "z"},
                    {"epoch": "-1"},
                )
            )
        if is_one_process:
            options["process"] = "shared"
        if kind == "time" and chance.random() < 0.5:
            options["rebalance"] = "1500"
        add("join", member, **options)

    def beat(member: str) -> None:
        # No member reports fewer tasks than it was assigned: docs/DIFFERENCES.md has that case.
        options = {}
        if chance.random() < 0.7:
            options["owned"] = chance.choices(("held", "more", "unknown"), (75, 4, 2))[0]
        if chance.random() < 0.2:
            options["epoch"] = chance.choice(("prev", "prev", "by1", "by-1", "by7", "-3"))
        if chance.random() < 0.02:
            options["shutdown"] = "1"
        add("beat", member, **options)

    acts: Acts = [
        (lambda: join(someone()), 14),
        (lambda: beat(someone()), 40),
        (script.rest, 8),
        (lambda: add("leave", someone(), epoch=chance.choice(("-1", "-1", "-1", "-2"))), 10),
        (lambda: script.offsets(versions, commits=1), 12),
        (lambda: add("describe"), 6),
        (lambda: add(chance.choice(("list", "classic", "delete"))), 5),
    ]
    if kind == "topics":
        acts.append((lambda: script.topic("tux"), 12))
    if kind == "time":
        acts.append((lambda: add("jump", seconds=chance.choice(("2.5", "2.5", "9"))), 12))
    if chance.random() < 0.9:
        join("a")
    script.play(acts)
    script.rest()
    return Sequence("streams", tuple(script.steps), own, configs)
