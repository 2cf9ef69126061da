"""The base of groups of all kinds: the interface to their shard, their records, and who may commit offsets.

The interface is Kafka's `Group`: no caller asks for the kind. Code of one kind looks its groups up by their class
(`GroupMetadataManager.find` and `GroupMetadataManager.group`).

Of the records of `__consumer_offsets` Kafka 4.3 writes GroupMetadata in v3, offsets in v4, and in v1 when a client still asks for a
retention time of its own (OffsetCommit v2-4). A value of an unknown version makes its group unavailable.

For OffsetCommit and TxnOffsetCommit alike a member of a consumer or streams group commits with its member epoch, or with its generation
while it speaks the classic protocol. An older one is accepted for partitions that the member has held since then (KIP-1251): a consumer's
epoch rises in the background while the application still works on the records that it polled before. The error code of
every other epoch depends on the API and on the kind of the member:

    API                member of KIP-848 or KIP-1071    classic member
    OffsetCommit       STALE_MEMBER_EPOCH               ILLEGAL_GENERATION
    TxnOffsetCommit    ILLEGAL_GENERATION               ILLEGAL_GENERATION

Java's producer aborts the transaction after ILLEGAL_GENERATION; STALE_MEMBER_EPOCH is fatal for it, and it can then neither commit nor abort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.shard import RecordCodec
from ottla.broker.groups.committed import CommittedOffset
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.internal_topics.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

ClassicKey: TypeAlias = GroupMetadataKey | OffsetCommitKey
#: The keys that the shard replays: these, and those of the kinds of modern groups, which have a `group_id`.
GroupKey: TypeAlias = Any

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_EXPIRING_VERSION = 1
MODERN_GROUP_VERSION = 0
CONSUMER_GROUP_PARTITION_METADATA = 4


def group_of(key: GroupKey) -> str:
    group_id: str = key.group if isinstance(key, ClassicKey) else key.group_id
    return group_id


def group_metadata_record(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """Return a group's record, or its tombstone if there is no value."""
    return GroupMetadataKey(group=group_id), value


def offset_commit_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue | None
) -> CoordinatorRecord:
    """Return a committed offset; without a value, its tombstone."""
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition), value


class GroupRecordCodec(RecordCodec):
    """The types of records that groups understand, and the versions in which they are written."""

    #: The partitions' metadata of consumer groups is not among them: since Kafka 4.1 a hash is in its place (KIP-1101).
    types: ClassVar[RecordTypes] = {
        kind: classes for kind, classes in GROUP_RECORDS.items() if kind != CONSUMER_GROUP_PARTITION_METADATA
    }

    def version_of(self, value: object) -> int:
        if isinstance(value, OffsetCommitValue):
            return OFFSET_COMMIT_VERSION if value.expire_timestamp == -1 else OFFSET_COMMIT_EXPIRING_VERSION
        return GROUP_METADATA_VERSION if isinstance(value, GroupMetadataValue) else MODERN_GROUP_VERSION

    def current(self, key: object, value: Any) -> CoordinatorRecord:
        """Return an offset of the oldest format in the present format, and any other record unchanged."""
        if not isinstance(key, LegacyOffsetCommitKey):
            return key, value
        offset = None
        if value is not None:
            offset = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        return OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), offset


#: Members of Kafka 4 commit with their epoch from this version of OffsetCommit on.
MEMBER_EPOCH_SINCE = 9


class TopicPartition(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int


class Commit(NamedTuple):
    """The committer of offsets of some partitions. `version` is that of OffsetCommit, or None for TxnOffsetCommit."""

    member_id: str
    group_instance_id: str | None
    epoch: int
    version: int | None
    request: OffsetCommitRequest | TxnOffsetCommitRequest

    @property
    def is_transactional(self) -> bool:
        return self.version is None

    @property
    def names_no_member(self) -> bool:
        """Return whether this is a TxnOffsetCommit without a member: producers that know only the group send it, as do versions 0 to 2."""
        return self.is_transactional and self.epoch == -1 and not self.member_id and self.group_instance_id is None

    def partitions(self) -> Iterator[TopicPartition]:
        for topic in self.request.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, topic.topic_id, partition.partition_index)


def commit_of(request: OffsetCommitRequest | TxnOffsetCommitRequest, version: int | None) -> Commit:
    epoch = request.generation_id_or_member_epoch
    return Commit(request.member_id, request.group_instance_id, epoch, version, request)


def check_epoch(
    commit: Commit, current_epoch: int, is_classic: bool, held_since: Callable[[TopicPartition], int | None]
) -> None:
    """Accept a commit of a known member, whose epoch is `current_epoch`; `held_since` returns the epoch since which the member has a partition.

    Raises KafkaError with the code of the table above, or UNSUPPORTED_VERSION for an OffsetCommit that has no member epoch.
    """
    if commit.version is not None and commit.version < MEMBER_EPOCH_SINCE and not is_classic:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    if commit.epoch == current_epoch:
        return
    if commit.epoch > current_epoch:
        raise _other_epoch(
            commit, is_classic, f"Received epoch {commit.epoch} is newer than current member epoch {current_epoch}."
        )
    for partition in commit.partitions():
        since = held_since(partition)
        if since is None or commit.epoch < since:
            raise _other_epoch(
                commit,
                is_classic,
                f"Received epoch {commit.epoch} is older than the assignment of {partition.topic}-{partition.partition} to the member.",
            )


def _other_epoch(commit: Commit, is_classic: bool, message: str) -> KafkaError:
    illegal = is_classic or commit.is_transactional
    return KafkaError(ErrorCode.ILLEGAL_GENERATION if illegal else ErrorCode.STALE_MEMBER_EPOCH, message)


class GroupType(Enum):
    """The types of groups. Their values are the names on the wire."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


#: Returns the time from which the retention of a committed offset counts; None if the group's offsets do not expire at present.
OffsetExpiration: TypeAlias = Callable[[CommittedOffset], int] | None


class Deletion(NamedTuple):
    """The part of a group's deletion that comes before its tombstones: records that say so, and the partitions whose states the persister
    deletes, by topic id and index."""

    records: Sequence[CoordinatorRecord] = ()
    states: frozenset[tuple[bytes, int]] = frozenset()


#: The deletion of a group that has everything in its own log.
OWN_RECORDS = Deletion()


class Group(Protocol):
    """A group of any kind."""

    type: ClassVar[GroupType]
    #: True if the group ends when it has neither members nor offsets.
    should_expire: ClassVar[bool]

    @property
    def group_id(self) -> str: ...
    @property
    def members(self) -> Mapping[str, Any]: ...
    @property
    def state(self) -> Enum: ...
    @property
    def generation(self) -> int:
        """The epoch of a group of the new protocols."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The name that the members' clients gave, or the kind; None for a group that has had no members."""
        ...

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether the offsets of the topic are in use: they are neither deleted nor expire."""
        ...

    def validate_offset_commit(self, commit: Commit) -> None: ...
    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None: ...
    def validate_offset_delete(self) -> None: ...
    def validate_delete(self) -> None: ...
    def deletion_begun(self, topics: TopicsImage) -> Deletion:
        """Begin the deletion of a group without members."""
        ...

    def tombstones(self) -> Iterable[CoordinatorRecord]:
        """Return the tombstones of the group itself: those of its offsets come first."""
        ...

    def offset_expiration(self) -> OffsetExpiration: ...


def commit_time(offset: CommittedOffset) -> int:
    """Return the condition of groups whose offsets expire some time after their commit."""
    return offset.commit_timestamp_ms
