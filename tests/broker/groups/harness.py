"""A group coordinator on a log in memory, and clients that send it requests; time passes only when a test advances the clock."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.deletion import GroupDeletion
from ottla.broker.groups.group import GroupRecordCodec, GroupType
from ottla.broker.groups.group_config import GroupCoordinatorConfig, GroupSettings
from ottla.broker.groups.group_coordinator_service import TOPIC, GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.share.share_state import NoPersister
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.shared_structs import ClassicProtocol, PartitionIndex
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.server.network.context import Reply
from ottla.server.story import UNNAMED, Asker
from tests.broker.coordinator.harness import CoordinatorHarness
from tests.broker.groups.cluster import cluster_of, topics_image

TP = (TOPIC, 0)
PARKED = "parked"


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription v0."""
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


class GroupCoordinatorHarness(CoordinatorHarness[GroupCoordinatorService]):
    """One partition of `__consumer_offsets`. The group's id is "g" unless a test gives another one."""

    tp = TP

    def __init__(self, streams_settings: GroupSettings | None = None, **config: Any) -> None:
        self.streams_settings = streams_settings or GroupSettings()
        self.config = GroupCoordinatorConfig(**config)
        self._uuids = 0
        self.topic_ids: set[bytes] = set()
        self.topics: dict[str, int] = {}
        self._image = topics_image({})
        self._image_of: object = None
        # Versions of metadata, as if there was a metadata log with these offsets.
        self._versions = self._created = 0
        super().__init__()

    def _coordinator(self) -> GroupCoordinatorService:
        cluster = cluster_of(self.topics_image, self._version, self._topics_created, self.clock, self.rack_of)
        others = GroupSettings()
        cluster = cluster._replace(
            settings=lambda kind, group_id: self.streams_settings if kind is GroupType.STREAMS else others
        )
        return GroupCoordinatorService(self.config, self.log, self.clock, self._new_uuid, lambda: 1, cluster)

    def rack_of(self, broker_id: int) -> str | None:
        return f"rack-{broker_id}"

    def _version(self) -> int:
        self.topics_image()
        return self._versions

    def _topics_created(self) -> int:
        self.topics_image()
        return self._created

    def topics_image(self) -> TopicsImage:
        """Return the image of the topics, which is the same object until a topic changes."""
        made_of = (frozenset(self.topic_ids), tuple(self.topics.items()))
        if made_of != self._image_of:
            image = topics_image(self.topics, self.topic_ids)
            self._versions += 1
            if set(image.names) - set(self._image.names):
                self._created = self._versions
            self._image, self._image_of = image, made_of
        return self._image

    def _codec(self) -> GroupRecordCodec:
        return GroupRecordCodec()

    def _new_uuid(self) -> str:
        self._uuids += 1
        return str(self._uuids)

    @property
    def shard(self) -> GroupMetadataManager:
        return self.coordinator.runtime.shard(0)

    def delete_groups(self, group_ids: list[str], asker: Asker = UNNAMED) -> Any:
        """Delete groups that have no state at share coordinators."""
        return GroupDeletion(self.coordinator, NoPersister(self.clock)).end(group_ids, asker)

    def client(self, name: str, **settings: Any) -> GroupClient:
        return GroupClient(self, name, **settings)


class GroupClient:
    """A client that remembers what a consumer remembers: its member id and generation."""

    def __init__(
        self,
        harness: GroupCoordinatorHarness,
        name: str,
        *,
        group: str = "g",
        instance: str | None = None,
        session: int = 10_000,
        rebalance: int = 60_000,
        protocols: str = "range",
        topics: str = "t",
        type: str = "consumer",
        version: int = 9,
    ) -> None:
        self.harness = harness
        self.name = name
        self.group = group
        self.instance = instance
        self.session = session
        self.rebalance = rebalance
        self.protocols = protocols
        self.topics = topics
        self.type = type
        self.version = version
        self.member_id = ""
        self.generation = -1

    # ---- Each request returns the answer, or PARKED; `on_answer` is called with the answer in both cases.

    def _send(self, answer: Any, on_answer: Any = None) -> Any:
        arrived: list[Any] = []

        def receive(response: Any) -> None:
            self._learn(response)
            arrived.append(response)
            if on_answer is not None:
                on_answer(response)

        if type(answer) is Reply:
            answer.when_done(receive)
            self.last = arrived
            return arrived[0] if arrived else PARKED
        receive(answer)
        self.last = arrived
        return answer

    def _learn(self, response: Any) -> None:
        if type(response).__name__ == "JoinGroupResponse" and response.error_code in (
            ErrorCode.NONE,
            ErrorCode.MEMBER_ID_REQUIRED,
        ):
            self.member_id = response.member_id
            self.generation = response.generation_id

    def join(self, on_answer: Any = None, **other: Any) -> Any:
        protocols = [ClassicProtocol(name, subscription(*self.topics.split(","))) for name in self.protocols.split(",")]
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session,
            rebalance_timeout_ms=self.rebalance,
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
            protocol_type=self.type,
            protocols=protocols if self.protocols else [],
        )
        client = Client(self.version, self.name, "/127.0.0.1")
        return self._send(self.harness.coordinator.join(request, client), on_answer)

    def sync(self, on_answer: Any = None, assignments: dict[str, bytes] | None = None, **other: Any) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=int(other.get("generation", self.generation)),
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
            protocol_type=other.get("type", self.type),
            protocol_name=other.get("protocol"),
            assignments=[SyncGroupRequestAssignment(m, a) for m, a in (assignments or {}).items()],
        )
        return self._send(self.harness.coordinator.sync(request), on_answer)

    def heartbeat(self, on_answer: Any = None, **other: Any) -> Any:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=int(other.get("generation", self.generation)),
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
        )
        return self._send(self.harness.coordinator.heartbeat(request), on_answer)

    def leave(self, on_answer: Any = None, **other: Any) -> Any:
        identity = MemberIdentity(other.get("member", self.member_id), other.get("instance", self.instance))
        request = LeaveGroupRequest(group_id=self.group, members=[identity])
        return self._send(self.harness.coordinator.leave(request), on_answer)

    def commit(self, on_answer: Any = None, *, offsets: dict[tuple[str, int], int], **other: Any) -> Any:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=int(other.get("generation", self.generation)),
            member_id=other.get("member", self.member_id),
            group_instance_id=self.instance,
            retention_time_ms=int(other.get("retention", -1)),
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=other.get("topic_id", bytes(16)),
                    partitions=[
                        OffsetCommitRequestPartition(partition, offset, committed_metadata=other.get("metadata", ""))
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        return self._send(self.harness.coordinator.commit_offsets(request, int(other.get("version", 9))), on_answer)

    def fetch(self, on_answer: Any = None, *, partitions: list[tuple[str, int]] | None, **other: Any) -> Any:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(topic, other.get("topic_id", bytes(16)), [partition])
                for topic, partition in partitions
            ]
        request = OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        answer = self.harness.coordinator.fetch_offsets(request, bool(other.get("stable", False)))
        return self._send(answer, on_answer)

    def delete_offsets(self, on_answer: Any = None, *, partitions: list[tuple[str, int]]) -> Any:
        topics = [OffsetDeleteRequestTopic(topic, [PartitionIndex(p)]) for topic, p in partitions]
        request = OffsetDeleteRequest(group_id=self.group, topics=topics)
        return self._send(self.harness.coordinator.delete_offsets(request), on_answer)
