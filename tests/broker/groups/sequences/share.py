"""Sequences of share groups (KIP-932): their members, their records and their offsets."""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    TopicIdPartitions,
)
from tests.broker.groups.sequences.player import Member, Player, names_of
from tests.broker.groups.sequences.step import Sequence, Step, member_id

MEMBERS = "abcd"
RENEW = 4
MEMBER_D = member_id("d")
MAX_BYTES = 1 << 20
NO_WAIT = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}

#: The longest time of a step in seconds: no lock is about to end between two jumps of the clock.
LASTS = {"take": 0.6, "join": 0.5, "beat": 0.5, "warm": 1.0}
ELAPSED_MAX = 3.0

Partition = tuple[str, int]
Acknowledged = list[tuple[int, int, list[int]]]


class ShareMember(Member):
    """A member of a share group: `session_epoch` is the epoch of its next request, `acquired` are the offsets that it may
    acknowledge.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.session_epoch = 0
        self.acquired: dict[Partition, list[int]] = {}

    def session_epoch_of(self, word: str) -> int:
        return (
            self.session_epoch
            if word == "next"
            else self.session_epoch + int(word[2:])
            if word[0] == "b"
            else int(word)
        )


class SharePlayer(Player):
    protocol = "share"

    def member(self, name: str) -> ShareMember:
        if name not in self.members:
            self.members[name] = ShareMember(name)
        member = self.members[name]
        assert isinstance(member, ShareMember)
        return member

    # ---- membership

    async def join(self, member: Member, topics: str = "s", rack: str = "") -> Any:
        member.epoch, member.previous_epoch = 0, 0
        return await self._beat(member, 0, topics, rack)

    async def beat(self, member: Member, epoch: str = "same", topics: str = "") -> Any:
        return await self._beat(member, member.epoch_of(epoch), topics, "")

    async def leave(self, member: Member) -> Any:
        return await self.side.request(ShareGroupHeartbeatRequest(self.group, member.id, -1), 1)

    async def _beat(self, member: Member, epoch: int, topics: str, rack: str) -> Any:
        names = [self.topic(name) for name in names_of(topics) if name != "none"] if topics else None
        request = ShareGroupHeartbeatRequest(self.group, member.id, epoch, rack or None, names)
        answer = await self.side.request(request, 1)
        if not answer.error_code:
            member.advance(answer.member_epoch)
        # Share partitions are initialized after the response.
        await self.settle()
        return answer

    async def describe(self) -> Any:
        return await self.side.request(ShareGroupDescribeRequest(group_ids=[self.group]), 1)

    # ---- records

    async def take(
        self,
        member: ShareMember,
        parts: str,
        epoch: str = "next",
        max: str = "500",
        batch: str = "500",
        strict: str = "0",
        forget: str = "",
        v: str = "2",
    ) -> Any:
        """Send a ShareFetch. A part is topic:partition; topic:partition:which:types also acknowledges records."""
        topics, renews, done = self._topics(member, parts)
        forgotten = [
            TopicIdPartitions(self.topic_id(name), [int(index)])
            for name, index in (part.split(":") for part in names_of(forget))
        ]
        limits = (
            NO_WAIT if renews else {"max_wait_ms": 600, "min_bytes": 1, "max_bytes": MAX_BYTES, "max_records": int(max)}
        )
        request = share_fetch.ShareFetchRequest(
            self.group,
            member.id,
            member.session_epoch_of(epoch),
            **limits,
            batch_size=int(batch),
            share_acquire_mode=int(strict),
            is_renew_ack=renews,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer = await self.side.request(request, int(v))
        self._settled(member, answer, request.share_session_epoch, done, "acknowledge_error_code")
        for row in (row for topic in answer.responses for row in topic.partitions):
            row.acquired_records = _merged(row.acquired_records)
        _forget_texts(answer, "acknowledge_")
        for topic in answer.responses:
            for row in topic.partitions:
                at = self.side.topic_names[topic.topic_id], row.partition_index
                new = {o for each in row.acquired_records for o in range(each.first_offset, each.last_offset + 1)}
                member.acquired[at] = sorted(new.union(member.acquired.get(at, [])))
        return answer

    async def warm(self, parts: str) -> str:
        """Fetch once, so that the partitions are loaded; a fetch does not wait for all of them."""
        topics, _, _ = self._topics(ShareMember("d"), parts)
        for epoch in (0, -1):
            request = share_fetch.ShareFetchRequest(
                self.group, MEMBER_D, epoch, 0, 1, MAX_BYTES, 1, 1, 1, topics=topics if epoch == 0 else []
            )
            await self.side.request(request, 2)
            await self.settle()
        return ""

    async def ack(self, member: ShareMember, parts: str, epoch: str = "next", v: str = "2") -> Any:
        topics, renews, done = self._topics(member, parts)
        request = share_acknowledge.ShareAcknowledgeRequest(
            self.group, member.id, member.session_epoch_of(epoch), renews, topics
        )
        answer = await self.side.request(request, int(v))
        self._settled(member, answer, request.share_session_epoch, done, "error_code")
        _forget_texts(answer, "")
        return answer

    def _topics(self, member: ShareMember, parts: str) -> tuple[list[Any], bool, dict[Partition, set[int]]]:
        topics: dict[str, Any] = {}
        renews, done = False, {}
        for part in names_of(parts):
            name, index, *words = part.split(":")
            at = name, int(index)
            batches = self._batches(member.acquired.get(at, []), *words) if words else []
            renews |= any(RENEW in types for _, _, types in batches)
            done[at] = {
                first + position if len(types) > 1 else offset
                for first, last, types in batches
                for position, offset in enumerate(range(first, last + 1))
                if types[min(position, len(types) - 1)] != RENEW
            }
            row = AcknowledgePartition(int(index), [AcknowledgementBatch(*each) for each in batches])
            topics.setdefault(name, AcknowledgeTopic(self.topic_id(name))).partitions.append(row)
        return [*topics.values()], renews, done

    def _batches(self, acquired: list[int], which: str, types: str) -> Acknowledged:
        """Return the batches that `which` stands for: all, each (types in turn), first, last, twice, or a range of offsets with
        a dash.
        """
        kinds = [int(digit) for digit in types]
        if "-" in which:
            first, last = which.split("-")
            return [(int(first), int(last), kinds)]
        ranges: list[list[int]] = []
        for offset in acquired:
            if ranges and offset == ranges[-1][-1] + 1:
                ranges[-1].append(offset)
            else:
                ranges.append([offset])
        match which:
            case "first":
                return [(each[0], each[0], kinds) for each in ranges[:1]]
            case "last":
                return [(each[-1], each[-1], kinds) for each in ranges[-1:]]
            case "twice":
                return [(each[0], each[-1], kinds) for each in ranges for _ in range(2)]
            case "each":
                return [(r[0], r[-1], [kinds[i % len(kinds)] for i in range(len(r))]) for r in ranges]
        return [(each[0], each[-1], kinds) for each in ranges]

    def _settled(
        self, member: ShareMember, answer: Any, epoch: int, done: dict[Partition, set[int]], error_field: str
    ) -> None:
        if answer.error_code:
            return
        member.session_epoch = 0 if epoch == -1 else epoch + 1
        for topic in answer.responses:
            for row in topic.partitions:
                at = self.side.topic_names.get(topic.topic_id, "?"), row.partition_index
                if not getattr(row, error_field) and at in done:
                    member.acquired[at] = [o for o in member.acquired.get(at, []) if o not in done[at]]
        if epoch == -1:
            member.acquired.clear()

    # ---- offsets

    async def offsets(self, parts: str = "") -> Any:
        topics = None
        if parts:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(self.topic(name), [int(index)])
                for name, index in (part.split(":") for part in names_of(parts))
            ]
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(self.group, topics)])
        answer = await self.side.request(request, 1)
        for row in (row for group in answer.groups for topic in group.topics for row in topic.partitions):
            row.leader_epoch = min(row.leader_epoch, 0)
        return answer

    async def alter(self, topic: str = "s", partition: str = "0", offset: str = "0") -> Any:
        rows = [AlterShareGroupOffsetsRequestPartition(int(partition), int(offset))]
        topics = [AlterShareGroupOffsetsRequestTopic(self.topic(topic), rows)]
        return await self.side.request(AlterShareGroupOffsetsRequest(self.group, topics), 0)

    async def erase(self, topic: str = "s") -> Any:
        topics = [DeleteShareGroupOffsetsRequestTopic(self.topic(topic))]
        return await self.side.request(DeleteShareGroupOffsetsRequest(self.group, topics), 0)


def _forget_texts(answer: Any, prefix: str) -> None:
    """Remove the reason why a record is in another state: Kafka's text depends on whether it keeps a batch or each offset of
    it.
    """
    for row in (row for topic in answer.responses for row in topic.partitions):
        if getattr(row, f"{prefix}error_code") == ErrorCode.INVALID_RECORD_STATE:
            setattr(row, f"{prefix}error_message", None)


def _merged(acquired: list[share_fetch.AcquiredRecords]) -> list[share_fetch.AcquiredRecords]:
    """Merge acquired ranges: Kafka returns the batches that it keeps in flight, Ottla the longest ranges
    (docs/DIFFERENCES.md).
    """
    merged: list[share_fetch.AcquiredRecords] = []
    for each in acquired:
        last = merged[-1] if merged else None
        if last is not None and (last.last_offset + 1, last.delivery_count) == (each.first_offset, each.delivery_count):
            last.last_offset = each.last_offset
        else:
            merged.append(each)
    return merged


# ---- chance


def share_sequence(chance: Random) -> Sequence:
    kind = chance.choice(("records", "records", "records", "members", "topics", "time"))
    own = kind == "topics" or chance.random() < 0.15
    configs = {"share.auto.offset.reset": "earliest"}
    if chance.random() < 0.2:
        configs["share.delivery.count.limit"] = "2"
    if kind == "time":
        configs |= {"share.record.lock.duration.ms": "5000"}
        if chance.random() < 0.5:
            configs |= {"share.session.timeout.ms": "6000", "share.heartbeat.interval.ms": "2000"}
    # Kafka assigns partitions to members in another way (docs/DIFFERENCES.md): so there is only one partition, or one member.
    members = "a" if chance.random() < 0.35 else "abcd"
    topics: tuple[str, ...] = ("s", "s", "r", "s+r") if members == "a" else ("s",)
    parts: tuple[str, ...] = chance.choice((("s:0",), ("r:0",), ("r:0", "r:1"))) if members == "a" else ("s:0",)
    takes = kind in ("records", "time")
    # The number of redelivered records in a response differs (docs/DIFFERENCES.md): so a sequence has limits or releases, not
    # both.
    is_limited = kind == "records" and chance.random() < 0.4
    steps: list[Step] = []
    elapsed = 0.0

    def add(verb: str, member: str = "-", **options: str) -> None:
        nonlocal elapsed
        steps.append(Step(verb, member, options))
        elapsed += LASTS.get(verb, 0)
        if kind == "time" and elapsed > ELAPSED_MAX:
            jump()

    def jump() -> None:
        """Advance the time by more than a lock, or than a session."""
        nonlocal elapsed
        steps.append(Step("jump", "-", {"seconds": chance.choice(("6.5", "6.5", "9"))}))
        elapsed = 0

    def someone() -> str:
        """Return one of the members that fetch."""
        return chance.choice("ab" if chance.random() < 0.8 else MEMBERS)

    def member() -> str:
        """Return one of the members that join."""
        return chance.choice(members[:2] if chance.random() < 0.8 else members)

    def beat() -> None:
        options = {}
        if chance.random() < 0.2:
            options["epoch"] = chance.choice(("prev", "prev", "by1", "by-1", "by7", "-3"))
        if chance.random() < 0.15:
            options["topics"] = chance.choice((*topics, "none", "s+x"))
        add("beat", member(), **options)

    def how() -> str:
        if is_limited:
            return chance.choice(
                ("all:1", "all:3", "all:4", "each:1", "each:10", "first:1", "last:1", "0-3:1", "1-1:7")
            )
        return chance.choices(
            (
                "all:1", "all:2", "all:3", "all:4", "each:1", "each:12", "each:10", "each:1230", "first:1", "first:2",
                "last:1", "last:2", "last:3", "twice:1", "0-3:1", "4-1:1", "0-4:12", "2-19:1", "1-1:7", "first:0", "0-0:1",
            ),
            (10, 6, 4, 3, 4, 4, 3, 4, 4, 4, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1),
        )[0]  # fmt: skip

    def epochs() -> dict[str, str]:
        if chance.random() < 0.88:
            return {}
        return {"epoch": chance.choice(("by1", "by-1") if is_limited else ("by1", "by-1", "0", "0", "-1", "-1"))}

    def take() -> None:
        options = epochs()
        part = chance.choice(parts)
        if chance.random() < 0.25 and options.get("epoch") != "0":
            part += ":" + how()
        if is_limited and chance.random() < 0.5:
            options["max"] = chance.choice(("1", "3", "5", "7", "500", "0"))
        if is_limited and chance.random() < 0.3:
            options["batch"] = chance.choice(("1", "2", "5"))
        if is_limited and chance.random() < 0.3:
            options["strict"] = "1"
        if chance.random() < 0.1:
            options["forget"] = chance.choice(parts)
        add("take", someone(), parts=part, **options)

    def ack() -> None:
        add("ack", someone(), parts=f"{chance.choice(parts)}:{how()}", **epochs())

    def offsets() -> None:
        # Kafka does not answer a description of partitions that do not exist.
        add("offsets", **({} if chance.random() < 0.5 else {"parts": chance.choice(parts)}))

    def change() -> None:
        # The member leaves first: Kafka closes the connection if a group that is to be deleted has members.
        if kind == "members" and chance.random() < 0.1:
            add("leave", "a")
            add("leave", "b")
            add("delete")
        else:
            add("erase", topic=chance.choice(("s", "s", "r")))

    def change_topics() -> None:
        name = chance.choice(("s", "r", "w") if members == "a" else ("s",))
        chance.choice(
            (
                lambda: add("create", topic=name, partitions=chance.choice("124") if members == "a" else "1"),
                lambda: add("grow", topic="r", partitions=chance.choice("3456")),
                lambda: add("drop", topic=name),
            )
        )()

    acts = [
        (lambda: add("join", member(), topics=chance.choice(topics)), 8),
        (beat, 12 if kind != "members" else 40),
        (lambda: add("leave", member()), 5),
        (offsets, 8),
        (lambda: add("describe"), 5),
        (lambda: add(chance.choice(("list", "classic"))), 4),
    ]
    if takes:
        acts += [(take, 40), (ack, 25)]
    else:
        acts += [(change, 8)]
    if own:
        acts.append((lambda: add("produce", topic=chance.choice("sr"), batches=chance.choice("12")), 6))
    if kind == "topics":
        acts.append((change_topics, 12))
    if kind == "time":
        acts.append((jump, 12))
    add("join", "a", topics=parts[0][0] if takes else chance.choice(topics))
    add("beat", "a")
    if takes:
        add("warm", parts="+".join(parts))
    for _ in range(chance.randrange(8, 22)):
        chance.choices([act for act, _ in acts], [weight for _, weight in acts])[0]()
    for each in "aba" if "b" in members else "aa":
        add("beat", each)
    add("describe")
    add("offsets")
    if not takes:
        # This comes last, because it raises the group's epoch (docs/DIFFERENCES.md).
        for each in "ab" if chance.random() < 0.7 else "":
            add("leave", each)
        for topic in "srs":
            add("alter", topic=topic, partition=chance.choice("000129"), offset=chance.choice("037"))
        add("offsets")
    return Sequence("share", tuple(steps), own, configs)
