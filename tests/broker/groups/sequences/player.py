"""Plays a sequence against a coordinator: steps become requests by what this coordinator has answered so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.shared_structs import PartitionIndex
from tests.broker.groups.sequences.step import Rendering, Sequence, Step, actual, member_id

#: The topics of all sequences, and their numbers of partitions.
TOPICS = {"t": 4, "u": 2, "s": 1, "r": 2}

#: The limit of looks at the metadata until they show a change.
TRIES_MAX = 20


class Side(Protocol):
    """The side that answers. `settle_seconds` is the time for work after a response: metadata, regular expressions, share
    states.
    """

    settle_seconds: float
    topic_names: dict[bytes, str]
    #: True for Ottla, which sends a member of a consumer group its assignment until the member has reported it as its own.
    sends_again: bool
    #: Opens another connection, of a client with this id.
    again: Callable[[str], Any]

    async def request(self, message: Any, version: int) -> Any: ...

    async def create_topic(self, name: str, partitions: int) -> Any: ...

    async def delete_topic(self, name: str) -> Any: ...

    async def grow_topic(self, name: str, partitions: int) -> Any: ...

    async def produce(self, name: str, partition: int, batches: int) -> Any: ...

    def topic_id(self, name: str) -> bytes: ...


class NoAnswer(Exception):
    """There is no response, for the reason in the text."""


class Member:
    """The state that a client remembers. `epoch` is the last one that it got, `held` its assignment, `named` the partitions
    that it reported last.
    """

    def __init__(self, name: str) -> None:
        self.id = member_id(name)
        self.epoch = self.previous_epoch = 0
        self.instance: str | None = None
        self.held: Any = None
        self.named: Any = None

    def epoch_of(self, word: str) -> int:
        """Return the epoch that a word stands for: `same`, `prev`, a number, or a number with a sign, which is added to the
        member's epoch.
        """
        if word == "same":
            return self.epoch
        if word == "prev":
            return self.previous_epoch
        return self.epoch + int(word[2:]) if word.startswith("by") else int(word)

    def advance(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch


def names_of(text: str) -> list[str]:
    return [name for name in text.split("+") if name]


class Player:
    """The part of a player that all kinds have in common."""

    protocol = ""

    def __init__(self, side: Side, sequence: Sequence, number: int) -> None:
        self.side = side
        self.sequence = sequence
        self.owner = str(number)
        self.group = actual("g", self.owner)
        self.members: dict[str, Member] = {}

    def topic(self, name: str) -> str:
        return actual(name, self.owner if self.sequence.has_own_topics else "all")

    def topic_id(self, name: str) -> bytes:
        return self.side.topic_id(self.topic(name))

    def member(self, name: str) -> Any:
        if name not in self.members:
            self.members[name] = Member(name)
        return self.members[name]

    async def play(self) -> list[str]:
        return [await self._answer(step) for step in self.sequence.steps]

    async def _answer(self, step: Step) -> str:
        """Run a step by the method with the name of its verb, whose parameters have the defaults of the options."""
        verb: Callable[..., Any] = getattr(self, step.verb.replace("-", "_"))
        try:
            answer = await verb(*([] if step.member == "-" else [self.member(step.member)]), **step.options)
        except NoAnswer as why:
            return f"no answer: {why}"
        return answer if isinstance(answer, str) else Rendering(self.side.topic_names)(answer)

    async def settle(self) -> None:
        await asyncio.sleep(self.side.settle_seconds)

    # ---- topics and time

    async def create(self, topic: str, partitions: str) -> Any:
        return await self._seen(
            topic, await self.side.create_topic(self.topic(topic), int(partitions)), int(partitions)
        )

    async def grow(self, topic: str, partitions: str) -> Any:
        return await self._seen(topic, await self.side.grow_topic(self.topic(topic), int(partitions)), int(partitions))

    async def drop(self, topic: str) -> Any:
        return await self._seen(topic, await self.side.delete_topic(self.topic(topic)), 0)

    async def _seen(self, topic: str, answer: str, partitions: int) -> str:
        """Wait until the topic is in the metadata, and a while longer: coordinators get new metadata after Metadata shows
        them.
        """
        if answer == ErrorCode.NONE.name:
            request = MetadataRequest([MetadataRequestTopic(name=self.topic(topic))], False)
            for _ in range(TRIES_MAX):
                if len((await self.side.request(request, 12)).topics[0].partitions) == partitions:
                    break
                await self.settle()
        await self.settle()
        return answer

    async def produce(self, topic: str, partition: str = "0", batches: str = "1") -> Any:
        return await self.side.produce(self.topic(topic), int(partition), int(batches))

    async def jump(self, seconds: str) -> str:
        await asyncio.sleep(float(seconds))
        return ""

    # ---- groups

    async def list(self) -> Any:
        answer = await self.side.request(ListGroupsRequest(types_filter=[self.protocol]), 5)
        answer.groups = [group for group in answer.groups if group.group_id == self.group]
        return answer

    async def classic(self) -> Any:
        return await self.side.request(DescribeGroupsRequest(groups=[self.group]), 6)

    async def delete(self) -> Any:
        answer = await self.side.request(DeleteGroupsRequest(groups_names=[self.group]), 2)
        await self.settle()
        return answer

    # ---- offsets

    async def commit(
        self,
        member: Member,
        epoch: str = "same",
        topic: str = "t",
        partition: str = "0",
        offset: str = "1",
        v: str = "9",
    ) -> Any:
        return await self._commit(member.id, member.epoch_of(epoch), member.instance, topic, partition, offset, v)

    async def admin_commit(self, topic: str = "t", partition: str = "0", offset: str = "1", v: str = "9") -> Any:
        return await self._commit("", -1, None, topic, partition, offset, v)

    async def _commit(
        self, member_id: str, epoch: int, instance: str | None, topic: str, partition: str, offset: str, v: str
    ) -> Any:
        row = OffsetCommitRequestPartition(int(partition), int(offset))
        by_id = {"topic_id": self.topic_id(topic)} if int(v) >= 10 else {"name": self.topic(topic)}
        request = OffsetCommitRequest(
            self.group, epoch, member_id, instance, topics=[OffsetCommitRequestTopic(partitions=[row], **by_id)]
        )
        return await self.side.request(request, int(v))

    async def fetch(self, member: Member, epoch: str = "same", topic: str = "t", v: str = "9") -> Any:
        return await self._fetch(member.id, member.epoch_of(epoch), topic, int(v))

    async def admin_fetch(self, topic: str = "t", v: str = "9", stable: str = "0") -> Any:
        return await self._fetch(None, -1, topic, int(v), stable == "1")

    async def _fetch(self, member_id: str | None, epoch: int, topic: str, v: int, stable: bool = False) -> Any:
        topics = None
        if topic != "all":
            by_id: Mapping[str, Any] = {"topic_id": self.topic_id(topic)} if v >= 10 else {"name": self.topic(topic)}
            topics = [OffsetFetchRequestTopics(partition_indexes=[0, 1], **by_id)]
        return await self.side.request(
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(self.group, member_id, epoch, topics)], require_stable=stable
            ),
            v,
        )

    async def forget(self, topic: str = "t") -> Any:
        rows = [PartitionIndex(0), PartitionIndex(1)]
        return await self.side.request(
            OffsetDeleteRequest(self.group, [OffsetDeleteRequestTopic(self.topic(topic), rows)]), 0
        )
