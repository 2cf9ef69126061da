"""ConsumerGroupHeartbeat: a member joins, changes its subscription, reconciles towards its target, or keeps its session.

The decisions are those of each kind (heartbeats.py); a static member first takes the place of its former process. Steps 2 to 4
are also those of a classic member's JoinGroup (classic_members.py): what the member wants, the group's target, and the member's
reconciliation with it.

First the member revokes partitions, then it gets those that other members revoked: a pure function. The member stays in its epoch until
it has revoked everything, so that its commits for those partitions are accepted; it gets a partition only when no other member owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups import heartbeats
from ottla.broker.groups.consumer import regexes
from ottla.broker.groups.consumer.consumer_group import (
    EMPTY_METADATA,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    Holdings,
)
from ottla.broker.groups.consumer.heartbeat_request import is_full, owned_in, updated, validate
from ottla.broker.groups.consumer.migration import new_group
from ottla.broker.groups.consumer.targets import plan
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.heartbeats import Beat, bump_epoch, check_size, fenced, forget, keep_alive, remove
from ottla.broker.groups.modern.assignment import Assignment, is_subset, partitions_of, structs_of
from ottla.broker.groups.modern.modern_group import (
    JOINING_EPOCH,
    STABLE,
    STATIC_LEAVING_EPOCH,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    moved,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import ConsumerGroupMemberMetadataValue
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions

log = logging.getLogger(__name__)

T = TypeVar("T")
Decision: TypeAlias = Outcome[ConsumerGroupHeartbeatResponse]
ConsumerBeat: TypeAlias = Beat[ConsumerGroupHeartbeatRequest]


def heartbeat(
    shard: GroupMetadataManager, now_ms: int, request: ConsumerGroupHeartbeatRequest, client: Client
) -> Decision:
    validate(request, client.api_version, shard.config.consumer_group_assignors)
    if request.member_epoch < JOINING_EPOCH:
        return _leave(shard, request)
    # In v0 the coordinator generates member ids.
    request.member_id = request.member_id or shard.new_uuid()
    beat = Beat(shard, now_ms, request, client)
    group = shard.find(ConsumerGroup, request.group_id)
    return _beat_first(beat) if group is None else _beat(beat, group, [])


def _beat_first(beat: ConsumerBeat) -> Decision:
    """Make a consumer group: a new one, or one in place of a classic group."""
    shard, request = beat.shard, beat.request
    if request.member_epoch != JOINING_EPOCH:
        shard.group(ConsumerGroup, request.group_id, "Consumer group")
    new = new_group(shard, request.group_id)
    outcome = _beat(beat, new.group, new.records)
    go_on = outcome.then
    assert go_on is not None

    def made() -> Decision:
        new.made()
        return go_on()

    outcome.replies, outcome.then = new.replies, made
    return outcome


def _beat(beat: ConsumerBeat, group: ConsumerGroup, records: list[CoordinatorRecord]) -> Decision:
    """Decide a heartbeat of a member; `records` make the group, if it is not there yet."""
    request = beat.request
    if request.member_epoch == JOINING_EPOCH:
        check_size(group, request.member_id, beat.shard.config.consumer_group_max_size)
        former = _former_process(group, request)
        if former is not None:
            return _replace(beat, group, former, records)
    else:
        if request.instance_id is not None:
            group.static_member(request.instance_id, request.member_id)
        _validate_epoch(group.member(request.member_id).current, request)
    return _subscribe(beat, group, records)


def _former_process(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember | None:
    """Return the member with the request's instance id, which a joining one may replace only after it left with epoch -2."""
    instance_id = request.instance_id
    holder = None if instance_id is None else group.members.get(group.static_members.get(instance_id, ""))
    if holder is not None and holder.current.epoch != STATIC_LEAVING_EPOCH and not holder.is_classic:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the group because the"
            f" instance id is owned by {holder.member_id} member.",
        )
    return holder


def _validate_epoch(current: CurrentAssignment, request: ConsumerGroupHeartbeatRequest) -> None:
    """The previous epoch is accepted, because the response with the new one may be lost. Epoch 0 is a rejoin, and always accepted."""
    epoch = request.member_epoch
    if epoch == current.epoch:
        return
    owned = owned_in(request)
    is_repeated = epoch == current.previous_epoch and owned is not None
    if epoch > current.epoch or not (is_repeated and is_subset(owned or {}, partitions_of(current.assigned))):
        raise fenced(GroupType.CONSUMER, epoch, current.epoch)


