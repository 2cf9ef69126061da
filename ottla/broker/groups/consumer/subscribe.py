"""The steps 2 to 4 of consumer_heartbeat.py, of a heartbeat or of a classic member's JoinGroup: what the member wants, the group's target,
and the member's reconciliation with it.

First the member revokes partitions, then it gets those that other members revoked: a pure function. The member stays in its epoch until
it has revoked everything, so that its commits for those partitions are accepted; it gets a partition only when no other member owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups import target
from ottla.broker.groups.consumer import regexes
from ottla.broker.groups.consumer.consumer_group import (
    EMPTY_METADATA,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    Holdings,
    ResolvedRegex,
    topics_of,
)
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.member_sessions import Beat, bump_epoch, keep_alive
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, Assignor, Subscriber, partitions_of
from ottla.broker.groups.modern.assignors import assign_range, assign_uniform
from ottla.broker.groups.modern.modern_group import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, moved
from ottla.broker.groups.modern.topics import partition_counts, topic_ids
from ottla.broker.groups.target import WORK_ON_LOOP_MAX
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import ConsumerGroupMemberMetadataValue

#: The server's assignors by their names in requests.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def plan(shard: GroupMetadataManager, group: ConsumerGroup) -> target.Plan:
    topics = shard.cluster.topics()
    metadata = {member.member_id: member.metadata for member in group.members.values()}
    assignor = group.assignor_name(shard.config.consumer_group_assignors[0])
    assign = partial(_targets, metadata, group.regexes.copy(), topics, assignor)
    return target.Plan(_work(group, topics), assignor, assign)


def _work(group: ConsumerGroup, topics: TopicsImage) -> int:
    """Return how much there is to assign: names in subscriptions and, unless these are too many already, partitions."""
    metadata = [member.metadata for member in group.members.values()]
    names = sum(len(each.subscribed_topic_names) for each in metadata)
    names += sum(len(group.regexes[x].topics) * n for x, n in group.expressions.items() if x in group.regexes)
    if names > WORK_ON_LOOP_MAX:
        return names
    return names + sum(partition_counts(topics, topic_ids(topics, group.subscribed_topics({}))).values())


def _targets(
    metadata: Mapping[str, ConsumerGroupMemberMetadataValue],
    regexes: Mapping[str, ResolvedRegex],
    topics: TopicsImage,
    assignor: str,
    before: Mapping[str, Assignment],
) -> Mapping[str, Assignment]:
    ids_of: dict[tuple[str, ...], frozenset[bytes]] = {}
    members = {}
    for member_id, each in metadata.items():
        subscription = (each.subscribed_topic_regex or "", *each.subscribed_topic_names)
        if subscription not in ids_of:
            ids_of[subscription] = topic_ids(topics, topics_of(each, regexes))
        members[member_id] = Subscriber(ids_of[subscription], before.get(member_id, NOTHING), each.instance_id)
    subscribed = frozenset[bytes]().union(*ids_of.values())
    return ASSIGNORS[assignor](members, partition_counts(topics, subscribed))


log = logging.getLogger(__name__)

T = TypeVar("T")


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
    """The member's new subscription, by a heartbeat or a JoinGroup; `group` is not the shard's yet if `records` make it.

    `owned` are the member's partitions, None if the request does not have them.
    """
    shard, now_ms, request, client = beat
    member = group.members.get(request.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    if member is None:
        protocol = "consumer" if metadata.classic_member_metadata is None else "classic"
        log.info(
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
    # An expression that is not resolved yet changes the target when it is, and not before because some other topic changed.
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
        return target.assign_if_due(shard, now_ms, known, plan, reconcile)

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
    """The member stays in its epoch; it is in need of a newer target."""
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
        # What it has just given up itself is free for it.
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
