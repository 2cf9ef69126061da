"""Heartbeats of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071), as far as they are the same: their checks, the group's
target, the members' timers, and how members are removed.

A heartbeat is up to four decisions, each appended and replayed before the next: the member's metadata and the group's epoch; the target
of that epoch; the member's next step; a last one that only some kinds have. Each leaves a state that the next heartbeat can go
on from. Most heartbeats decide nothing and only begin the session again.

A small target is computed at once, a large one on a worker thread. The records of its members come first, in as many batches as they
need, and the record of the assignment epoch last: until it is there no target counts as new, so that a coordinator that ends in between
leaves nothing but targets to be computed again. A large one is written in several turns of the event loop.

A member is removed that sends no heartbeat within its session, or does not release within its rebalance timeout what it was asked for.
The rebalance timeout starts again with each step that asks the member to release something, as in Kafka: a member stays in its epoch
when it is asked a second time, and has its whole timeout for the second request as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.timers import NEXT_TURN_MS
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.modern.modern_group import AnyModernGroup, ModernMember, ModernRecords
from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

#: The timers of a member; members by the classic protocol have the last two.
SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
#: Names in subscriptions and partitions, or tasks. 10,000 take 2 to 15 ms.
WORK_ON_LOOP_MAX = 10_000
#: Partitions, and topics or subtopologies, of targets that are written in one turn, at about 3 us each.
WRITTEN_PER_TURN = 4_000

T = TypeVar("T")
G = TypeVar("G", bound=AnyModernGroup)
RequestT = TypeVar("RequestT")


# ---- checks


class Beat(NamedTuple, Generic[RequestT]):
    """A heartbeat at the shard of its group."""

    shard: GroupMetadataManager
    now_ms: int
    request: RequestT
    client: Client


def check(is_right: object, message: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_ids(request: Any, *, has_member_id: bool = True) -> None:
    """Reject blank ids in a request."""
    if has_member_id:
        check(request.member_id.strip(), "MemberId can't be empty.")
    check(request.group_id.strip(), "GroupId can't be empty.")
    instance_id = getattr(request, "instance_id", None)
    check(instance_id is None or instance_id.strip(), "InstanceId can't be empty.")
    check(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")


def check_size(group: AnyModernGroup, member_id: str, size_max: int) -> None:
    if member_id not in group.members and len(group.members) >= size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {group.type.value} group has reached its maximum capacity of {size_max} members.",
        )


def fenced(kind: GroupType, epoch: int, current_epoch: int, also: str = "") -> KafkaError:
    """Return the error for a member whose epoch is not the one that the coordinator knows."""
    word = "greater" if epoch > current_epoch else "smaller"
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind.value} group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({current_epoch}){also}. The member must abandon all its partitions and rejoin.",
    )


def bump_epoch(shard: GroupMetadataManager, group: AnyModernGroup, record: CoordinatorRecord) -> CoordinatorRecord:
    """Count and log the group's next epoch, whose record this is."""
    shard.counts.rebalances[group.type] += 1
    shard.story(group.group_id, log).info("[GroupId %s] Bumped group epoch to %d.", group.group_id, group.epoch + 1)
    return record


# ---- the group's target


