"""One log on the simulated disk whose threads stop before their file system calls (tests/chaos/log_threads.py), and mistakes of it.

Beside what that compares, all that the recovery point covers must be on the platters after each flush.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.storage.log.durability import Durability, FlushJob
from ottla.storage.log.log import Log
from ottla.storage.producers import producer_snapshots
from ottla.storage.producers.producer_snapshots import Frozen, ProducerSnapshots
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segments import Segments
from tests.chaos.log_threads import NOW_MS, ThreadedLog
from tests.histories import Mutant, Patch
from tests.sim.disk import SimDisk
from tests.sim.loop import run
from tests.sim.threads import Threads, simulated_locks

DIRECTORY = "/data/t-0"
WANTED = Counter({"restart": 8, "flush": 50, "segment retired": 25})


class SimJob:
    """A job on a simulated thread. It goes on when it is asked whether it is done, and in the middle of the loop's calls."""

    def __init__(self, threads: Threads, function: Callable[[], None]) -> None:
        self._threads = threads
        self._thread = threads.begin(function)

    def done(self) -> bool:
        return self._thread.resume()

    def result(self) -> object:
        try:
            while not self._thread.resume():
                pass
            return self._thread.result()
        finally:
            self._threads.end(self._thread)


class SimulatedLog(ThreadedLog):
    def __init__(self, seed: int) -> None:
        self._disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        self._disk.make_dirs(DIRECTORY)
        self._disk.threads = threads = Threads(random.Random(seed))
        super().__init__(DIRECTORY, seed, self._disk, lambda function: SimJob(threads, function))

    def _end_flush(self, job: FlushJob) -> None:
        super()._end_flush(job)
        log = self._log
        for segment in log.segments:
            covered = segment.position_of(log.recovery_point) if log.recovery_point > segment.base_offset else 0
            end = segment.file.size if covered is None else covered
            inode = self._disk._must(segment.file.log_path)
            assert inode.durable[:end] == inode.data[:end], f"{segment.file.log_path} is not on the disk up to {end}"


def run_seed(seed: int) -> None:
    async def main() -> None:
        log = SimulatedLog(seed)
        log.run(WANTED)
        assert log.done >= WANTED

    with pytest.MonkeyPatch.context() as patch, simulated_locks():
        patch.setattr(producer_snapshots, "PRODUCERS_AT_ONCE", 2)  # flushes write the snapshots
        run(main())


_run = FlushJob.run
_begin = Durability.begin_flush
_begin_of = Log.begin_flush
#: By the id of its `Durability`.
LOGS: dict[int, Log] = {}


def begin_and_remember(log: Log) -> FlushJob | None:
    LOGS[id(log.durability)] = log
    return _begin_of(log)


def begin_on_the_worker(job: FlushJob) -> None:
    """Read on the worker which records a flush covers, while the loop may be in the middle of a change."""
    late = _begin(job.durability, LOGS[id(job.durability)].log_end_offset)
    if late is not None:
        job.end, job.truncations, job.rolls, job.segments, job.mark = (
            late.end, late.truncations, late.rolls, late.segments, late.mark,
        )  # fmt: skip
        cast("dict[int, Any]", job.frozen).update(late.frozen)
    _run(job)


def look_for_segments_on_the_worker(job: FlushJob) -> None:
    if job.segments:
        job.segments = tuple(job.durability.segments.from_offset(max(job.durability.recovery_point - 1, 0)))
    _run(job)


_replace = Segments.replace


def replace_in_two_steps(self: Segments, segments: list[Segment]) -> None:
    """The thread is switched between the updates of the list and of its base offsets, as the interpreter may do."""
    self._segments = segments
    segments[-1].file.files.exists(segments[-1].file.log_path)
    _replace(self, segments)


def begin_without_taking(durability: Durability, end_offset: int, **options: bool) -> FlushJob | None:
    """The frozen states stay in the log, where another flush also finds them."""
    job = _begin(durability, end_offset, **options)
    if job is not None:
        durability.snapshots.frozen.update(job.frozen)
    return job


def remove_what_another_has_counted(
    self: ProducerSnapshots, frozen: Frozen, written: list[int], *, is_current: bool, is_closed: bool
) -> None:
    for offset, states in frozen.items():
        if offset in written:
            if self.frozen.get(offset) is states:
                del self.frozen[offset]
                self.offsets.append(offset)
                self._unsynced = offset
            else:
                self._files.remove(self.path(offset))


MUTANTS: dict[str, tuple[Patch, ...]] = {
    "a flush begins in the middle of a truncation": (
        (Log, "begin_flush", begin_and_remember),
        (FlushJob, "run", begin_on_the_worker),
    ),
    "segments are replaced in two steps beside a flush": (
        (FlushJob, "run", look_for_segments_on_the_worker),
        (Segments, "replace", replace_in_two_steps),
    ),
    "two flushes write one snapshot and the second removes it": (
        (Durability, "begin_flush", begin_without_taking),
        (ProducerSnapshots, "end_writing", remove_what_another_has_counted),
    ),
}


def is_noticed(name: str, seed: int) -> bool:
    return Mutant(name, MUTANTS[name]).is_noticed(lambda: run_seed(seed))
