"""A member of a consumer group by the classic protocol, as an eager client is one: it gives up everything before it joins again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.modern import assignment as embedded
from ottla.protocol.errors import ErrorCode
from tests.broker.groups.consumer.member import Owned
from tests.broker.groups.harness import PARKED, GroupCoordinatorHarness

#: The errors by which a member learns that it is no longer in the group.
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class ClassicMember:
    """The part of a `ConsumerMember` that histories use. It joins only a group that has a member by the consumer protocol."""

    instance = None
    regex = None

    def __init__(self, harness: GroupCoordinatorHarness, name: str, *, topics: str) -> None:
        self.harness = harness
        self.topics = topics
        self._client = harness.client(name, version=3, topics=topics, session=45_000)
        self.owned: Owned = {}
        self.has_joined = False

    @property
    def member_id(self) -> str:
        return self._client.member_id

    @property
    def epoch(self) -> int:
        return self._client.generation if self.has_joined else 0

    def beat(self, full: bool = False) -> Any:
        """Send a Heartbeat, and a JoinGroup if the response asks for one, or if `full`."""
        if self.has_joined:
            code = self._client.heartbeat().error_code
            if code in LOST:
                return self._lost(code)
            if code == ErrorCode.NONE and not full:
                return SimpleNamespace(error_code=code, member_epoch=self.epoch)
        group = self.harness.shard.find(ConsumerGroup, "g")
        if not self.has_joined and (group is None or all(member.is_classic for member in group.members.values())):
            return SimpleNamespace(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return self._join()

    def _join(self) -> Any:
        self.owned = {}
        joined = self._client.join()
        assert joined is not PARKED
        if joined.error_code in LOST:
            return self._lost(joined.error_code)
        assert joined.error_code == ErrorCode.NONE, joined
        self.has_joined = True
        synced = self._client.sync()
        if synced.error_code == ErrorCode.NONE:
            topics = self.harness.topics_image()
            self.owned = {
                topic.name: set(partitions)
                for topic_id, partitions in embedded.assigned(bytes(synced.assignment), topics).items()
                if (topic := topics.by_id(topic_id)) is not None
            }
        else:
            assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS, synced
        return SimpleNamespace(error_code=ErrorCode.NONE, member_epoch=joined.generation_id)

    def leave(self, epoch: int) -> Any:
        self.has_joined = False
        return self._client.leave()

    def _lost(self, code: int) -> Any:
        self.owned, self.has_joined = {}, False
        self._client.member_id, self._client.generation = "", -1
        return SimpleNamespace(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
