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
from ottla.broker.coordinator.sweep import NEXT_TURN_MS
from ottla.broker.groups.modern.modern_group import AnyModernGroup
from ottla.broker.groups.modern.offload import Compute
from ottla.broker.groups.shard import GroupShard
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)

#: Names in subscriptions and partitions, or tasks. 10,000 take 2 to 15 ms.
WORK_ON_LOOP_MAX = 10_000
#: Partitions, and topics or subtopologies, of targets that are written in one turn, at about 3 us each.
WRITTEN_PER_TURN = 4_000

T = TypeVar("T")


class Plan(NamedTuple):
    """A target to be computed: how much work it is, and the computation, which reads nothing that changes."""

    work: int
    compute: Compute


def assign(
    shard: GroupShard,
    group: AnyModernGroup,
    plan: Callable[[], Plan],
    go_on: Callable[[], Outcome[T]],
) -> Outcome[T]:
    """A large target is not there yet when this goes on: a later heartbeat finds it.

    The first one of a share or streams group is: its member would have epoch 0 until then, which means that it has not joined.
    """
    if group.is_assigning:
        return go_on()
    work, compute = plan()
    if work <= WORK_ON_LOOP_MAX or group.assignment_epoch <= 0:
        return Outcome(compute(), then=go_on, atomic=False)
    group.is_assigning = True
    instances = {member_id: instance_id for instance_id, member_id in group.static_members.items()}
    writing = _Writing(shard, group, group.epoch, instances)

    def found(records: Sequence[CoordinatorRecord] | None) -> None:
        writing.go_on_with(iter(records or ()), 0)

    shard.cluster.compute(compute, found)
    return go_on()


class _Writing(NamedTuple):
    """A large target on its way into the log. It counts for the epoch that it was computed for."""

    shard: GroupShard
    group: AnyModernGroup
    epoch: int
    #: The instance ids of static members when it was computed.
    instances: Mapping[str, str]

    def go_on_with(self, records: Iterator[CoordinatorRecord], delay_ms: int) -> None:
        self.shard.timers.schedule(("target", self.group.group_id), delay_ms, partial(self._write_some, records))

    def _write_some(self, records: Iterator[CoordinatorRecord]) -> Unasked:
        """Members that came since the computation get their partitions with the next target."""
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
        """Nothing counts without the epoch's record: a later heartbeat has the target computed again."""
        group = self.group
        group.is_assigning = False
        if group.rejected_epoch != self.epoch:
            log.warning(
                "[GroupId %s] The target of epoch %d could not be written: %s", group.group_id, self.epoch, error
            )
        group.rejected_epoch = self.epoch
        return Outcome()


def _size(value: Any) -> int:
    """How many partitions, and topics or subtopologies, a member's target has; the epoch's record has none."""
    kinds = (getattr(value, name, ()) for name in ("topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks"))
    return 1 + sum(1 + len(each.partitions) for kind in kinds for each in kind)
