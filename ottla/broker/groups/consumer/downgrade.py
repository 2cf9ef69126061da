"""A consumer group becomes a classic group again when only members of the classic protocol stay in it (KIP-848, migration)."""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, select_protocol
from ottla.broker.groups.classic.classic_member import ClassicGroupMember
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.group import group_metadata_record
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.member_sessions import forget
from ottla.broker.groups.modern.assignment import assignment_bytes, without
from ottla.broker.groups.modern.modern_group import AnyModernGroup

log = logging.getLogger(__name__)

T = TypeVar("T")


def instead_of_removal(
    shard: GroupMetadataManager, group: AnyModernGroup, leaving: Set[str], response: T | None
) -> Outcome[T] | None:
    """Return the downgrade that takes the place of a removal of members, None if they are only removed."""
    if not isinstance(group, ConsumerGroup) or not is_downgrade_due(shard, group, leaving):
        return None
    reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
    return downgraded(shard, group, leaving, reason, response)


def is_downgrade_due(shard: GroupMetadataManager, group: ConsumerGroup, leaving: Set[str], joining: int = 0) -> bool:
    """Return whether only classic members stay, with so many that join, and may become a classic group."""
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
        # Targets that are just being written may have a partition in common.
        own = without(group.target(member.member_id), given)
        given.update((topic_id, given.get(topic_id, frozenset()) | partitions) for topic_id, partitions in own.items())
        assignments[member.member_id] = assignment_bytes(own, topics, member.metadata(protocol))
    value = classic.value(generation=group.epoch, members=staying, assignments=assignments, now_ms=now_ms)

    def replayed() -> Outcome[T]:
        log.info("[GroupId %s] Converted the consumer group to a classic group.", group_id)
        for member_id in members:
            forget(shard, group, member_id)
        known = shard.group(ClassicGroup, group_id)
        for before in staying:
            # The record has one protocol of each member.
            member = known.members[before.member_id]
            member.protocols = before.protocols
            rebalance.restart_session(shard, known, member)
        known.recount()
        return Outcome() if reason is None else rebalance.prepare(shard, known, now_ms, reason)

    return Outcome([*group.tombstones(), group_metadata_record(group_id, value)], response, then=replayed)


def _classic(member: ConsumerGroupMember) -> ClassicGroupMember:
    metadata = member.metadata
    assert metadata.classic_member_metadata is not None
    return ClassicGroupMember(
        member.member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        metadata.classic_member_metadata.session_timeout_ms,
        tuple((each.name, bytes(each.metadata)) for each in metadata.classic_member_metadata.supported_protocols),
    )
