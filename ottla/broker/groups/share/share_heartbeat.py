"""ShareGroupHeartbeat: a member joins, changes its subscription, takes its assignment, or keeps its session (KIP-932).

The decisions are those of each kind (heartbeats.py), and last come share partitions that have no state yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups import heartbeats
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.heartbeats import (
    Beat,
    bump_epoch,
    check,
    check_ids,
    check_size,
    fenced,
    keep_alive,
    remove,
)
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, Subscriber, structs_of
from ottla.broker.groups.modern.modern_group import JOINING_EPOCH, LEAVING_EPOCH, STABLE, moved
from ottla.broker.groups.modern.simple import assign_simple
from ottla.broker.groups.modern.topics import check_subscription, topic_ids
from ottla.broker.groups.share.share_group import (
    EMPTY_METADATA,
    RECORDS,
    CurrentAssignment,
    ShareGroup,
    ShareGroupMember,
)
from ottla.broker.groups.share.share_offsets import (
    group_or_new,
    initialization_begun,
    remember,
    to_initialize,
    without_state,
)
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.internal_topics.group_records import ShareGroupMemberMetadataValue
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions

log = logging.getLogger(__name__)

Decision: TypeAlias = Outcome[ShareGroupHeartbeatResponse]
ShareBeat: TypeAlias = Beat[ShareGroupHeartbeatRequest]
#: Called with the group, its epoch and the partitions whose state is to be initialized, once that is in the log.
Initialize: TypeAlias = Callable[[str, int, Assignment], None]


def heartbeat(
    shard: GroupMetadataManager, now_ms: int, request: ShareGroupHeartbeatRequest, client: Client, on_begun: Initialize
) -> Decision:
    _validate(request)
    if request.member_epoch == LEAVING_EPOCH:
        return _leave(shard, request)
    is_joining = request.member_epoch == JOINING_EPOCH
    if is_joining:
        group = group_or_new(shard, request.group_id)
    else:
        group = shard.group(ShareGroup, request.group_id, "Share group")
    check_size(group, request.member_id, shard.config.share_group_max_size)
    if not is_joining:
        _validate_epoch(group.member(request.member_id).current, request.member_epoch)
    return _subscribe(Beat(shard, now_ms, request, client), group, on_begun)


def _validate(request: ShareGroupHeartbeatRequest) -> None:
    check_ids(request)
    if request.member_epoch == JOINING_EPOCH:
        check(request.subscribed_topic_names, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING_EPOCH:
        check(False, "MemberEpoch is invalid.")
    check_subscription(request.group_id, len(request.subscribed_topic_names or ()))


def _validate_epoch(current: CurrentAssignment, epoch: int) -> None:
    """The previous epoch is accepted once more: the response with the new one may be lost."""
    if epoch in (current.epoch, current.previous_epoch):
        return
    is_old = epoch < current.epoch
    also = f", and it does not match the previous member epoch ({current.previous_epoch})" if is_old else ""
    raise fenced(GroupType.SHARE, epoch, current.epoch, also)


def _leave(shard: GroupMetadataManager, request: ShareGroupHeartbeatRequest) -> Decision:
    group = shard.group(ShareGroup, request.group_id)
    member = group.member(request.member_id)
    shard.story(group.group_id, log).info(
        "[GroupId %s] Member %s left the share group.", group.group_id, member.member_id
    )
    response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVING_EPOCH)
    return remove(shard, group, {member.member_id}, response)


# ---- 1: what the member wants


def _subscribe(beat: ShareBeat, group: ShareGroup, on_begun: Initialize) -> Decision:
    """Take the member's new subscription; `group` is not the shard's yet if this is its first member."""
    shard, now_ms, request, client = beat
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    names = request.subscribed_topic_names
    metadata = ShareGroupMemberMetadataValue(
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=before.subscribed_topic_names if names is None else sorted(set(names)),
    )
    records: list[CoordinatorRecord] = []
    if member is None:
        shard.story(group.group_id, log).info(
            "[GroupId %s] Member %s joins the share group.", group.group_id, request.member_id
        )
    if member is None or metadata != before:
        records.append(RECORDS.member_record(group.group_id, request.member_id, metadata))
    topics, initialized = shard.cluster.topics(), group.state_partitions.initialized
    is_changed = member is None or metadata.subscribed_topic_names != before.subscribed_topic_names
    if is_changed or group.seen_topics is not topics or group.seen_initialized is not initialized:
        subscribed = group.subscribed_topics({request.member_id: metadata.subscribed_topic_names})
        new_hash = shard.cluster.hashes.of_group(topics, subscribed)
        if is_changed or new_hash != group.metadata_hash or _is_pending(group, topics, subscribed):
            records.append(bump_epoch(shard, group, group.next_epoch(new_hash)))
            is_changed = True
    held_before = None if member is None else member.current.assigned

    def subscribed_now() -> Decision:
        known = shard.group(ShareGroup, group.group_id)
        known.seen_topics, known.seen_initialized = topics, known.state_partitions.initialized
        step = partial(_step, beat, known, held_before, is_changed, on_begun)
        # Partitions that are initialized in some milliseconds would need another target, in an epoch of its own, if this target
        # did not have them.
        may_change = known.epoch != known.assignment_epoch and bool(without_state(known, topics))
        return heartbeats.assign_if_due(shard, now_ms, known, plan, step, may_change=may_change)

    return Outcome(records, then=subscribed_now)


def _is_pending(group: ShareGroup, topics: TopicsImage, subscribed: set[str]) -> bool:
    """Return whether share partitions were initialized since the target was made."""
    if group.epoch != group.assignment_epoch:
        return False
    assigned = group.assigned_topics()
    ids = topic_ids(topics, subscribed)
    return any(
        not partitions <= assigned.get(topic_id, set())
        for topic_id, partitions in group.state_partitions.initialized.items()
        if topic_id in ids
    )


# ---- 2: the target


def plan(shard: GroupMetadataManager, group: ShareGroup) -> heartbeats.Plan:
    metadata = {member.member_id: member.metadata for member in group.members.values()}
    initialized = group.state_partitions.initialized
    work = sum(len(each.subscribed_topic_names) for each in metadata.values()) + sum(map(len, initialized.values()))
    return heartbeats.Plan(work, "simple", partial(_targets, metadata, initialized, shard.cluster.topics()))


def _targets(
    metadata: Mapping[str, ShareGroupMemberMetadataValue],
    initialized: Assignment,
    topics: TopicsImage,
    before: Mapping[str, Assignment],
) -> Mapping[str, Assignment]:
    members = {
        member_id: Subscriber(topic_ids(topics, each.subscribed_topic_names), before.get(member_id, NOTHING))
        for member_id, each in metadata.items()
    }
    # The names are compared, as in Kafka: topics that do not exist count.
    is_one_subscription = len({tuple(each.subscribed_topic_names) for each in metadata.values()}) == 1
    return assign_simple(members, initialized, is_one_subscription=is_one_subscription)


# ---- 3: the member's step


def _step(
    beat: ShareBeat, group: ShareGroup, held_before: Assignment | None, is_changed: bool, on_begun: Initialize
) -> Decision:
    """Take the member to its target; `is_changed`: its topics changed, by its subscription or by themselves."""
    shard, _, request, _ = beat
    member = group.members[request.member_id]
    following = member.current
    if is_changed or following.epoch != group.assignment_epoch:
        aim = group.target(member.member_id)
        following = _following(member, aim, group.assignment_epoch, shard.cluster.topics())
    records = []
    if following is not member.current:
        records.append(RECORDS.current_record(group.group_id, member.member_id, following))

    def stepped() -> Decision:
        keep_alive(shard, group, member)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=shard.cluster.settings_of(group).heartbeat_interval_ms,
        )
        is_full = request.member_epoch == JOINING_EPOCH or request.subscribed_topic_names is not None
        if is_full or member.current.assigned != held_before:
            response.assignment = TopicIdAssignment(structs_of(member.current.assigned, TopicIdPartitions))
        return _initialize(beat, group, response, on_begun)

    return Outcome(records, then=stepped)


def _following(member: ShareGroupMember, target: Assignment, epoch: int, topics: TopicsImage) -> CurrentAssignment:
    """Return the member's next assignment. It gives up topics that it has left before a target without them is computed."""
    current = member.current
    ids = topic_ids(topics, member.metadata.subscribed_topic_names)
    assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in ids}
    if current.epoch == epoch:
        return current if current.assigned == assigned else replace(current, assigned=assigned)
    # The member's former epoch is accepted once more, because the response may be lost.
    return moved(current, STABLE, epoch, assigned=assigned)


# ---- 4: share partitions without state


def _initialize(
    beat: ShareBeat, group: ShareGroup, response: ShareGroupHeartbeatResponse, on_begun: Initialize
) -> Decision:
    """Members get partitions with a later heartbeat, when they are initialized."""
    shard, now_ms, _, _ = beat
    topics, epoch = shard.cluster.topics(), group.epoch
    if group.complete_for == (topics, epoch):
        return Outcome(response=response)
    partitions = to_initialize(group, topics, now_ms, shard.config.share_initialize_retry_interval_ms)
    if not partitions:
        if not group.state_partitions.initializing:
            group.complete_for = topics, epoch
        return Outcome(response=response)

    def begun() -> Decision:
        remember(group, partitions, now_ms)
        return Outcome()

    return Outcome(
        [initialization_begun(group, topics, partitions)],
        response,
        then=begun,
        committed=lambda: on_begun(group.group_id, epoch, partitions),
        rejected=lambda error: Outcome(response=response),
    )
