"""Reconciliation of a member with its target: first it revokes partitions, then it gets those that other members revoked.

A pure function. The member stays in its epoch until it has revoked everything, so that its commits for those partitions
are accepted; it gets a partition only when no other member owns it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.broker.groups.consumer.member import CurrentAssignment, Holdings
from ottla.broker.groups.consumer.state import (
    STABLE,
    TRANSITIONS,
    UNKNOWN,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    MemberState,
)
from ottla.broker.groups.modern.assignment import Assignment
from ottla.protocol.errors import ErrorCode, KafkaError


def reconciled(
    current: CurrentAssignment,
    target_epoch: int,
    target: Assignment,
    is_free: Callable[[bytes, int], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    """Returns the next current assignment, or `current` itself if nothing changes.

    `owned`: the partitions that the heartbeat names as owned; None if it does not have that field.
    """
    epoch = current.epoch
    if current.state is STABLE and epoch == target_epoch:
        return current
    if current.state is UNREVOKED_PARTITIONS:
        if _has_any(owned, current.pending_revocation):
            return current
        epoch += 1
    elif current.state is UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )
        epoch = target_epoch
    following = _following(current, epoch, target_epoch, target, is_free, owned)
    return current if following == current else following


def _following(
    current: CurrentAssignment,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    is_free: Callable[[bytes, int], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in current.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for partition, since in partitions.items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = since
    if revoked and _has_any(owned, revoked):
        return _moved(current, UNREVOKED_PARTITIONS, epoch, kept, revoked)
    state = STABLE
    for topic_id, wanted in target.items():
        for partition in wanted - kept.get(topic_id, {}).keys():
            if is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = target_epoch
            else:
                state = UNRELEASED_PARTITIONS
    return _moved(current, state, target_epoch, kept, {})


def _moved(
    current: CurrentAssignment, state: MemberState, epoch: int, assigned: Holdings, pending: Holdings
) -> CurrentAssignment:
    assert state is current.state or state in TRANSITIONS[current.state], f"{current.state} to {state}"
    # The response with the new epoch may be lost, so the previous epoch stays valid.
    return replace(
        current,
        epoch=epoch,
        previous_epoch=current.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def _has_any(owned: Assignment | None, revoked: Holdings) -> bool:
    """Returns True if the member may own one of the partitions. Without the field `owned` it may own all of them."""
    if owned is None:
        return True
    return any(owned.get(topic_id, frozenset()) & partitions.keys() for topic_id, partitions in revoked.items())