def _leave(shard: GroupMetadataManager, request: ConsumerGroupHeartbeatRequest) -> Decision:
    """Decide that a member leaves for good (epoch -1), or temporarily, which static members do at a restart (epoch -2)."""
    group = shard.group(ConsumerGroup, request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = group.static_member(request.instance_id, request.member_id)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        shard.story(group.group_id, log).info(
            "[GroupId %s] Static Member %s with instance id %s temporarily left the consumer group.",
            group.group_id,
            member.member_id,
            request.instance_id,
        )
        # The static member keeps its assignment until its session expires.
        current = replace(member.current, epoch=STATIC_LEAVING_EPOCH, pending_revocation={})
        return Outcome([group.records.current_record(group.group_id, member.member_id, current)], response)
    shard.story(group.group_id, log).info(
        "[GroupId %s] Member %s left the consumer group.", group.group_id, member.member_id
    )
    return remove(shard, group, {member.member_id}, response)


# ---- 1: a static member rejoins


def _replace(
    beat: ConsumerBeat, group: ConsumerGroup, former: ConsumerGroupMember, records: list[CoordinatorRecord]
) -> Decision:
    """Let the new process of a static member take over the assignment of the former one at epoch 0."""
    shard, _, request, client = beat
    group_id, member_id = group.group_id, request.member_id
    before, after = former.metadata, updated(former.metadata, request, client)
    regexes.change(group, before.subscribed_topic_regex or "", after.subscribed_topic_regex or "")  # it may be refused
    names = {*group.subscribed_topics({}), *(request.subscribed_topic_names or ())}
    shard.cluster.hashes.of_group(shard.cluster.topics(), names)  # before anything is changed: it may have to wait
    records.extend(group.replacement(former, member_id))
    shard.story(group_id, log).info(
        "[GroupId %s] Static member with instance id %s re-joins the consumer group using the consumer protocol."
        " Created a new member %s to replace the existing member %s.",
        group_id,
        request.instance_id,
        member_id,
        former.member_id,
    )

    def replaced() -> Decision:
        forget(shard, group, former.member_id)
        return _subscribe(beat, shard.group(ConsumerGroup, group_id), [])

    return Outcome(records, then=replaced)


# ---- 2 to 4: what the member wants, and its next step


def _subscribe(beat: ConsumerBeat, group: ConsumerGroup, records: list[CoordinatorRecord]) -> Decision:
    shard, _, request, client = beat
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    owned = owned_in(request)

    def respond(step: Step) -> Decision:
        current, group = step.member.current, step.group
        interval_ms = shard.cluster.settings_of(group).heartbeat_interval_ms
        expression = step.member.metadata.subscribed_topic_regex
        is_waiting = step.member.current.is_waiting(group.epoch) or bool(
            expression and regexes.is_awaited(shard, group, expression)
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=step.member.member_id,
            member_epoch=current.epoch,
            heartbeat_interval_ms=shard.config.heartbeat_interval_ms(interval_ms, is_waiting=is_waiting),
        )
        member, given = step.member, partitions_of(current.assigned)
        has_changed = given != step.given_before
        if owned is not None:
            member.owned = owned
        # The assignment is repeated, because a response may be lost: librdkafka makes no full request after a timeout, and
        # Kafka would not send the assignment again. It is not repeated while a newer target is due: the member would take up
        # partitions that the next response takes away.
        is_unreported = member.owned != given and group.epoch == group.assignment_epoch
        if is_full(request) or has_changed or is_unreported:
            response.assignment = TopicIdAssignment(structs_of(given, TopicIdPartitions))
        if member.owned is None and not has_changed and is_unreported:
            # A new coordinator sends the assignment once: a member that has it already does not report its partitions again.
            member.owned = given
        return Outcome(response=response)

    return subscribe(beat, group, updated(before, request, client), owned, records, respond)


class Step(NamedTuple):
    """The member with its new subscription, and its assignment before."""

    group: ConsumerGroup
    member: ConsumerGroupMember
    given_before: Assignment
    is_other_subscription: bool


def subscribe(
    beat: Beat[Any],
    group: ConsumerGroup,
    metadata: ConsumerGroupMemberMetadataValue,
    owned: Assignment | None,
    records: list[CoordinatorRecord],
    respond: Callable[[Step], Outcome[T]],
) -> Outcome[T]:
    """Take the member's new subscription, from a heartbeat or a JoinGroup; `group` is not the shard's yet if `records` make it.

    `owned` are the member's partitions, None if the request does not have them.
    """
    shard, now_ms, request, client = beat
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    if member is None:
        protocol = "consumer" if metadata.classic_member_metadata is None else "classic"
        shard.story(group.group_id, log).info(
            "[GroupId %s] Member %s joins the consumer group using the %s protocol.",
            group.group_id,
            request.member_id,
            protocol,
        )
    if member is None or metadata != before:
        records.append(group.records.member_record(group.group_id, request.member_id, metadata))
    expression, former = metadata.subscribed_topic_regex or "", before.subscribed_topic_regex or ""
    records.extend(regexes.change(group, former, expression))
    has_other_names = metadata.subscribed_topic_names != before.subscribed_topic_names
    # A new expression that is not resolved yet changes the target after its resolution, not when some other topic changes
    # before.
    is_changed = has_other_names or (expression != former and (not expression or expression in group.regexes))
    topics = shard.cluster.topics()
    if is_changed or group.has_changed_topics(topics):
        names = group.subscribed_topics({request.member_id: group.topics_of(metadata)})
        new_hash = shard.cluster.hashes.of_group(topics, names)
        if is_changed or new_hash != group.metadata_hash:
            records.append(bump_epoch(shard, group, group.next_epoch(new_hash)))
    given_before = {} if member is None else partitions_of(member.current.assigned)

    def subscribed() -> Outcome[T]:
        known = shard.group(ConsumerGroup, group.group_id)
        known.seen_topics = topics
        regexes.refresh_if_due(shard, known, now_ms, client)
        is_other = has_other_names or expression != former
        step = Step(known, known.members[request.member_id], given_before, is_other)
        reconcile = partial(_reconcile, shard, step, owned, respond)
        return heartbeats.assign_if_due(shard, now_ms, known, plan, reconcile)

    return Outcome(records, then=subscribed)


def _reconcile(
    shard: GroupMetadataManager, step: Step, owned: Assignment | None, respond: Callable[[Step], Outcome[T]]
) -> Outcome[T]:
    group, member = step.group, step.member
    current = member.current
    if step.is_other_subscription or not member.current.is_reconciled_to(group.assignment_epoch):
        topics, names = shard.cluster.topics(), group.topics_of(member.metadata)
        aim = Target(
            group.assignment_epoch,
            group.target(member.member_id),
            lambda topic_id: (topic := topics.by_id(topic_id)) is not None and topic.name in names,
            step.is_other_subscription,
        )
        current = reconciled(current, aim, group.is_free, owned)
    has_moved = current is not member.current
    records = [group.records.current_record(group.group_id, member.member_id, current)] if has_moved else []

    def stepped() -> Outcome[T]:
        keep_alive(shard, group, member, has_moved=has_moved)
        return respond(step)

    return Outcome(records, then=stepped)


class Target(NamedTuple):
    """The target of a member at an epoch, and whether it is subscribed to a topic now.

    A member with another subscription gives up topics that it has left before a target without them is computed.
    """

    epoch: int
    assignment: Assignment
    is_subscribed: Callable[[bytes], bool]
    is_other_subscription: bool = False


def reconciled(
    current: CurrentAssignment,
    target: Target,
    is_free: Callable[[bytes, int], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    """Return the next current assignment, or `current` itself if nothing changes.

    `owned`: the partitions that the heartbeat names as owned; None if it does not have that field.
    """
    epoch = current.epoch
    if current.state is STABLE and epoch == target.epoch:
        return _without_left_topics(current, target, owned) if target.is_other_subscription else current
    if current.state is UNREVOKED:
        if _has_any(owned, current.pending_revocation):
            return _without_left_topics(current, target, owned) if target.is_other_subscription else current
        # The member stays in its epoch if the target wants more partitions back, as in Kafka 4.3 (4.2 raised it by one).
    elif current.state is UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )
        epoch = target.epoch
    following = _following(current, epoch, target, is_free, owned)
    return current if following == current else following


def _without_left_topics(current: CurrentAssignment, target: Target, owned: Assignment | None) -> CurrentAssignment:
    """Take the topics that the member has left out of its assignment. It stays in its epoch, because it needs a newer target."""
    left = {topic: partitions for topic, partitions in current.assigned.items() if not target.is_subscribed(topic)}
    if not left:
        return current
    kept = {topic: partitions for topic, partitions in current.assigned.items() if topic not in left}
    pending = dict(current.pending_revocation)
    for topic_id, partitions in left.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **partitions}
    if _has_any(owned, pending):
        return replace(current, state=UNREVOKED, assigned=kept, pending_revocation=pending)
    return replace(current, assigned=kept)


def _following(
    current: CurrentAssignment,
    epoch: int,
    target: Target,
    is_free: Callable[[bytes, int], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    assignment = {topic_id: wanted for topic_id, wanted in target.assignment.items() if target.is_subscribed(topic_id)}
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in current.assigned.items():
        wanted = assignment.get(topic_id, frozenset())
        for partition, since in partitions.items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = since
    if revoked and _has_any(owned, revoked):
        return moved(current, UNREVOKED, epoch, assigned=kept, pending_revocation=revoked)
    state = STABLE
    for topic_id, wanted in assignment.items():
        # A partition that the member itself has just given up is free for it.
        given_up = current.pending_revocation.get(topic_id, {})
        for partition in wanted - kept.get(topic_id, {}).keys():
            if partition in given_up or is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = target.epoch
            else:
                state = UNRELEASED
    return moved(current, state, target.epoch, assigned=kept, pending_revocation={})


def _has_any(owned: Assignment | None, revoked: Holdings) -> bool:
    """Return True if the member may own one of the partitions. Without the field `owned` it may own all of them."""
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & partitions.keys() for topic_id, partitions in revoked.items())
