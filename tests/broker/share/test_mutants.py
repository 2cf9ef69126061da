"""Known mistakes of the leader of a share partition; the random histories of test_share_partition.py notice each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.share import share_partition
from ottla.broker.share.in_flight import InFlightRecords, RecordState, Run
from ottla.broker.share.share_partition import SharePartition, Update
from ottla.broker.share.share_state import ShareState
from tests.broker.share.test_share_partition import (
    test_random_histories_agree_with_the_model_of_single_records as history,
)
from tests.histories import Mutant, assert_noticed

#: An object, its attribute, and the function that makes the mistake of the right attribute.
Mistake = tuple[Any, str, Callable[[Any], Any]]


def always(value: Any) -> Callable[[Any], Any]:
    return lambda right: lambda *arguments, **options: value


def load_without_gaps(right: Any) -> Any:
    def load(settings: Any, state: ShareState, start_offset: int) -> SharePartition:
        first = state.batches[0].first_offset if state.batches else start_offset
        partition: SharePartition = right(settings, state, first)
        return partition

    return staticmethod(load)


def seen_before_written(right: Any) -> Any:
    def begin(self: SharePartition, changes: list[tuple[Run, RecordState]]) -> Update | None:
        update: Update | None = right(self, changes)
        for run, target in changes:
            self.in_flight.change(run, target)
            run.target = target
        return update

    return begin


def written_although_it_failed(right: Any) -> Any:
    return lambda self, update, now_ms: self.written(update)


def renewed_for_ever(right: Any) -> Any:
    def acknowledge(self: SharePartition, member_id: str, acknowledgements: Any, now_ms: int) -> Update | None:
        update: Update | None = right(self, member_id, acknowledgements, now_ms + 1_000_000)
        return update

    return acknowledge


def not_counted(right: Any) -> Any:
    def acquire(self: SharePartition, *arguments: Any, **options: Any) -> Any:
        acquired = right(self, *arguments, **options)
        for first, last, _ in acquired:
            for run in self.in_flight.overlapping(first, last):
                run.count = 1
        return [each._replace(delivery_count=1) for each in acquired]

    return acquire


MUTANTS: dict[str, Mistake] = {
    "records are delivered for ever": (share_partition, "released", always(RecordState.AVAILABLE)),
    "released records are archived": (share_partition, "released", always(RecordState.ARCHIVED)),
    "a rejected record is archived without its dead letter": (
        SharePartition,
        "_outcome",
        lambda right: lambda self, run, kind: RecordState.ARCHIVED if kind == 3 else right(self, run, kind),
    ),
    "records that are given up have no dead letters": (SharePartition, "take_dead", always([])),
    "a new leader forgets the dead letters of the one before": (
        share_partition,
        "GIVEN_UP",
        lambda right: right - {RecordState.ARCHIVING},
    ),
    "acknowledgements of other members count": (share_partition, "_check_held", always(None)),
    "the delivery count stays at one": (SharePartition, "acquire", not_counted),
    "the first lock to time out takes all others along": (
        SharePartition,
        "time_out",
        lambda right: lambda self, now_ms: right(self, now_ms + 1_000_000),
    ),
    "locks never time out": (SharePartition, "time_out", always(None)),
    "a member that leaves takes nothing back": (SharePartition, "release", always(None)),
    "a renewed lock never times out": (SharePartition, "acknowledge", renewed_for_ever),
    "a change is seen before it is written": (SharePartition, "_begin", seen_before_written),
    "a write that fails counts": (SharePartition, "not_written", written_although_it_failed),
    "a new leader begins at the first written batch": (SharePartition, "load", load_without_gaps),
    "records of aborted transactions are delivered": (
        SharePartition,
        "_without_aborted",
        lambda right: lambda self, runs, aborted: runs,
    ),
    "offsets that compaction removed stay available": (SharePartition, "_archive_missing", always(None)),
    "the log start offset is not looked at": (SharePartition, "move_log_start", always(None)),
    "what was released is not delivered again": (InFlightRecords, "first_available", always(None)),
    "runs are merged whatever their delivery counts": (
        Run,
        "continues",
        lambda right: (
            lambda self, before: (
                self.state == before.state != RecordState.ACQUIRED and self.target is None is before.target
            )
        ),
    ),
    "the start offset stays": (InFlightRecords, "drop_finished", always(False)),
}


def is_noticed(name: str, seed: int) -> bool:
    owner, attribute, mistake = MUTANTS[name]
    mutant = Mutant(name, ((owner, attribute, mistake(getattr(owner, attribute))),))
    return mutant.is_noticed(lambda: history(seed))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_noticed(name: str) -> None:
    assert_noticed("one share partition", name, is_noticed)
