"""ConsumerGroupHeartbeat: a member joins, changes its subscription, reconciles towards its target, or keeps its session.

A heartbeat is up to four decisions, each appended and replayed before the next: a static member takes the place of its former
process; the member's metadata and the group's epoch; the target of that epoch; the member's next step. Each leaves a state
that the next heartbeat can go on from. Most heartbeats decide nothing and only begin the session again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups.classic.state import EMPTY
from ottla.broker.groups.consumer import sessions
from ottla.broker.groups.consumer.group import ConsumerGroup, is_subset
from ottla.broker.groups.consumer.leave import leave
from ottla.broker.groups.consumer.member import (
    EMPTY_METADATA,
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    CurrentAssignment,
    Member,
    partitions_of,
)
from ottla.broker.groups.consumer.reconcile import reconciled
from ottla.broker.groups.consumer.records import (
    current_record,
    group_record,
    member_record,
    member_tombstones,
    target_record,
)
from ottla.broker.groups.consumer.request import validate
from ottla.broker.groups.consumer.target import new_target
from ottla.broker.groups.modern.assignment import Assignment, assignment_of, structs_of
from ottla.broker.groups.modern.topics import metadata_hash
from ottla.broker.groups.records import group_metadata_record
from ottla.broker.groups.shard import Client, GroupShard
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages import consumer_group_heartbeat as messages
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

log = logging.getLogger(__name__)

Decision: TypeAlias = Outcome[ConsumerGroupHeartbeatResponse]


def heartbeat(shard: GroupShard, now_ms: int, request: ConsumerGroupHeartbeatRequest, client: Client) -> Decision:
    validate(request, client.api_version, shard.config.consumer_group_assignors)
    if request.member_epoch < JOINING_EPOCH:
        return leave(shard, request)
    # In v0 the coordinator generates member ids.
    request.member_id = request.member_id or shard.new_uuid()
    group = shard.consumer_groups.get(request.group_id)
    if group is None:
        records = _place_for_a_group(shard, request)
        return _subscribe(shard, now_ms, request, client, ConsumerGroup(request.group_id), records)
    is_joining = request.member_epoch == JOINING_EPOCH
    size_max = shard.config.consumer_group_max_size
    if is_joining and request.member_id not in group.members and len(group.members) >= size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )
    former = None if request.instance_id is None else _static_member(group, request, request.instance_id, is_joining)
    if former is not None and is_joining:
        return _replace(shard, now_ms, request, client, group, former)
    member = group.members.get(request.member_id) if is_joining else group.member(request.member_id)
    if member is not None:
        _validate_epoch(member.current, request)
    return _subscribe(shard, now_ms, request, client, group, [])


def _place_for_a_group(shard: GroupShard, request: ConsumerGroupHeartbeatRequest) -> list[CoordinatorRecord]:
    """An empty classic group is replaced and its offsets stay. One with members stays, and the request fails."""
    shard.check_no_share_group(request.group_id)
    if request.member_epoch != JOINING_EPOCH:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    classic = shard.groups.get(request.group_id)
    if not shard.has_group(request.group_id):
        shard.check_room()
        return []
    if classic is None or classic.state is not EMPTY or classic.pending_members:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
    return [group_metadata_record(request.group_id, None)]


def _static_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, instance_id: str, is_joining: bool
) -> Member | None:
    """Returns the member with the request's instance id. A joining member may replace it only after it left with epoch -2."""
    holder = group.members.get(group.static_members.get(instance_id, ""))
    if holder is None:
        if is_joining:
            return None
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if is_joining and holder.current.epoch != STATIC_LEAVING_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
            f" instance id is owned by {holder.member_id} member.",
        )
    if not is_joining and holder.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def _validate_epoch(current: CurrentAssignment, request: ConsumerGroupHeartbeatRequest) -> None:
    """The previous epoch is accepted, because the response with the new one may be lost. Epoch 0 is always accepted: it is a rejoin."""
    epoch = request.member_epoch
    if epoch in (current.epoch, JOINING_EPOCH):
        return
    if epoch > current.epoch or epoch != current.previous_epoch or not is_subset(_owned(request), current.assigned):
        word = "greater" if epoch > current.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
            f" ({current.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    return None if request.topic_partitions is None else assignment_of(request.topic_partitions)


# ---- 1: a static member rejoins


