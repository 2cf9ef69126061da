"""When the target of a consumer, share or streams group is computed: a small one at once, a large one on a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.modern.offload import Compute
from ottla.broker.groups.shard import GroupShard

#: Names in subscriptions and partitions, or tasks. 10,000 take 2 to 15 ms.
WORK_ON_LOOP_MAX = 10_000

T = TypeVar("T")


class Group(Protocol):
    """What groups of the three kinds have in common here."""

    group_id: str
    epoch: int
    assignment_epoch: int
    #: Soft state: a worker computes a target.
    is_assigning: bool

    @property
    def members(self) -> Mapping[str, object]: ...


def assign(
    shard: GroupShard,
    groups: Mapping[str, Group],
    group: Group,
    work: int,
    compute: Compute,
    go_on: Callable[[], Outcome[T]],
) -> Outcome[T]:
    """`groups` are the shard's of this kind. A large target is not there yet when this goes on: a later heartbeat finds it.

    The target of a single member is there: it has everything, and it may be the first of a share or streams group, whose
    member would have epoch 0 until then, which says that it has not joined.
    """
    if work <= WORK_ON_LOOP_MAX or group.assignment_epoch <= 0 or len(group.members) == 1:
        return Outcome(compute(), then=go_on)
    if not group.is_assigning:
        group.is_assigning = True
        epoch, member_ids = group.epoch, frozenset(group.members)

        def found(records: Sequence[CoordinatorRecord] | None) -> None:
            decide = partial(_computed, groups, group, epoch, member_ids, records)
            shard.timers.schedule(("target", group.group_id), 0, decide)

        shard.cluster.compute(compute, found)
    return go_on()


def _computed(
    groups: Mapping[str, Group],
    group: Group,
    epoch: int,
    member_ids: frozenset[str],
    records: Sequence[CoordinatorRecord] | None,
) -> Unasked:
    """The target counts for the epoch that it was computed for. Members that came since get theirs with the next one.

    If one has left, or another process has taken the place of a static member together with its target, partitions would be
    in two targets or in none: the target is dropped, and the next heartbeat has it computed again.
    """
    group.is_assigning = False
    is_it = groups.get(group.group_id) is group
    if records is None or not is_it or group.assignment_epoch >= epoch or not member_ids <= group.members.keys():
        return Outcome()
    return Outcome(records)
