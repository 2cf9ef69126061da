"""A classic group becomes a consumer group when a member joins it by the consumer protocol (KIP-848).

Its members go on with the classic protocol (classic_members.py). They have the generation as their epoch and what they were assigned;
those that wait in a rebalance are sent to join again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord, Response
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.consumer import embedded
from ottla.broker.groups.consumer.removal import keep_alive
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_member import Member as ClassicMember
from ottla.broker.groups.state.classic_states import EMPTY
from ottla.broker.groups.state.consumer_group import (
    RECORDS,
    ConsumerGroup,
)
from ottla.broker.groups.state.consumer_member import CurrentAssignment
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.internal_topics.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)


class NewGroup(NamedTuple):
    """A consumer group that is not the shard's before its records are replayed; `made` is called then."""

    group: ConsumerGroup
    records: list[CoordinatorRecord]
    replies: list[Response]
    made: Callable[[], None]


def new_group(shard: GroupMetadataManager, group_id: str) -> NewGroup:
    """For a first member by the consumer protocol; KafkaError if a group with this id stays a classic one."""
    classic = shard.find(ClassicGroup, group_id)
    if classic is None:
        shard.check_place_for(ConsumerGroup, group_id)
        return NewGroup(ConsumerGroup(group_id), [], [], lambda: None)
    if classic.state is EMPTY:
        # It gives its place up, and its offsets stay. A client that was sent a member id and did not join yet joins the new group with it.
        return NewGroup(
            ConsumerGroup(group_id),
            [*classic.tombstones()],
            [],
            lambda: _forget_members(shard, classic),
        )
    _validate(shard, classic)
    try:
        records = _records(shard, classic)
    except ProtocolError as error:
        log.warning("Cannot upgrade classic group %s to consumer group: %s", group_id, error)
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
        log.info("[GroupId %s] Converted the classic group to a consumer group.", group_id)
        shard.timers.cancel(rebalance.join_key(group_id))
        shard.timers.cancel(rebalance.sync_key(group_id))
        _forget_members(shard, classic)
        known = shard.group(ConsumerGroup, group_id)
        for member in known.members.values():
            keep_alive(shard, known, member)

    return NewGroup(group, records, _replies(classic), made)


def _forget_members(shard: GroupMetadataManager, classic: ClassicGroup) -> None:
    for member_id in (*classic.members, *classic.pending_members):
        shard.timers.cancel(rebalance.session_key(classic.group_id, member_id))


def _validate(shard: GroupMetadataManager, classic: ClassicGroup) -> None:
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


def _replies(classic: ClassicGroup) -> list[Response]:
    replies: list[Response] = []
    error = ErrorCode.REBALANCE_IN_PROGRESS
    for member in classic.members.values():
        if member.awaiting_join is not None:
            replies.append((member.awaiting_join, JoinGroupResponse(error_code=error, member_id=member.member_id)))
        if member.awaiting_sync is not None:
            replies.append((member.awaiting_sync, SyncGroupResponse(error_code=error)))
    return replies


def _records(shard: GroupMetadataManager, classic: ClassicGroup) -> list[CoordinatorRecord]:
    """The tombstone of the classic group comes first."""
    group_id, epoch, topics = classic.group_id, classic.generation, shard.cluster.topics()
    # A group in its first rebalance has no protocol yet, and its members have chosen none.
    protocol = classic.protocol_name
    members = {member.member_id: _metadata(member, protocol) for member in classic.members.values()}
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


def _metadata(member: ClassicMember, protocol: str | None) -> ConsumerGroupMemberMetadataValue:
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