def _replace(
    shard: GroupShard,
    now_ms: int,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    former: Member,
) -> Decision:
    """The new process of a static member takes over the assignment of the former one at epoch 0."""
    group_id, member_id = group.group_id, request.member_id
    current = replace(former.current, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    records = [
        *member_tombstones(group_id, former.member_id),
        member_record(group_id, member_id, former.metadata),
        target_record(group_id, member_id, group.target(former.member_id)),
        current_record(group_id, member_id, current),
    ]
    log.info(
        "[GroupId %s] Static member with instance id %s re-joins the consumer group using the consumer protocol."
        " Created a new member %s to replace the existing member %s.",
        group_id,
        request.instance_id,
        member_id,
        former.member_id,
    )

    def replaced() -> Decision:
        sessions.forget(shard, group_id, former.member_id)
        return _subscribe(shard, now_ms, request, client, group, [])

    return Outcome(records, then=replaced)


# ---- 2: the member's subscription


def _subscribe(
    shard: GroupShard,
    now_ms: int,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    records: list[CoordinatorRecord],
) -> Decision:
    """Write the member's metadata and the new group epoch. The group of a first member is not in the shard yet."""
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    metadata = _updated(before, request, client)
    if member is None:
        log.info(
            "[GroupId %s] Member %s joins the consumer group using the consumer protocol.",
            group.group_id,
            request.member_id,
        )
    if member is None or metadata != before:
        records.append(member_record(group.group_id, request.member_id, metadata))
    is_changed = member is None or metadata.subscribed_topic_names != before.subscribed_topic_names
    topics = shard.cluster.topics()
    if is_changed or group.seen_topics is not topics:
        names = group.subscribed_topics({request.member_id: metadata.subscribed_topic_names})
        new_hash = metadata_hash(topics, names)
        if is_changed or new_hash != group.metadata_hash:
            records.append(group_record(group.group_id, group.epoch + 1, new_hash))
            log.info("[GroupId %s] Bumped group epoch to %d.", group.group_id, group.epoch + 1)
    held_before = {} if member is None else partitions_of(member.current.assigned)

    def subscribed() -> Decision:
        known = shard.consumer_groups[group.group_id]
        known.seen_topics = topics
        return _assign(shard, now_ms, known, lambda: _step(shard, request, known, held_before))

    return Outcome(records, then=subscribed)


def _updated(
    before: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMemberMetadataValue:
    """Returns the member with the fields of the request; absent fields keep their values."""
    names = request.subscribed_topic_names
    return ConsumerGroupMemberMetadataValue(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=before.subscribed_topic_regex,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )


# ---- 3: the target


def _assign(shard: GroupShard, now_ms: int, group: ConsumerGroup, go_on: Callable[[], Decision]) -> Decision:
    """Compute a new target, once per assignment interval at most, because many members may join at once (KIP-1263).

    The first member of a group does not wait.
    """
    interval_ms = shard.cluster.consumer_settings(group.group_id).assignment_interval_ms
    since_ms = now_ms - group.assignment_timestamp_ms
    is_too_early = 0 <= since_ms < interval_ms and len(group.members) > 1
    if group.epoch == group.assignment_epoch or is_too_early:
        return go_on()
    default = shard.config.consumer_group_assignors[0]
    return Outcome(new_target(group, shard.cluster.topics(), default, now_ms), then=go_on)


# ---- 4: reconciliation


def _step(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, group: ConsumerGroup, held_before: Assignment
) -> Decision:
    member = group.members[request.member_id]
    current = reconciled(
        member.current, group.assignment_epoch, group.target(member.member_id), group.is_free, _owned(request)
    )
    records = []
    if current is not member.current:
        records.append(current_record(group.group_id, member.member_id, current))

    def stepped() -> Decision:
        sessions.keep_alive(shard, group, member)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=shard.cluster.consumer_settings(group.group_id).heartbeat_interval_ms,
        )
        assigned = partitions_of(member.current.assigned)
        if _is_full(request) or assigned != held_before:
            response.assignment = messages.Assignment(structs_of(assigned, messages.TopicPartitions))
        return Outcome(response=response)

    return Outcome(records, then=stepped)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns True for a full request, of a member that joins or has missed responses. Its response is full, too."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and request.subscribed_topic_names is not None
        and request.topic_partitions is not None
    )
