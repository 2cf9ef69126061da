"""Known mistakes of group coordinators, each with the invariants that notice it (`tests/broker/groups/history.py`)."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.context import CoordinatorContext
from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.groups import membership, offsets
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup, recorded_group
from ottla.broker.groups.classic.classic_member import ClassicGroupMember
from ottla.broker.groups.committed import CommittedOffsets
from ottla.broker.groups.group import Commit
from ottla.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.protocol.errors import ErrorCode
from tests.histories import mutant

_perform = CoordinatorContext.perform
_replay_commit = CommittedOffsets.replay_commit
_on_loaded = GroupCoordinatorShard.on_loaded
_validate_offset_commit = ClassicGroup.validate_offset_commit
_heartbeat = membership.heartbeat
_replay_marker = CommittedOffsets.replay_marker


def keep_members_of_older_records(self: GroupMetadataManager, group_id: str, value: Any) -> None:
    """A bug of the past: a known member keeps its protocols even if it is known from an older record."""
    group = self.groups.get(group_id)
    if value is None:
        self.groups.pop(group_id, None)
    elif group is None:
        self.groups[group_id] = recorded_group(group_id, value)
    else:
        known = group.members
        group.adopt(value)
        for member_id, member in group.members.items():
            if member_id in known:
                member.protocols = known[member_id].protocols
                member.session_timeout_ms = known[member_id].session_timeout_ms
        group.subscribed_topics = group.compute_subscribed_topics()


def forget_parked_requests(self: ClassicGroupMember, known: ClassicGroupMember, protocol_name: str | None) -> None:
    self.protocols = known.protocols


def commit_of_any_generation(self: ClassicGroup, commit: Commit) -> None:
    _validate_offset_commit(self, commit._replace(epoch=self.generation) if commit.epoch >= 0 else commit)


def heartbeat_of_any_generation(shard: GroupMetadataManager, request: Any) -> Any:
    group = shard.groups.get(request.group_id)
    if group is not None and request.member_id in group.members and request.generation_id >= 0:
        request.generation_id = group.generation
    return _heartbeat(shard, request)


def heartbeat_of_the_holder(shard: GroupMetadataManager, request: Any) -> Any:
    group = shard.groups.get(request.group_id)
    if group is not None and request.group_instance_id is not None:
        request.member_id = group.static_members.get(request.group_instance_id, request.member_id)
    return _heartbeat(shard, request)


def without_session_timers(self: GroupCoordinatorShard, now_ms: int) -> Outcome:
    outcome = _on_loaded(self, now_ms)
    for group in self.groups.values():
        for member_id in group.members:
            self.timers.cancel(rebalance.session_key(group.group_id, member_id))
    return outcome


def answered_at_once(self: Any, response: Any, on_error: Any) -> Any:
    return response


def replied_at_once(self: Any, outcome: Any) -> Any:
    self.complete = lambda reply, response: reply.complete(response)
    try:
        return _perform(self, outcome)
    finally:
        del self.complete


def commit_without_a_marker(
    self: CommittedOffsets, record_offset: int, producer_id: int, group_id: str, topic: str, partition: int, value: Any
) -> None:
    _replay_commit(self, record_offset, -1, group_id, topic, partition, value)


def abort_is_a_commit(self: CommittedOffsets, producer_id: int, committed: bool) -> None:
    _replay_marker(self, producer_id, True)


def remove_without_an_answer(group: ClassicGroup, member: ClassicGroupMember) -> list[Any]:
    group.remove(member.member_id)
    return []


def leave_syncs_parked(shard: GroupMetadataManager, group: ClassicGroup, error: ErrorCode) -> list[Any]:
    for member in group.members.values():
        member.awaiting_sync = None
    return []


MUTANTS = {
    "keeps-members-of-older-records": mutant(
        "a replay takes members from memory where it knows them",
        "21 40",
        (GroupMetadataManager, "_replay_group", keep_members_of_older_records),
    ),
    "forgets-parked-requests": mutant(
        "a record drops what its members wait for", "0", (ClassicGroupMember, "carry_over", forget_parked_requests)
    ),
    "commits-of-any-generation": mutant(
        "a commit's generation is not looked at",
        "38",
        (ClassicGroup, "validate_offset_commit", commit_of_any_generation),
    ),
    "heartbeats-of-any-generation": mutant(
        "a heartbeat's generation is not looked at", "38", (membership, "heartbeat", heartbeat_of_any_generation)
    ),
    "instances-are-not-fenced": mutant(
        "the former holder of a group.instance.id goes on (KIP-345)",
        "41",
        (membership, "heartbeat", heartbeat_of_the_holder),
    ),
    "sessions-not-armed-after-load": mutant(
        "members of a loaded group never time out", "42", (GroupCoordinatorShard, "on_loaded", without_session_timers)
    ),
    "answered-before-commit": mutant(
        "an answer leaves before its records are committed",
        "39 40",
        (CoordinatorContext, "when_seen_is_committed", answered_at_once),
    ),
    "parked-answered-before-commit": mutant(
        "those who wait are answered before the record is committed",
        "37 38 41",
        (CoordinatorContext, "perform", replied_at_once),
    ),
    "pending-offsets-count": mutant(
        "offsets of an open transaction are served", "31", (CommittedOffsets, "replay_commit", commit_without_a_marker)
    ),
    "aborted-offsets-count": mutant(
        "an abort commits the offsets", "31", (CommittedOffsets, "replay_marker", abort_is_a_commit)
    ),
    "offsets-expire-while-subscribed": mutant(
        "offsets expire, and can be deleted, while the group reads the topic",
        "40",
        (ClassicGroup, "is_subscribed_to", lambda self, topic: False),
    ),
    "removed-without-an-answer": mutant(
        "a member's parked JoinGroup is dropped with it", "0", (rebalance, "remove_member", remove_without_an_answer)
    ),
    "syncs-left-parked": mutant(
        "a rebalance that starts over forgets the members that wait for an assignment",
        "0",
        (rebalance, "fail_syncs", leave_syncs_parked),
    ),
    "offsets-outlive-their-group": mutant(
        "a deleted group's offsets stay", "25", (offsets, "tombstones", lambda shard, group_id: [])
    ),
}
