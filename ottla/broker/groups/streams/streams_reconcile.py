"""The next step of a member towards its target: first it closes the tasks that it has to, then it gets those that others closed.

A pure function. The member stays in its epoch until it has closed everything that it must, so that its commits for those tasks
are taken. It gets an active task only when no member has it as one, and any task only when its own process has it in no form:
two tasks of one process would lock one state directory.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.state.member_state import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, moved
from ottla.broker.groups.state.streams_member import CurrentAssignment, HeldTasks, Holdings, Tasks, TaskSet
from ottla.protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[str, int], bool]


def reconciled(
    current: CurrentAssignment,
    target_epoch: int,
    target: Tasks,
    is_free_active: IsFree,
    is_free_copy: IsFree,
    owned: Tasks | None,
) -> CurrentAssignment:
    """The member's next assignment: `owned` is what the member says it has, None if its heartbeat does not say; gives `current` itself if nothing changes.

    `is_free_active` and `is_free_copy` say whether a task may be given to this member: as an active one, or as standby or warm-up.
    """
    epoch = current.epoch
    if current.state is STABLE and epoch == target_epoch:
        return current
    if current.state is UNREVOKED:
        if owned is None or current.pending_revocation.has_any_of(owned):
            return current
        epoch += 1
    elif current.state is UNKNOWN:
        if owned is None or any(owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        epoch = target_epoch
    following = _following(current, epoch, target_epoch, target, is_free_active, is_free_copy, owned)
    return current if following == current else following


def _following(
    current: CurrentAssignment,
    epoch: int,
    target_epoch: int,
    target: Tasks,
    is_free_active: IsFree,
    is_free_copy: IsFree,
    owned: Tasks | None,
) -> CurrentAssignment:
    assigned = current.assigned
    kept = Holdings(
        _active_of(assigned.active, target.active, kept=True),
        _both(assigned.standby, target.standby),
        _both(assigned.warmup, target.warmup),
    )
    revoked = Holdings(
        _active_of(assigned.active, target.active, kept=False),
        _only(assigned.standby, target.standby),
        _only(assigned.warmup, target.warmup),
    )
    if any(revoked) and (owned is None or revoked.has_any_of(owned)):
        return moved(current, UNREVOKED, epoch, assigned=kept, pending_revocation=revoked)
    given, is_complete = _given(target, kept.tasks, is_free_active, is_free_copy)
    active = {subtopology: dict(partitions) for subtopology, partitions in kept.active.items()}
    for subtopology, partitions in given.active.items():
        active.setdefault(subtopology, {}).update(dict.fromkeys(partitions, target_epoch))
    holdings = Holdings(active, _union(kept.standby, given.standby), _union(kept.warmup, given.warmup))
    state = STABLE if is_complete else UNRELEASED
    return moved(current, state, target_epoch, assigned=holdings, pending_revocation=Holdings())


def _given(target: Tasks, kept: Tasks, is_free_active: IsFree, is_free_copy: IsFree) -> tuple[Tasks, bool]:
    """What the member gets in addition, and whether that is all that it lacks."""
    given = []
    is_complete = True
    for wanted, having, is_free in zip(target, kept, (is_free_active, is_free_copy, is_free_copy), strict=True):
        lacking = _only(wanted, having)
        free = {name: frozenset(p for p in partitions if is_free(name, p)) for name, partitions in lacking.items()}
        is_complete = is_complete and free == lacking
        given.append({name: partitions for name, partitions in free.items() if partitions})
    return Tasks(*given), is_complete


def _active_of(held: HeldTasks, target: TaskSet, *, kept: bool) -> HeldTasks:
    """Those of the held tasks that are in the target, or those that are not."""
    found = {
        name: {p: since for p, since in partitions.items() if (p in target.get(name, frozenset())) is kept}
        for name, partitions in held.items()
    }
    return {name: partitions for name, partitions in found.items() if partitions}


def _both(some: TaskSet, others: TaskSet) -> TaskSet:
    return {name: both for name, partitions in some.items() if (both := partitions & others.get(name, frozenset()))}


def _only(some: TaskSet, others: TaskSet) -> TaskSet:
    return {name: only for name, partitions in some.items() if (only := partitions - others.get(name, frozenset()))}


def _union(some: TaskSet, others: TaskSet) -> TaskSet:
    return {name: some.get(name, frozenset()) | others.get(name, frozenset()) for name in {**some, **others}}
