"""Known mistakes of log cleaners, put into the real one at run time: each must be caught within 200 seeds of the histories."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from ottla.protocol.records.batch import BatchView
from ottla.storage import checkpoint
from ottla.storage.cleaner import cleaner
from ottla.storage.cleaner.cleaner import CleaningPlan
from ottla.storage.cleaner.cleaner_filter import Keep, TransactionsSeen
from ottla.storage.directories.logs import Logs
from ottla.storage.log.durability import Cleaning
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import CLEANED_SUFFIX, SWAP_SUFFIX
from tests.effort import seeds
from tests.histories import Mutant, Patch, assert_noticed, play
from tests.sim.directed_histories import cleaner_histories_of

_plan_for = cleaner.plan_for
_create = Logs.create
_flush = Segment.flush
_with_survivors = Keep._with_survivors
_emptied = Keep._emptied
_superfluous = TransactionsSeen.marker_is_superfluous


def never_lowered() -> property:
    """Return a `Cleaning.cleaned_until` that only grows."""
    return property(
        lambda cleaning: cleaning.__dict__.get("highest", 0),
        lambda cleaning, offset: cleaning.__dict__.__setitem__(
            "highest", max(offset, cleaning.__dict__.get("highest", 0))
        ),
    )


def create_with_old_checkpoint(self: Logs, topic: str, partition: int, *args: Any, **kwargs: Any) -> Log:
    known = [self.checkpoints.known(d.path, checkpoint.CLEANER, (topic, partition)) for d in self.directories]
    log = _create(self, topic, partition, *args, **kwargs)
    log.cleaning.cleaned_until = max(log.cleaning.cleaned_until, *known)
    return log


class ChangedLog:
    """Return a log with some changed attributes, computed from the others."""

    def __init__(self, log: Log, changed: dict[str, Callable[[Log], Any]]) -> None:
        self._log, self._changed = log, changed

    def __getattr__(self, name: str) -> Any:
        return self._changed[name](self._log) if name in self._changed else getattr(self._log, name)


def plan(**changed: Callable[[Log], Any]) -> Callable[..., CleaningPlan]:
    """Return a `plan_for` that sees a changed log."""
    return lambda log, first_dirty, now_ms: _plan_for(cast(Log, ChangedLog(log, changed)), first_dirty, now_ms)


def plan_with_active_segment(log: Log, first_dirty: int, now_ms: int) -> CleaningPlan:
    made, active = _plan_for(log, first_dirty, now_ms), log.segments.active
    if made.end < active.base_offset or not active.file.size:
        return made
    return replace(made, end=log.log_end_offset, dirty_bytes=made.dirty_bytes + active.file.size)


def without_tombstones(self: Keep, batch: BatchView, data: bytes, records: Any, survivors: Any) -> Any:
    return _with_survivors(self, batch, data, records, [record for record in survivors if not record.is_tombstone])


def superfluous_at_once(self: TransactionsSeen, batch: BatchView, commit: bool) -> bool:
    _superfluous(self, batch, commit)
    return True


def emptied_of_all(self: Keep, batch: BatchView) -> Any:
    return _emptied(self, batch) if batch.next_offset == self.end else b""


def closed_only(log: Log, truncations: int, segments: Iterable[Segment]) -> None:
    if log.closed:
        raise cleaner.LogChanged("closed")


def swap_in_the_wrong_order(log: Log, old: list[Segment], cleaned: Segment) -> None:
    ids = {id(segment) for segment in old}
    remaining = [segment for segment in log.segments if id(segment) not in ids]
    at = sum(segment.base_offset < cleaned.base_offset for segment in remaining)
    log.partition_dir.delete(old)
    cleaned.change_suffix(SWAP_SUFFIX)
    cleaned.change_suffix("")
    log.segments.replace([*remaining[:at], cleaned, *remaining[at:]])


def flush_all_but_cleaned(self: Segment) -> bool:
    return False if self.file.log_path.endswith(CLEANED_SUFFIX) else _flush(self)


def not_flushed(log: Log, offset: int, now_ms: int) -> Generator[Any, Any, None]:
    yield from ()


def not_aborted(self: TransactionsSeen, batch: BatchView) -> bool:
    return False


#: the mistake, the place where it is inserted, and its code
MUTANTS: dict[str, Patch] = {
    "a truncation leaves what was cleaned below it": (Cleaning, "cleaned_until", never_lowered()),
    "a new topic inherits the checkpoint of an old one": (Logs, "create", create_with_old_checkpoint),
    "tombstones go with the values they delete": (Keep, "_with_survivors", without_tombstones),
    "markers go while there is data of their transactions": (
        TransactionsSeen,
        "marker_is_superfluous",
        superfluous_at_once,
    ),
    "the active segment is cleaned": (cleaner, "plan_for", plan_with_active_segment),
    "what is not stable is cleaned": (
        cleaner,
        "plan_for",
        plan(last_stable_offset=lambda log: log.log_end_offset),
    ),
    "what is younger than min.compaction.lag.ms is cleaned": (
        cleaner,
        "plan_for",
        plan(config=lambda log: replace(log.config, min_compaction_lag_ms=0)),
    ),
    "the last sequences of producers are lost": (Keep, "_emptied", emptied_of_all),
    "records of aborted transactions count": (TransactionsSeen, "belongs_to_aborted", not_aborted),
    "a pass does not notice a truncation": (cleaner, "_check_unchanged", closed_only),
    "old segments go before the new one is named": (cleaner, "_swap", swap_in_the_wrong_order),
    "new segments are not synced": (Segment, "flush", flush_all_but_cleaned),
    "the log is not flushed before a pass": (cleaner, "_flushed", not_flushed),
}


def is_noticed(name: str, seed: int) -> bool:
    return any(Mutant(name, (MUTANTS[name],)).is_noticed(history.run) for history in cleaner_histories_of(seed))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_noticed(name: str) -> None:
    assert_noticed("cleaner", name, is_noticed)


def run(seed: int) -> None:
    for history in cleaner_histories_of(seed):
        history.run()


def test_without_a_mutant_the_same_seeds_pass() -> None:
    play(run, range(seeds(10, long=100)))
