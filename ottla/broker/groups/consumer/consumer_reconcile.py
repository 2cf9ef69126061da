"""Reconciliation of a member with its target: first it revokes partitions, then it gets those that other members revoked.

A pure function. The member stays in its epoch until it has revoked everything, so that its commits for those partitions
are accepted; it gets a partition only when no other member owns it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ottla.broker.groups.modern.assignment import Assignment
from ottla.broker.groups.state.consumer_member import CurrentAssignment, Holdings
from ottla.broker.groups.state.member_state import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, moved
from ottla.protocol.errors import ErrorCode, KafkaError


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
    """Returns the next current assignment, or `current` itself if nothing changes.

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
    """Returns True if the member may own one of the partitions. Without the field `owned` it may own all of them."""
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & partitions.keys() for topic_id, partitions in revoked.items())
