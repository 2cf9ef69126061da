"""A group coordinator with share groups, and the share coordinator that its persister asks: both on one log in memory."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.deletion import GroupDeletion
from ottla.broker.groups.group_config import GroupCoordinatorConfig
from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.share_group_coordinator import ShareGroupCoordinator
from ottla.broker.share.coordinator.share_coordinator import ShareCoordinator
from ottla.broker.share.coordinator.share_shard import ShareCoordinatorConfig
from ottla.broker.share.share_state import SharePartitionKey
from ottla.broker.share.state_persister import StatePersister
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.server.network.context import Reply
from tests.broker.groups.cluster import id_of
from tests.broker.groups.harness import GroupCoordinatorHarness

CLIENT = Client(1, "client", "/127.0.0.1")
END_OFFSET = 100
SECOND_MS = 1_000


class ShareGroupHarness(GroupCoordinatorHarness):
    """A harness whose group is "g". Requests return the response; time passes only with `advance`."""

    def __init__(self, topics: dict[str, int] | None = None, **config: int) -> None:
        self.is_persisting = True
        #: The topics whose share partitions have no coordinator just now.
        self.stalled: set[str] = set()
        super().__init__(**config)
        self.config = GroupCoordinatorConfig(**config)
        self.topics.update({"orders": 3} if topics is None else topics)

    def restart(self) -> None:
        super().restart()
        self._begin()

    def elect(self) -> None:
        super().elect()
        self._begin()

    def _begin(self) -> None:
        self.states = ShareCoordinator(
            ShareCoordinatorConfig(), self.log, self.clock, lambda: 1, self.topics_image, lambda partition, offset: None
        )
        self.states.on_elected(0, self.epoch)
        persister = StatePersister(self.clock, self._coordinator_of, self._send, lambda: None)
        self.share = ShareGroupCoordinator(self.coordinator, persister, self.topics_image, self._end_offsets)
        self.deletion = GroupDeletion(self.coordinator, persister)

    def _coordinator_of(self, key: SharePartitionKey) -> int:
        is_there = self.is_persisting and key.topic_id not in map(id_of, self.stalled)
        return 1 if is_there else -1

    def _send(self, node_id: int, request: Any) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        reply.follow(self.states.respond(request))
        return reply

    def _end_offsets(self, partitions: Any) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        reply.complete(dict.fromkeys(partitions, END_OFFSET))
        return reply

    @property
    def group(self) -> ShareGroup:
        return self.shard.group(ShareGroup, "g")

    def heartbeat(self, member_id: str, epoch: int = 0, *topics: str, group_id: str = "g") -> Any:
        names = list(topics) if topics else None
        request = ShareGroupHeartbeatRequest(group_id, member_id, epoch, None, names)
        return self.share.heartbeat(request, CLIENT)

    def advance(self, ms: int = SECOND_MS) -> None:
        self.clock.advance(ms)

    def join(self, member_id: str, *topics: str) -> ShareMember:
        return ShareMember(self, member_id, topics or ("orders",))

    def answered(self, answer: Any, within_ms: int = SECOND_MS) -> Any:
        """Return the response, after the persister has done its part."""
        if not isinstance(answer, Reply):
            return answer
        arrived: list[Any] = []
        answer.when_done(arrived.append)
        self.advance(within_ms)
        (response,) = arrived
        return response


class ShareMember:
    """A member that remembers its epoch and its assignment, as topic name -> partitions."""

    def __init__(self, harness: ShareGroupHarness, member_id: str, topics: tuple[str, ...]) -> None:
        self.harness = harness
        self.member_id = member_id
        self.assigned: dict[str, list[int]] = {}
        self.epoch = 0
        self.beat(*topics)

    def beat(self, *topics: str) -> Any:
        response = self.harness.heartbeat(self.member_id, self.epoch, *topics)
        self.epoch = response.member_epoch
        if response.assignment is not None:
            image = self.harness.topics_image()
            self.assigned = {
                topic.name: found.partitions
                for found in response.assignment.topic_partitions
                if (topic := image.by_id(found.topic_id)) is not None
            }
        return response

    def leave(self) -> Any:
        return self.harness.heartbeat(self.member_id, -1)
