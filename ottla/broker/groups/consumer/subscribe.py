"""The steps 2 to 4 of consumer_heartbeat.py, of a heartbeat or of a classic member's JoinGroup."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups import target
from ottla.broker.groups.consumer import regexes
from ottla.broker.groups.consumer.consumer_reconcile import Target, reconciled
from ottla.broker.groups.consumer.consumer_target import input_of, new_target, work_of
from ottla.broker.groups.consumer.removal import keep_alive
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment
from ottla.broker.groups.modern_heartbeat import bump_epoch
from ottla.broker.groups.state.consumer_group import ConsumerGroup
from ottla.broker.groups.state.consumer_member import EMPTY_METADATA, Member, partitions_of
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupMemberMetadataValue

log = logging.getLogger(__name__)

T = TypeVar("T")


class Subscription(NamedTuple):
    """The fields of a heartbeat or a JoinGroup; `owned` are the member's partitions, None if the request does not have them."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue
    owned: Assignment | None
    client: Client


class Step(NamedTuple):
    """The member with its new subscription, and its assignment before."""

    group: ConsumerGroup
    member: Member
    given_before: Assignment
    is_other_subscription: bool


def subscribe(
    shard: GroupMetadataManager,
    now_ms: int,
    group: ConsumerGroup,
    wanted: Subscription,
    records: list[CoordinatorRecord],
    respond: Callable[[Step], Outcome[T]],
) -> Outcome[T]:
    """The member's new subscription; `group` is not the shard's yet if `records` make it."""
    member = group.members.get(wanted.member_id)
    before = EMPTY_METADATA if member is None else member.metadata
    metadata = wanted.metadata
    if member is None:
        protocol = "consumer" if metadata.classic_member_metadata is None else "classic"
        log.info(
            "[GroupId %s] Member %s joins the consumer group using the %s protocol.",
            group.group_id,
            wanted.member_id,
            protocol,
        )
    if member is None or metadata != before:
        records.append(group.records.member_record(group.group_id, wanted.member_id, metadata))
    expression, former = metadata.subscribed_topic_regex or "", before.subscribed_topic_regex or ""
    records.extend(regexes.change(group, former, expression))
    has_other_names = metadata.subscribed_topic_names != before.subscribed_topic_names
    # An expression that is not resolved yet changes the target when it is, and not before because some other topic changed.
    is_changed = has_other_names or (expression != former and (not expression or expression in group.regexes))
    topics = shard.cluster.topics()
    if is_changed or group.has_changed_topics(topics):
        names = group.subscribed_topics({wanted.member_id: group.topics_of(metadata)})
        new_hash = shard.cluster.hashes.of_group(topics, names)
        if is_changed or new_hash != group.metadata_hash:
            records.append(bump_epoch(shard, group, group.next_epoch(new_hash)))
    given_before = {} if member is None else partitions_of(member.current.assigned)

    def subscribed() -> Outcome[T]:
        known = shard.group(ConsumerGroup, group.group_id)
        known.seen_topics = topics
        regexes.refresh_if_due(shard, known, now_ms, wanted.client)
        is_other = has_other_names or expression != former
        step = Step(known, known.members[wanted.member_id], given_before, is_other)
        return _assign(shard, now_ms, known, lambda: _reconcile(shard, step, wanted.owned, respond))

    return Outcome(records, then=subscribed)


def _assign(
    shard: GroupMetadataManager, now_ms: int, group: ConsumerGroup, go_on: Callable[[], Outcome[T]]
) -> Outcome[T]:
    def plan() -> target.Plan:
        topics = shard.cluster.topics()
        given = input_of(group, topics, shard.config.consumer_group_assignors[0])
        return target.Plan(work_of(group, topics), partial(new_target, given, now_ms))

    return target.assign_if_due(shard, now_ms, group, plan, go_on)


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
