"""A classic group becomes a consumer group, and a consumer group a classic one again (KIP-848, migration).

Up: a member joins by the consumer protocol. The members that are there go on with the classic protocol (classic_members.py). They have the
generation as their epoch and what they were assigned; those that wait in a rebalance are sent to join again.
Down: only members of the classic protocol stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Response
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, select_protocol
from ottla.broker.groups.classic.classic_member import EMPTY, ClassicGroupMember
from ottla.broker.groups.consumer.consumer_group import RECORDS, ConsumerGroup, ConsumerGroupMember, CurrentAssignment
from ottla.broker.groups.group import group_metadata_record
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.heartbeats import forget, keep_alive
from ottla.broker.groups.modern import assignment as embedded
from ottla.broker.groups.modern.assignment import assignment_bytes, without
from ottla.broker.groups.modern.modern_group import AnyModernGroup
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.internal_topics.group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.shared_structs import ClassicProtocol

log = logging.getLogger(__name__)

T = TypeVar("T")


# ---- a classic group becomes a consumer group


class NewGroup(NamedTuple):
    """A consumer group that is not the shard's before its records are replayed; `made` is called then."""

    group: ConsumerGroup
    records: list[CoordinatorRecord]
    replies: list[Response]
    made: Callable[[], None]


def new_group(shard: GroupMetadataManager, group_id: str) -> NewGroup:
    """Return a group for a first member by the consumer protocol; KafkaError if a group with this id stays a classic one."""
    classic = shard.find(ClassicGroup, group_id)
    if classic is None:
        shard.check_place_for(ConsumerGroup, group_id)
        return NewGroup(ConsumerGroup(group_id), [], [], lambda: None)
    if classic.state is EMPTY:
        # The classic group gives its place up, and its offsets stay. A client that was sent a member id and did not join yet joins the new
        # group with it.
        return NewGroup(
            ConsumerGroup(group_id),
            [*classic.tombstones()],
            [],
            lambda: _forget_members(shard, classic),
        )
    _check_upgrade(shard, classic)
    try:
        records = _records(shard, classic)
    except ProtocolError as error:
        shard.story(group_id, log).warning("Cannot upgrade classic group %s to consumer group: %s", group_id, error)
        why = "the embedded consumer protocol is malformed"
        if isinstance(error, embedded.CustomAssignor):
            why = (
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor"
                " before re-attempting the upgrade"
            )
        raise _not_upgraded(group_id, why) from error
    group = ConsumerGroup(group_id)
    for key, value in records[1:]:
        group.replay(key, value)

    def made() -> None:
        shard.story(group_id, log).info("[GroupId %s] Converted the classic group to a consumer group.", group_id)
        shard.timers.cancel(rebalance.join_key(group_id))
        shard.timers.cancel(rebalance.sync_key(group_id))
        _forget_members(shard, classic)
        known = shard.group(ConsumerGroup, group_id)
        for member in known.members.values():
            keep_alive(shard, known, member)

    replies = [row for member in classic.members.values() for row in member.answers(ErrorCode.REBALANCE_IN_PROGRESS)]
    return NewGroup(group, records, replies, made)


def _forget_members(shard: GroupMetadataManager, classic: ClassicGroup) -> None:
    for member_id in (*classic.members, *classic.pending_members):
        shard.timers.cancel(rebalance.session_key(classic.group_id, member_id))


def _check_upgrade(shard: GroupMetadataManager, classic: ClassicGroup) -> None:
    if not shard.config.is_upgrade_enabled:
        raise _not_upgraded(classic.group_id, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _not_upgraded(classic.group_id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > shard.config.consumer_group_max_size:
        raise _not_upgraded(classic.group_id, "the group size exceeds the consumer group maximum size")


def _not_upgraded(group_id: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    )


def _records(shard: GroupMetadataManager, classic: ClassicGroup) -> list[CoordinatorRecord]:
    """Return the records that make the consumer group; the tombstone of the classic group comes first."""
    group_id, epoch, topics = classic.group_id, classic.generation, shard.cluster.topics()
    # A group in its first rebalance has no protocol yet, and its members have chosen none.
    protocol = classic.protocol_name
    members = {member.member_id: _upgraded_metadata(member, protocol) for member in classic.members.values()}
    given = {member.member_id: embedded.assigned(member.assignment, topics) for member in classic.members.values()}
    names = {name for metadata in members.values() for name in metadata.subscribed_topic_names}
    records = [*classic.tombstones()]
    records += [RECORDS.member_record(group_id, member_id, metadata) for member_id, metadata in members.items()]
    records.append(RECORDS.group_record(group_id, epoch, shard.cluster.hashes.of_group(topics, names)))
    records += [RECORDS.target_record(group_id, member_id, assignment) for member_id, assignment in given.items()]
    records.append(RECORDS.assignment_epoch_record(group_id, epoch, 0))
    for member_id, assignment in given.items():
        holdings = {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in assignment.items()}
        records.append(RECORDS.current_record(group_id, member_id, CurrentAssignment(epoch, epoch, assigned=holdings)))
    return records


def _upgraded_metadata(member: ClassicGroupMember, protocol: str | None) -> ConsumerGroupMemberMetadataValue:
    known = dict(member.protocols)
    subscription = embedded.subscription(known.get(protocol or "", member.protocols[0][1]))
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            member.session_timeout_ms, [ClassicProtocol(name, metadata) for name, metadata in member.protocols]
        ),
    )


# ---- a consumer group becomes a classic group


def instead_of_removal(
    shard: GroupMetadataManager, group: AnyModernGroup, leaving: Set[str], response: T | None
) -> Outcome[T] | None:
    """Return the downgrade that happens in place of a removal of members; None if they are only removed."""
    if not isinstance(group, ConsumerGroup) or not is_downgrade_due(shard, group, leaving):
        return None
    reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
    return downgraded(shard, group, leaving, reason, response)


def is_downgrade_due(shard: GroupMetadataManager, group: ConsumerGroup, leaving: Set[str], joining: int = 0) -> bool:
    """Return whether the group may become a classic one, because all its members are classic after some have left and `joining`
    more have joined.
    """
    staying = len(group.members) - len(leaving)
    classic = group.classic_members - sum(group.members[member_id].is_classic for member_id in leaving)
    if not (staying or joining) or classic < staying:
        return False
    if not shard.config.is_downgrade_enabled:
        shard.story(group.group_id, log).info(
            "Cannot downgrade consumer group %s to classic group because the online downgrade is disabled.",
            group.group_id,
        )
        return False
    if staying + joining > shard.config.group_max_size:
        shard.story(group.group_id, log).info(
            "Cannot downgrade consumer group %s to classic group because its group size is greater than classic group"
            " max size.",
            group.group_id,
        )
        return False
    return True


def downgraded(
    shard: GroupMetadataManager, group: ConsumerGroup, leaving: Set[str], reason: str | None, response: T | None
) -> Outcome[T]:
    """Return the records of the classic group. Its members have their partitions in the target; with a `reason` they join
    again.
    """
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
        shard.story(group_id, log).info("[GroupId %s] Converted the consumer group to a classic group.", group_id)
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
