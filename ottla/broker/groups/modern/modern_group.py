"""The base of consumer, share and streams groups (KIP-848): epochs, members, targets, and how their records are replayed.

All of this is hard state, except for fields that are marked as soft. Replay alone changes it, and takes records in any order,
as compaction leaves them. A member's state is in the log. A group's state is not: it is read from the epochs
(`ModernGroup.state`). A member of a share group has its target at once, and stays STABLE.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.group import (
    OWN_RECORDS,
    Commit,
    Deletion,
    GroupType,
    OffsetExpiration,
    TopicPartition,
    check_epoch,
    commit_time,
)
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.slotted import frozen


class MemberState(Enum):
    """The states of a member, with their numbers in a consumer's record. Kafka's names end with _PARTITIONS for consumer and with _TASKS for streams groups."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        """Return the state in a record of a newer version."""
        return cls.UNKNOWN


STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED
UNRELEASED = MemberState.UNRELEASED
UNKNOWN = MemberState.UNKNOWN

TRANSITIONS: dict[MemberState, dict[MemberState, str]] = {
    STABLE: {
        UNREVOKED: "a newer target takes partitions or tasks away that the member has not given up yet",
        UNRELEASED: "a newer target gives what other members, or a streams member's own process, still have",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNREVOKED: {
        STABLE: "the member gave up what it had to, and has all of its target",
        UNRELEASED: "the member gave up what it had to, and waits for what others have",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNRELEASED: {
        STABLE: "the others gave up what the member's target has",
        UNREVOKED: "a newer target takes partitions or tasks away",
        UNKNOWN: "a newer coordinator wrote a state that this one does not know",
    },
    UNKNOWN: {
        STABLE: "the member gave everything up that it had in a state of a newer coordinator",
        UNREVOKED: "as above, and it has something to give up",
        UNRELEASED: "as above, and it waits for what others have",
    },
}


@frozen
class MemberProgress:
    """The progress of a member. A kind's current assignment adds the partitions or tasks that the member holds."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = STABLE

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is STABLE and self.epoch == assignment_epoch

    def is_waiting(self, group_epoch: int) -> bool:
        """Return whether the member waits for the coordinator: for a target of this epoch, or for what others still hold."""
        return self.state is UNRELEASED or (self.state is STABLE and self.epoch < group_epoch)


CurrentT = TypeVar("CurrentT", bound=MemberProgress)


def moved(current: CurrentT, state: MemberState, epoch: int, **holdings: Any) -> CurrentT:
    """Return the next step. The response with the new epoch may be lost, so the previous epoch stays valid."""
    assert state is current.state or state in TRANSITIONS[current.state], f"{current.state} to {state}"
    return replace(current, epoch=epoch, previous_epoch=current.epoch, state=state, **holdings)


#: The class of a record's key or value.
RecordClass: TypeAlias = type[Any]


TargetT = TypeVar("TargetT")


