"""One log with threads: its own appends, rolls, truncates and deletes, while others run the jobs of flushes and of retention.

With real threads the interpreter switches anywhere, every 0.2 ms; the simulator's stop before file system calls only, and a seed
repeats (tests/sim/log_threads.py). After each restart, clean or as by kill -9, batches, epochs and producers are compared with
what was appended.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ottla.protocol.records.builder import build_batch
from ottla.storage.directories.recovery import open_log
from ottla.storage.errors import StorageFailure
from ottla.storage.files import Files, Mappings
from ottla.storage.log.durability import FlushJob
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.retention import begin_retention, delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=6_000, index_interval_bytes=300, file_delete_delay_ms=0)
#: Two flushes may be in progress: those of flush.messages, of the schedule and of a follower may meet.
FLUSHES = ("flush", "another flush")
PRODUCERS = 5
#: The time in which a run has to reach its counts. It takes seconds, more on a busy machine; a test may take 120 s.
LIMIT_SECONDS = 100


class Job(Protocol):
    """The task of one thread."""

    def done(self) -> bool: ...
    def result(self) -> object:
        """Wait for the end."""


class ThreadedLog:
    """A log, its expected contents, and the jobs that threads run for it. `submit` begins one."""

    def __init__(self, directory: str, seed: int, files: Files, submit: Callable[[Callable[[], None]], Job]) -> None:
        self._path = directory
        self._rng = random.Random(seed)
        self._files = files
        self._submit = submit
        self._batches: dict[int, bytes] = {}
        self._sequences: dict[int, int] = {}
        self._start = self._end = self._epoch = 0
        #: The running job of each kind, and the function that ends it.
        self._jobs: dict[str, tuple[Job, Callable[[], object]]] = {}
        self._log = self._open(0, is_clean=False)
        self.done: Counter[str] = Counter()

    def run(self, wanted: Counter[str]) -> None:
        """Take steps until all of these are done, however fast the threads are."""
        steps: list[tuple[Callable[[], None], float]] = [
            (self._append, 60), (self._flush, 18), (self._end_jobs, 14), (self._log_roll, 4), (self._truncate, 4),
            (self._retain, 4), (self._restart, 1.5),
        ]  # fmt: skip
        chosen, weights = zip(*steps, strict=True)
        until = time.monotonic() + LIMIT_SECONDS
        while not self.done >= wanted and time.monotonic() < until:
            self._rng.choices(chosen, weights)[0]()
        self._restart()

    def _open(self, recovery_point: int, *, is_clean: bool) -> Log:
        spec = LogSpec(self._files, Mappings(), self._path, "t", 0, bytes(16), CONFIG, now_ms=NOW_MS)
        return open_log(spec, clean=is_clean, recovery_point=recovery_point, log_start_offset=self._start)

    def _append(self) -> None:
        producer = self._rng.randrange(-1, PRODUCERS)
        sequence = self._sequences.get(producer, 0) if producer >= 0 else -1
        batch = bytearray(
            build_batch(
                [(b"k", self._rng.randbytes(self._rng.choice((50, 200, 400, 9_000))), NOW_MS)],
                producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
            )
        )  # fmt: skip
        batch[0:8] = self._end.to_bytes(8, "big")
        batch[12:16] = self._epoch.to_bytes(4, "big")
        append_trusted(self._log, bytes(batch), leader_epoch=self._epoch, now_ms=NOW_MS, origin=Origin.REPLICATION)
        self._batches[self._end] = bytes(batch)
        self._end += 1
        if producer >= 0:
            self._sequences[producer] = sequence + 1

    def _flush(self) -> None:
        kind = self._rng.choice(FLUSHES)
        if kind not in self._jobs and (job := self._log.begin_flush()) is not None:
            self._jobs[kind] = self._submit(job.run), lambda: self._end_flush(job)
            self.done["flush"] += 1

    def _end_flush(self, job: FlushJob) -> None:
        assert not self._log.end_flush(job, NOW_MS) or self._log.recovery_point >= job.end

    def _retain(self) -> None:
        log = self._log
        log.advance_high_watermark(self._rng.randint(self._start, self._end))
        self._start = max(self._start, self._rng.randint(self._start, min(self._start + 40, log.high_watermark)))
        delete_records(log, self._start)
        if "retention" not in self._jobs and (job := begin_retention(log, NOW_MS)) is not None:
            self._jobs["retention"] = self._submit(job.run), job.end
            self.done["segment retired"] += job.segments

    def _end_jobs(self) -> None:
        for kind, (job, end) in list(self._jobs.items()):
            if job.done():
                del self._jobs[kind]
                job.result()
                end()

    def _log_roll(self) -> None:
        self._log.roll(NOW_MS)

    def _truncate(self) -> None:
        if self._rng.random() < 0.2:
            truncate_fully_and_start_at(self._log, self._start)
            cut = self._start
        else:
            cut = self._rng.randint(max(self._start, self._end - 30), self._end)
            truncate_to(self._log, cut)
        for offset in range(cut, self._end):
            del self._batches[offset]
        self._end = cut
        self._epoch += 1
        assert (self._log.log_start_offset, self._log.log_end_offset) == (self._start, self._end)
        assert self._log.recovery_point <= self._end

    def _restart(self) -> None:
        for job, end in self._jobs.values():
            job.result()
            with suppress(StorageFailure):
                end()
        self._jobs.clear()
        log, is_clean = self._log, self._rng.random() < 0.4
        assert log.recovery_point <= log.log_end_offset == self._end and log.failure is None
        missing = [at for at in log.snapshots.offsets if not self._files.exists(f"{self._path}/{at:020d}.snapshot")]
        assert not missing, f"snapshots {missing} have no file"
        states = {each.producer_id: (each.epoch, each.last_sequence, each.last_offset) for each in log.producers}
        epochs = [entry for entry in log.epochs.entries if entry[1] < self._end]
        recovery_point = log.durability.recovery_point_to_write(log.log_end_offset)
        if is_clean:
            assert log.close()
        self._log = again = self._open(self._end if is_clean else recovery_point, is_clean=is_clean)
        self.done["restart"] += 1
        assert (again.log_start_offset, again.log_end_offset) == (self._start, self._end)
        assert [entry for entry in again.epochs.entries if entry[1] < self._end] == epochs
        found = {each.producer_id: (each.epoch, each.last_sequence, each.last_offset) for each in again.producers}
        assert {key: value for key, value in states.items() if value[2] >= self._start} == {
            key: value for key, value in found.items() if value[2] >= self._start
        }
        self._sequences = {producer: state[1] + 1 for producer, state in found.items()}
        offset, data = self._start, b""
        while offset < self._end:
            read = again.read(offset, max_bytes=5_000)
            assert read.next_offset > offset
            data, offset = data + bytes(read.records), read.next_offset
        assert data == b"".join(self._batches[at] for at in range(self._start, self._end))
