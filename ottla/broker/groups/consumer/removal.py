"""How members of a consumer group are removed, whatever the reason, and the timers that remove them."""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups import member_sessions
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.consumer import embedded, regexes
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment, without_empty
from ottla.broker.groups.state.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, select_protocol
from ottla.broker.groups.state.classic_member import Member as ClassicMember
from ottla.broker.groups.state.consumer_group import ConsumerGroup
from ottla.broker.groups.state.consumer_member import Member
from ottla.broker.groups.state.group_records import group_metadata_record

T = TypeVar("T")


def remove(shard: GroupMetadataManager, group: ConsumerGroup, member_ids: Set[str], response: T | None) -> Outcome[T]:
    """Removes the members: their tombstones and the group's next epoch; a classic group instead, if only its members stay."""
    if is_downgrade_due(shard, group, member_ids):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        return downgraded(shard, group, member_ids, reason, response)
    leaving = [group.members[member_id].metadata.subscribed_topic_regex or "" for member_id in member_ids]
    records: list[CoordinatorRecord] = []
    for expression in dict.fromkeys(leaving):
        records.extend(regexes.tombstones(group, expression, leaving.count(expression)))
    return member_sessions.removal(shard, group, member_ids, response, records)


def keep_alive(shard: GroupMetadataManager, group: ConsumerGroup, member: Member, *, has_moved: bool = False) -> None:
    member_sessions.keep_alive(shard, group, member.member_id, _remove_one, has_moved=has_moved)


def fence(shard: GroupMetadataManager, group: ConsumerGroup, member_id: str, why: str) -> Unasked:
    return member_sessions.fence(shard, group, member_id, _remove_one, why)


def _remove_one(shard: GroupMetadataManager, group: ConsumerGroup, member_id: str) -> Unasked:
    outcome: Unasked = remove(shard, group, {member_id}, None)
    return outcome


log = logging.getLogger(__name__)


def is_downgrade_due(shard: GroupMetadataManager, group: ConsumerGroup, leaving: Set[str], joining: int = 0) -> bool:
    """Whether only classic members stay, with so many that join, and may become a classic group."""
    staying = len(group.members) - len(leaving)
    classic = group.classic_members - sum(group.members[member_id].is_classic for member_id in leaving)
    if not (staying or joining) or classic < staying:
        return False
    if not shard.config.is_downgrade_enabled:
        log.info(
            "Cannot downgrade consumer group %s to classic group because the online downgrade is disabled.",
            group.group_id,
        )
        return False
    if staying + joining > shard.config.group_max_size:
        log.info(
            "Cannot downgrade consumer group %s to classic group because its group size is greater than classic group"
            " max size.",
            group.group_id,
        )
        return False
    return True


def downgraded(
    shard: GroupMetadataManager, group: ConsumerGroup, leaving: Set[str], reason: str | None, response: T | None
) -> Outcome[T]:
    """The members that stay have what the target gives them; with a `reason` they join again."""
    group_id, members = group.group_id, list(group.members)
    staying = [_classic(member) for member in group.members.values() if member.member_id not in leaving]
    classic = ClassicGroup(group_id)
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    classic.protocol_name = protocol = select_protocol(staying)
    classic.leader = staying[0].member_id
    topics, now_ms = shard.cluster.topics(), shard.wall_ms()
    given: dict[bytes, frozenset[int]] = {}
    assignments = {}
    for member in staying:
        own = _without(group.target(member.member_id), given)
        given.update((topic_id, given.get(topic_id, frozenset()) | partitions) for topic_id, partitions in own.items())
        assignments[member.member_id] = embedded.assignment_bytes(own, topics, member.metadata(protocol))
    value = classic.value(generation=group.epoch, members=staying, assignments=assignments, now_ms=now_ms)

    def replayed() -> Outcome[T]:
        log.info("[GroupId %s] Converted the consumer group to a classic group.", group_id)
        for member_id in members:
            member_sessions.forget(shard, group, member_id)
        known = shard.group(ClassicGroup, group_id)
        for before in staying:
            # The record has one protocol of each member.
            member = known.members[before.member_id]
            member.protocols = before.protocols
            rebalance.restart_session(shard, known, member)
        known.recount()
        return Outcome() if reason is None else rebalance.prepare(shard, known, now_ms, reason)

    return Outcome([*group.tombstones(), group_metadata_record(group_id, value)], response, then=replayed)


def _without(target: Assignment, given: Assignment) -> Assignment:
    """The target without what another member has: targets that are just being written may have a partition in common."""
    return without_empty({topic_id: p - given.get(topic_id, frozenset()) for topic_id, p in target.items()})


def _classic(member: Member) -> ClassicMember:
    metadata = member.metadata
    assert metadata.classic_member_metadata is not None
    return ClassicMember(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        metadata.classic_member_metadata.session_timeout_ms,
        tuple((each.name, bytes(each.metadata)) for each in metadata.classic_member_metadata.supported_protocols),
    )
