"""When the target of a consumer, share or streams group is computed: a small one at once, a large one on a worker thread.

The records of the members come first, in as many batches as they need, and the record of the assignment epoch last: until it is
there no target counts as new, so that a coordinator that ends in between leaves nothing but targets to be computed again. A
large one is written in several turns of the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.timers import NEXT_TURN_MS
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern.modern_group import AnyModernGroup, ModernRecords
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)

#: Names in subscriptions and partitions, or tasks. 10,000 take 2 to 15 ms.
WORK_ON_LOOP_MAX = 10_000
#: Partitions, and topics or subtopologies, of targets that are written in one turn, at about 3 us each.
WRITTEN_PER_TURN = 4_000

T = TypeVar("T")
G = TypeVar("G", bound=AnyModernGroup)


class Plan(NamedTuple):
    """A target to be computed: how much work it is, the assignor's name, and the computation of all members' targets.

    That is given the targets of before, and reads nothing that changes, so that a worker may do it.
    """

    work: int
    assignor: str
    assign: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def assign(
    shard: GroupMetadataManager,
    now_ms: int,
    group: G,
    plan: Callable[[GroupMetadataManager, G], Plan],
    go_on: Callable[[], Outcome[T]],
) -> Outcome[T]:
    """A large target is not there yet when this goes on: a later heartbeat finds it.

    The first one of a share or streams group is: its member would have epoch 0 until then, which means that it has not joined.
    """
    if group.is_assigning:
        return go_on()
    planned = plan(shard, group)
    compute = partial(target_records, group.group_id, group.epoch, group.targets.copy(), group.records, planned, now_ms)
    if planned.work <= WORK_ON_LOOP_MAX or group.assignment_epoch <= 0:
        return Outcome(compute(), then=go_on, atomic=False)
    group.is_assigning = True
    instances = {member_id: instance_id for instance_id, member_id in group.static_members.items()}
    writing = _Writing(shard, group, group.epoch, instances)

    def found(records: Sequence[CoordinatorRecord] | None) -> None:
        writing.go_on_with(iter(records or ()), 0)

    shard.cluster.compute(compute, found)
    return go_on()


def assign_if_due(
    shard: GroupMetadataManager,
    now_ms: int,
    group: G,
    plan: Callable[[GroupMetadataManager, G], Plan],
    go_on: Callable[[], Outcome[T]],
) -> Outcome[T]:
    """Compute a target, at most once in each assignment interval.

    Many members may join at once (KIP-1263). A first member need not wait.
    """
    is_too_early = is_in_interval(shard, now_ms, group) and len(group.members) > 1
    if group.epoch == group.assignment_epoch or is_too_early:
        return go_on()
    return assign(shard, now_ms, group, plan, go_on)


def is_in_interval(shard: GroupMetadataManager, now_ms: int, group: AnyModernGroup) -> bool:
    """Return whether the last target is younger than the assignment interval.

    A target from the future is no reason to wait: the clock of the coordinator that computed it was ahead.
    """
    return 0 <= now_ms - group.assignment_timestamp_ms < shard.cluster.settings_of(group).assignment_interval_ms


def target_records(
    group_id: str, epoch: int, before: Mapping[str, Any], records: ModernRecords[Any], plan: Plan, now_ms: int
) -> list[CoordinatorRecord]:
    """The records of members whose target is another one than before, and that of the assignment epoch after them."""
    changed = [
        records.target_record(group_id, member_id, target)
        for member_id, target in plan.assign(before).items()
        if before.get(member_id) != target
    ]
    log.info(
        "[GroupId %s] Computed a new target assignment for epoch %d with '%s' assignor: %d members changed",
        group_id,
        epoch,
        plan.assignor,
        len(changed),
    )
    return [*changed, records.assignment_epoch_record(group_id, epoch, now_ms)]


class _Writing(NamedTuple):
    """A large target on its way into the log. It counts for the epoch that it was computed for."""

    shard: GroupMetadataManager
    group: AnyModernGroup
    epoch: int
    #: The instance ids of static members when it was computed.
    instances: Mapping[str, str]

    def go_on_with(self, records: Iterator[CoordinatorRecord], delay_ms: int) -> None:
        self.shard.timers.schedule(("target", self.group.group_id), delay_ms, partial(self._write_some, records))

    def _write_some(self, records: Iterator[CoordinatorRecord]) -> Unasked:
        """Write a part of the target. Members that came since the computation get their partitions with the next target."""
        group = self.group
        if self.shard.groups.get(group.group_id) is not group or group.assignment_epoch >= self.epoch:
            group.is_assigning = False
            return Outcome()
        some: list[CoordinatorRecord] = []
        size = 0
        for key, value in records:
            written = self._of_present_member(key)
            if written is not None:
                some.append((written, value))
                size += _size(value)
            if size >= WRITTEN_PER_TURN:
                return Outcome(some, then=lambda: self._written(records), rejected=self._rejected, atomic=False)
        group.is_assigning = False
        return Outcome(some, rejected=self._rejected, atomic=False)

    def _written(self, rest: Iterator[CoordinatorRecord]) -> Unasked:
        self.go_on_with(rest, NEXT_TURN_MS)
        return Outcome()

    def _of_present_member(self, key: Any) -> Any:
        """The key for the member, or for the one that has taken a static member's place with its target; None if it has left.

        The partitions of a member that has left are in no target until the next one, which its leaving has made due.
        """
        member_id = getattr(key, "member_id", None)
        if member_id is None or member_id in self.group.members:
            return key
        successor = self.group.static_members.get(self.instances.get(member_id, ""))
        return None if successor is None else type(key)(key.group_id, successor)

    def _rejected(self, error: KafkaError) -> Unasked:
        """Forget the target: nothing counts without the epoch's record, and a later heartbeat has the target computed again."""
        group = self.group
        group.is_assigning = False
        if group.rejected_epoch != self.epoch:
            log.warning(
                "[GroupId %s] The target of epoch %d could not be written: %s", group.group_id, self.epoch, error
            )
        group.rejected_epoch = self.epoch
        return Outcome()


def _size(value: Any) -> int:
    """Return how many partitions, and topics or subtopologies, a member's target has; the epoch's record has none."""
    kinds = (getattr(value, name, ()) for name in ("topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks"))
    return 1 + sum(1 + len(each.partitions) for kind in kinds for each in kind)
