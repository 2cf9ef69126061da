"""A streams group: what its records in the log say, and what follows from that.

Hard state is changed by replay alone, which takes records in any order, as compaction leaves them. Soft state is at the end of the
list of fields: it is lost when the coordinator moves, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ottla.broker.groups.commits import Commit, TopicPartition, check_epoch
from ottla.broker.groups.streams.configured import ConfiguredTopology
from ottla.broker.groups.streams.member import CurrentAssignment, Member, recorded_assignment
from ottla.broker.groups.streams.state import GroupState
from ottla.broker.groups.streams.tasks import Holdings, Tasks, task_set
from ottla.broker.groups.streams.topology import Topology
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)


class StreamsGroup:
    """Made empty, at epoch 1: the first member of a group gets epoch 2, if it need not wait for others."""

    #: None of these groups has static members.
    static_members: Mapping[str, str] = MappingProxyType({})

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        #: What the assignor was asked for last, by names of configs without their prefix.
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_epoch = 1
        self.assignment_timestamp_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Tasks] = {}
        # For active, standby and warm-up tasks: subtopology id and partition -> members that hold it, or have to close it still.
        self._holders: tuple[dict[tuple[str, int], set[str]], ...] = ({}, {}, {})
        # ---- soft
        self.configured: ConfiguredTopology | None = None
        #: The metadata that the hash was last compared with.
        self.seen_topics: object = None
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0
        self.is_assigning = False
        self.rejected_epoch = -1

    # ---- replay

    def replay_group(self, value: StreamsGroupMetadataValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}

    def replay_topology(self, value: StreamsGroupTopologyValue | None) -> None:
        self.topology = None if value is None else Topology(value)

    def replay_member(self, member_id: str, value: StreamsGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.replay_current_assignment(member_id, None)
            self.members.pop(member_id, None)
            if not self.members:
                self.shutdown_requested_by = None
            return
        self._member(member_id).metadata = value

    def replay_assignment_epoch(self, value: StreamsGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = -1 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def replay_target(self, member_id: str, value: StreamsGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = Tasks(
                task_set(value.active_tasks), task_set(value.standby_tasks), task_set(value.warmup_tasks)
            )

    def replay_current_assignment(self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None) -> None:
        if value is None and member_id not in self.members:
            return
        member = self._member(member_id)
        self._release(member_id, member.current.assigned)
        self._release(member_id, member.current.pending_revocation)
        member.current = CurrentAssignment() if value is None else recorded_assignment(value)
        self._hold(member_id, member.current.assigned)
        self._hold(member_id, member.current.pending_revocation)

    def _member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
        return member

    def _hold(self, member_id: str, holdings: Holdings) -> None:
        for holders, tasks in zip(self._holders, holdings.tasks, strict=True):
            for subtopology, partitions in tasks.items():
                for partition in partitions:
                    holders.setdefault((subtopology, partition), set()).add(member_id)

    def _release(self, member_id: str, holdings: Holdings) -> None:
        for holders, tasks in zip(self._holders, holdings.tasks, strict=True):
            for subtopology, partitions in tasks.items():
                for partition in partitions:
                    members = holders.get((subtopology, partition), set())
                    members.discard(member_id)
                    if not members:
                        holders.pop((subtopology, partition), None)

    # ---- what follows

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def is_free_active(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether the task is no member's active one, and the process has no copy of it."""
        active, standby, warmup = (holders.get((subtopology, partition), ()) for holders in self._holders)
        return not active and not self._is_in(process_id, standby) and not self._is_in(process_id, warmup)

    def is_free_copy(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether the process has the task in no form."""
        return not any(self._is_in(process_id, holders.get((subtopology, partition), ())) for holders in self._holders)

    def _is_in(self, process_id: str, member_ids: Iterable[str]) -> bool:
        return any(self.members[member_id].metadata.process_id == process_id for member_id in member_ids)

    def target(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, Tasks())

    def is_subscribed_to(self, topic: str) -> bool:
        """A group without members reads nothing, so that its offsets may expire."""
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_of

    # ---- requests of members

    def request_shutdown(self, member_id: str) -> None:
        """Every member gets the status until all have left. The first request counts."""
        if self.shutdown_requested_by is None:
            self.shutdown_requested_by = member_id

    def member(self, member_id: str) -> Member:
        """KafkaError UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def validate_offset_commit(self, commit: Commit) -> None:
        """Raises KafkaError where the rules of `commits.py` do not let the member commit; it holds the partitions of its tasks."""
        if commit.names_no_member or (commit.epoch < 0 and not self.members):
            # TxnOffsetCommit needs no member; nor does an admin client, or a consumer that assigns its partitions by itself.
            return
        current = self.member(commit.member_id).current

        def held_since(partition: TopicPartition) -> int | None:
            subtopology = None if self.topology is None else self.topology.subtopology_of.get(partition.topic)
            if subtopology is None:
                return None
            since = current.assigned.active.get(subtopology, {}).get(partition.partition)
            if since is None:
                since = current.pending_revocation.active.get(subtopology, {}).get(partition.partition)
            return since

        check_epoch(commit, current.epoch, is_classic=False, held_since=held_since)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        current = self.member(member_id or "").current
        if epoch != current.epoch:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"The received member epoch {epoch} does not match the expected member epoch {current.epoch}.",
            )

    def validate_offset_delete(self) -> None:
        """A group with members may lose offsets of topics that it does not read."""

    def validate_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
