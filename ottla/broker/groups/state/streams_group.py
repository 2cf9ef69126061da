"""A streams group: the hard state that its records in the log make, and the soft state that is derived from it.

Hard state is changed by replay alone, which takes records in any order, as compaction leaves them. Soft state is at the end of the
list of fields: it is lost when the coordinator moves, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.state.commits import TopicPartition
from ottla.broker.groups.state.configured import ConfiguredTopology
from ottla.broker.groups.state.group import GroupType
from ottla.broker.groups.state.member_state import UNREVOKED
from ottla.broker.groups.state.modern_group import GroupState, ModernGroup, ModernRecords
from ottla.broker.groups.state.streams_member import (
    Holdings,
    Member,
    Tasks,
    recorded_assignment,
    structs_of,
    task_set,
)
from ottla.broker.groups.state.topology import Topology
from ottla.protocol.internal_topics.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
)
from ottla.protocol.messages.shared_structs import KeyValue, TaskIds

RECORDS = ModernRecords[Tasks](
    group=StreamsGroupMetadataKey,
    group_value=StreamsGroupMetadataValue,
    member=StreamsGroupMemberMetadataKey,
    assignment_epoch=StreamsGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=StreamsGroupTargetAssignmentMetadataValue,
    target=StreamsGroupTargetAssignmentMemberKey,
    target_value=lambda target: StreamsGroupTargetAssignmentMemberValue(
        *(structs_of(tasks, TaskIds) for tasks in target)
    ),
    recorded_target=lambda value: Tasks(*map(task_set, (value.active_tasks, value.standby_tasks, value.warmup_tasks))),
    current=StreamsGroupCurrentMemberAssignmentKey,
    recorded_current=recorded_assignment,
)


def group_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[KeyValue(key, configs[key]) for key in sorted(configs)],
    )
    return StreamsGroupMetadataKey(group_id), value


class StreamsGroup(ModernGroup[Member, Tasks]):
    """A streams group; a new one has no members and epoch 1: its first member gets epoch 2, if it need not wait for others."""

    type = GroupType.STREAMS
    states = tuple(GroupState)
    records = RECORDS
    other_records = (StreamsGroupTopologyKey,)
    no_assignment_epoch = -1
    new_member = Member
    no_target = Tasks()

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, epoch=1, assignment_epoch=1)
        self.validated_topology_epoch = 0
        #: What the assignor was asked for last, by names of configs without their prefix.
        self.assignment_configs: Mapping[str, str] = {}
        self.topology: Topology | None = None
        # For active, standby and warm-up tasks: subtopology id and partition -> members that hold it, or have to close it still.
        self._holders: tuple[dict[tuple[str, int], set[str]], ...] = ({}, {}, {})
        # ---- soft
        self.configured: ConfiguredTopology | None = None
        self.shutdown_requested_by: str | None = None
        self.endpoint_epoch = 0

    # ---- replay

    def replay_group(self, value: StreamsGroupMetadataValue) -> None:
        super().replay_group(value)
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {config.key: config.value for config in value.last_assignment_configs or ()}

    def replay_member(self, member_id: str, value: Any) -> None:
        super().replay_member(member_id, value)
        if not self.members:
            self.shutdown_requested_by = None

    def replay_other(self, key: StreamsGroupTopologyKey, value: Any) -> None:
        self.topology = None if value is None else Topology(value)

    def _count(self, member: Member, by: int) -> None:
        """The topology has the subscription, whatever the members are."""

    def _hold(self, member: Member, by: int) -> None:
        change = self._take if by > 0 else self._release
        change(member.member_id, member.current.assigned)
        change(member.member_id, member.current.pending_revocation)

    def _take(self, member_id: str, holdings: Holdings) -> None:
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
    def is_ready(self) -> bool:
        return self.topology is not None and self.topology.epoch == self.validated_topology_epoch

    def is_free_active(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether the task is no member's active one, and the process has no copy of it."""
        active, standby, warmup = (holders.get((subtopology, partition), ()) for holders in self._holders)
        return not active and not self._is_in(process_id, standby) and not self._is_in(process_id, warmup)

    def is_free_copy(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether the process has the task in no form."""
        return not any(self._is_in(process_id, holders.get((subtopology, partition), ())) for holders in self._holders)

    def _is_in(self, process_id: str, member_ids: Iterable[str]) -> bool:
        return any(self.members[member_id].metadata.process_id == process_id for member_id in member_ids)

    def is_subscribed_to(self, topic: str) -> bool:
        """False without members: such a group reads nothing, so its offsets may expire."""
        return bool(self.members) and self.topology is not None and topic in self.topology.subtopology_of

    # ---- requests of members

    def request_shutdown(self, member_id: str) -> None:
        """Every member gets the status until all have left. The first request counts."""
        if self.shutdown_requested_by is None:
            self.shutdown_requested_by = member_id

    def _held_since(self, member: Member, partition: TopicPartition) -> int | None:
        """A member holds the partitions of its active tasks."""
        current = member.current
        subtopology = None if self.topology is None else self.topology.subtopology_of.get(partition.topic)
        if subtopology is None:
            return None
        since = current.assigned.active.get(subtopology, {}).get(partition.partition)
        if since is None:
            since = current.pending_revocation.active.get(subtopology, {}).get(partition.partition)
        return since

    def release_timeout_ms(self, member: Member) -> int | None:
        return member.metadata.rebalance_timeout_ms if member.current.state is UNREVOKED else None

    # ---- records

    def next_epoch(self, metadata_hash: int) -> CoordinatorRecord:
        return group_record(
            self.group_id, self.epoch + 1, metadata_hash, self.validated_topology_epoch, self.assignment_configs
        )

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """The group's own record is the last but one, as in Kafka: the topology of a group that is gone is skipped."""
        for member_id in self.members:
            yield from RECORDS.member_tombstones(self.group_id, member_id)
        yield RECORDS.assignment_epoch(self.group_id), None
        yield RECORDS.group(self.group_id), None
        yield StreamsGroupTopologyKey(self.group_id), None