class Plan(NamedTuple):
    """A target to be computed: how much work it is, the assignor's name, and the computation of all members' targets.

    `assign` gets the former targets, and reads nothing that changes, so that it may run on a worker.
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
    """Compute the group's target, then go on. A large target is computed on a worker: a later heartbeat finds it.

    The first target of a share or streams group is computed at once: its member would have epoch 0 until then, which means that it has not joined.
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
    *,
    may_change: bool = False,
) -> Outcome[T]:
    """Compute a target, at most once in each assignment interval.

    Many members may join at once (KIP-1263). A single member need not wait, unless its assignment `may_change` at once.
    """
    is_too_early = is_in_interval(shard, now_ms, group) and (may_change or len(group.members) > 1)
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
    """Return the records of members whose target has changed, and that of the assignment epoch after them."""
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
        """Return the key for the member, or for the one that has taken a static member's place with its target; None if it has left.

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
            self.shard.story(group.group_id, log).warning(
                "[GroupId %s] The target of epoch %d could not be written: %s", group.group_id, self.epoch, error
            )
        group.rejected_epoch = self.epoch
        return Outcome()


def _size(value: Any) -> int:
    """Return how many partitions, and topics or subtopologies, a member's target has; the epoch's record has none."""
    kinds = (getattr(value, name, ()) for name in ("topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks"))
    return 1 + sum(1 + len(each.partitions) for kind in kinds for each in kind)


# ---- timers


def timer_key(timer: str, group: AnyModernGroup, member_id: str) -> tuple[str, str, str]:
    return f"{group.type.value}-{timer}", group.group_id, member_id


def keep_alive(
    shard: GroupMetadataManager, group: AnyModernGroup, member: ModernMember, *, has_moved: bool = False
) -> None:
    """Restart the member's session, and its rebalance timeout if it `has_moved` to a step in which it has to release something."""
    timers, member_id = shard.timers, member.member_id
    session_ms = group.session_timeout_ms(member, shard.cluster.settings_of(group).session_timeout_ms)
    key = timer_key(SESSION, group, member_id)
    if not timers.postpone(key, session_ms):
        timers.schedule(key, session_ms, partial(_end, shard, group, member_id, None, "the member session expired"))
    key, timeout_ms = timer_key(REBALANCE, group, member_id), group.release_timeout_ms(member)
    if timeout_ms is None:
        timers.cancel(key)
    elif has_moved or key not in timers:
        epoch = member.current.epoch
        why = f"it failed to transition from epoch {epoch} within {timeout_ms}ms"
        timers.schedule(key, timeout_ms, partial(_end, shard, group, member_id, epoch, why))


def _end(shard: GroupMetadataManager, group: AnyModernGroup, member_id: str, epoch: int | None, why: str) -> Unasked:
    """Remove a member whose time is over: that of its session, or that to release something in an `epoch`."""
    member = group.members.get(member_id)
    if shard.groups.get(group.group_id) is not group or member is None or epoch not in (None, member.current.epoch):
        return Outcome()
    return fence(shard, group, member, why)


def fence(shard: GroupMetadataManager, group: AnyModernGroup, member: ModernMember, why: str) -> Unasked:
    shard.story(group.group_id, log).info(
        "[GroupId %s] Member %s fenced from the group because %s.", group.group_id, member.member_id, why
    )

    def rejected(error: KafkaError) -> Unasked:
        """Start the session again of a member that stays, because the append failed."""
        keep_alive(shard, group, member)
        return Outcome()

    outcome: Unasked = remove(shard, group, {member.member_id}, None)
    outcome.rejected = rejected
    return outcome


def forget(shard: GroupMetadataManager, group: AnyModernGroup, member_id: str) -> None:
    """Cancel all timers of a member that is gone."""
    for timer in (SESSION, REBALANCE, JOIN, SYNC):
        shard.timers.cancel(timer_key(timer, group, member_id))


# ---- removal


def remove(shard: GroupMetadataManager, group: AnyModernGroup, member_ids: Set[str], response: T | None) -> Outcome[T]:
    """Remove the members: their tombstones, the records that follow from them, and the group's next epoch.

    It is a classic group instead, if only classic members of a consumer group stay.
    """
    instead = shard.kinds.instead_of_removal(shard, group, member_ids, response)
    if instead is not None:
        return instead
    topics = shard.cluster.topics()
    records = [row for member_id in member_ids for row in group.records.member_tombstones(group.group_id, member_id)]
    records += group.tombstones_without(member_ids)
    names = group.names_without(member_ids, topics)
    new_hash = group.metadata_hash if names is None else shard.cluster.hashes.of_group(topics, names, at_once=True)

    def removed() -> Outcome[T]:
        if names is not None:
            group.seen_topics = topics
        for member_id in member_ids:
            forget(shard, group, member_id)
        return Outcome()

    return Outcome([*records, group.next_epoch(new_hash)], response, then=removed)