class ModernRecords(NamedTuple, Generic[TargetT]):
    """The classes of one kind's keys and values, and how a target and a member's current assignment are written and read."""

    group: RecordClass
    group_value: RecordClass
    member: RecordClass
    assignment_epoch: RecordClass
    assignment_epoch_value: RecordClass
    target: RecordClass
    target_value: Callable[[TargetT], Any]
    recorded_target: Callable[[Any], TargetT]
    current: RecordClass
    recorded_current: Callable[[Any], MemberProgress]

    def group_record(self, group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        return self.group(group_id), self.group_value(epoch, metadata_hash)

    def member_record(self, group_id: str, member_id: str, value: Any) -> CoordinatorRecord:
        return self.member(group_id, member_id), value

    def target_record(self, group_id: str, member_id: str, target: TargetT) -> CoordinatorRecord:
        return self.target(group_id, member_id), self.target_value(target)

    def assignment_epoch_record(self, group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
        return self.assignment_epoch(group_id), self.assignment_epoch_value(epoch, now_ms)

    def current_record(self, group_id: str, member_id: str, current: Any) -> CoordinatorRecord:
        return self.current(group_id, member_id), current.value()

    def member_tombstones(self, group_id: str, member_id: str) -> Iterator[CoordinatorRecord]:
        for key in (self.current, self.target, self.member):
            yield key(group_id, member_id), None


#: Epochs by which a heartbeat says that its member joins, leaves, or leaves for a restart.
JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2


class ModernGroupState(Enum):
    """The state of a group, which follows from the epochs. Values are the names on the wire."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ModernMember(Protocol):
    """A member: its metadata, and how far it has come."""

    member_id: str
    metadata: Any
    current: Any

    def __init__(self, member_id: str) -> None: ...


MemberT = TypeVar("MemberT", bound=ModernMember)


class ModernGroup(ABC, Generic[MemberT, TargetT]):
    """A group whose members send heartbeats and move towards a target. A kind defines what a member holds and what a target
    consists of.
    """

    type: ClassVar[GroupType]
    should_expire: ClassVar[bool] = True
    #: The states that a group of the kind may be in.
    states: ClassVar[Sequence[ModernGroupState]]
    records: ClassVar[ModernRecords[Any]]
    #: The keys of the records that this kind alone has (`replay_other`).
    other_records: ClassVar[Sequence[RecordClass]]
    #: The assignment epoch of a group whose record of it is gone.
    no_assignment_epoch: ClassVar[int] = 0
    #: group.instance.id -> member id; consumer groups alone have static members.
    static_members: Mapping[str, str] = MappingProxyType({})
    #: A member without records, and the target of a member without a record of it.
    new_member: Callable[[str], MemberT]
    no_target: TargetT

    def __init__(self, group_id: str, epoch: int, assignment_epoch: int) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.metadata_hash = 0
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp_ms = 0
        self.members: dict[str, MemberT] = {}
        self.targets: dict[str, TargetT] = {}
        # ---- soft
        # The metadata that the hash was last compared with.
        self.seen_topics: TopicsImage | None = None
        # True while a target is computed by a worker or written; and the epoch of the last target that the log has rejected.
        self.is_assigning = False
        self.rejected_epoch = -1

    # ---- replay

    @classmethod
    def record_keys(cls) -> Sequence[RecordClass]:
        records = cls.records
        return [
            records.group, records.member, records.assignment_epoch, records.target, records.current, *cls.other_records
        ]  # fmt: skip

    def replay(self, key: Any, value: Any) -> None:
        """Apply any record of the group but its own tombstone."""
        kind, records = key.__class__, self.records
        if kind is records.current:
            self.replay_current_assignment(key.member_id, value)
        elif kind is records.target:
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                self.targets[key.member_id] = records.recorded_target(value)
        elif kind is records.member:
            self.replay_member(key.member_id, value)
        elif kind is records.group:
            self.replay_group(value)
        elif kind is records.assignment_epoch:
            self.assignment_epoch = self.no_assignment_epoch if value is None else value.assignment_epoch
            self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
        else:
            self.replay_other(key, value)

    def replay_group(self, value: Any) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: Any) -> None:
        if value is None:
            self.replay_current_assignment(member_id, None)
            member = self.members.pop(member_id, None)
            if member is not None:
                self._count(member, -1)
            return
        member = self._member(member_id)
        self._count(member, -1)
        member.metadata = value
        self._count(member, +1)

    def replay_current_assignment(self, member_id: str, value: Any) -> None:
        if value is None and member_id not in self.members:
            return
        member = self._member(member_id)
        self._hold(member, -1)
        member.current = self.new_member(member_id).current if value is None else self.records.recorded_current(value)
        self._hold(member, +1)

    def _member(self, member_id: str) -> MemberT:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = self.new_member(member_id)
        return member

    @abstractmethod
    def replay_other(self, key: Any, value: Any) -> None:
        """Apply a record that only this kind has."""

    @abstractmethod
    def _count(self, member: MemberT, by: int) -> None:
        """Count a member with this metadata that has joined (`by` +1) or left (-1)."""

    @abstractmethod
    def _hold(self, member: MemberT, by: int) -> None:
        """Note that the member holds its current assignment from now on (`by` +1), or no longer (-1)."""

    # ---- the interface `Group`

    @property
    def state(self) -> ModernGroupState:
        if not self.members:
            return ModernGroupState.EMPTY
        if not self.is_ready:
            return ModernGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return ModernGroupState.ASSIGNING
        if all(member.current.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ModernGroupState.STABLE
        return ModernGroupState.RECONCILING

    @property
    def is_ready(self) -> bool:
        """Return whether there is something to assign at all: a topology of streams has to be valid for its topics."""
        return True

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...
    @abstractmethod
    def tombstones(self) -> Iterable[CoordinatorRecord]: ...

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def protocol_type(self) -> str | None:
        return self.type.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @abstractmethod
    def validate_offset_commit(self, commit: Commit) -> None: ...
    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None: ...
    @abstractmethod
    def validate_offset_delete(self) -> None: ...

    def validate_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def deletion_begun(self, topics: TopicsImage) -> Deletion:
        return OWN_RECORDS

    def offset_expiration(self) -> OffsetExpiration:
        return commit_time

    # ---- members and their targets

    def target(self, member_id: str) -> TargetT:
        return self.targets.get(member_id, self.no_target)

    def member(self, member_id: str) -> MemberT:
        """Return the member, or raise KafkaError UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    # ---- timeouts and the metadata hash

    def session_timeout_ms(self, member: MemberT, default_ms: int) -> int:
        return default_ms

    def release_timeout_ms(self, member: MemberT) -> int | None:
        """Return the time that the member may take to release its revoked partitions, or None if there are none."""
        return None

    def names_without(self, member_ids: Collection[str], topics: TopicsImage) -> set[str] | None:
        """Return the topics whose hash the group has once these members have left; None if the hash stays as it is."""
        return None

    def tombstones_without(self, member_ids: Collection[str]) -> Iterable[CoordinatorRecord]:
        """Return the tombstones of records that the group needed for these members alone, besides the members' own records."""
        return ()

    def next_epoch(self, metadata_hash: int) -> CoordinatorRecord:
        """Return the record of the group's next epoch."""
        return self.records.group_record(self.group_id, self.epoch + 1, metadata_hash)


class CommittingGroup(ModernGroup[MemberT, TargetT]):
    """A group whose members commit the offsets of their partitions, with their epoch."""

    def validate_offset_commit(self, commit: Commit) -> None:
        """Raise KafkaError where the rules of `group.py` do not let the member commit."""
        if commit.names_no_member or (commit.epoch < 0 and not self.members):
            # TxnOffsetCommit needs no member; nor does an admin client, or a consumer that assigns its partitions by itself.
            return
        member = self.member(commit.member_id)
        check_epoch(commit, member.current.epoch, self._is_classic(member), partial(self._held_since, member))

    @abstractmethod
    def _held_since(self, member: MemberT, partition: TopicPartition) -> int | None:
        """Return the epoch since which the member has the partition; None if it has not."""

    def _is_classic(self, member: MemberT) -> bool:
        return False

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.current.epoch:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION if self._is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH,
                f"The received member epoch {epoch} does not match the expected member epoch {member.current.epoch}.",
            )

    def validate_offset_delete(self) -> None:
        """Do nothing: offsets of topics that no member is subscribed to may be deleted although the group has members."""


#: A group of any of the three kinds.
AnyModernGroup: TypeAlias = ModernGroup[Any, Any]
