"""Any sequence of appends, rolls, truncations, deletions and restarts leaves what a plain list of batches would."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.protocol.records.batch import BatchView, iter_batches
from ottla.storage.log.log import Log
from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log.truncate import truncate_to
from tests.effort import examples
from tests.storage.logs_for_tests import NOW_MS, SMALL, batch, max_timestamp, open_at


class LogModel(RuleBasedStateMachine):
    log: Log

    @initialize()
    def start(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.log = open_at(self.directory, clean=True)
        self.batches: list[bytes] = []
        self.end = 0
        self.start_offset = 0
        self.high_watermark = 0
        self.epoch = 0
        self.step = 0

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), epoch_step=st.sampled_from([0, 0, 0, 1]))
    def append(self, count: int, size: int, epoch_step: int) -> None:
        self.step += 1
        self.epoch += epoch_step
        records = batch(count, size=size, fill=self.step, timestamp=NOW_MS + self.step % 7)
        appended = self.log.append(records, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert (appended.first_offset, appended.last_offset) == (self.end, self.end + count - 1)
        stored = bytearray(records)
        stored[:8] = self.end.to_bytes(8, "big")
        stored[12:16] = self.epoch.to_bytes(4, "big")
        self.batches.append(bytes(stored))
        self.end += count

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.high_watermark, self.start_offset)
        truncate_to(self.log, offset)
        gone = [b for b in self.batches if BatchView(memoryview(b)).last_offset >= offset]
        if gone:
            self.end = BatchView(memoryview(gone[0])).base_offset
            del self.batches[-len(gone) :]

    @rule(forward=st.integers(0, 8))
    def replicate_up_to(self, forward: int) -> None:
        ends = [BatchView(memoryview(b)).next_offset for b in self.batches]
        later = [end for end in ends if end > self.high_watermark]
        self.high_watermark = later[min(forward, len(later) - 1)] if later else self.high_watermark
        self.log.advance_high_watermark(self.high_watermark)

    @rule(forward=st.integers(0, 8))
    def delete_records(self, forward: int) -> None:
        offset = min(self.start_offset + forward, self.high_watermark)
        assert delete_records(self.log, offset) == max(offset, self.start_offset)
        self.start_offset = max(offset, self.start_offset)
        apply_retention(self.log, NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    @rule()
    def kill_and_start(self) -> None:
        self.reopen(clean=False)

    def reopen(self, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        self.log = open_at(
            self.directory, clean=clean, recovery_point=recovery_point, log_start_offset=self.start_offset
        )
        self.log.advance_high_watermark(self.high_watermark)

    @rule(back=st.integers(0, 20), max_bytes=st.integers(0, 1500), limit_back=st.integers(0, 6))
    def read(self, back: int, max_bytes: int, limit_back: int) -> None:
        offset = max(self.end - back, self.start_offset)
        limit = max(self.end - limit_back, 0)
        got = self.log.read(offset, max_bytes=max_bytes, up_to_offset=limit)
        wanted = [
            b
            for b in self.batches
            if (view := BatchView(memoryview(b))).last_offset >= offset and view.last_offset < limit
        ]
        found = [bytes(view.buffer) for view in iter_batches(got.records)]
        assert sum(map(len, found)) == len(got.records), "only whole batches"
        assert found == wanted[: len(found)]
        if wanted and offset < limit:
            assert found, "the first batch is returned whatever its size"
        assert len(got.records) <= max_bytes or len(found) <= 1

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert (log.log_end_offset, log.log_start_offset) == (self.end, self.start_offset)
        assert log.high_watermark == max(self.high_watermark, self.start_offset)
        kept = [b for b in self.batches if BatchView(memoryview(b)).last_offset >= self.start_offset]
        assert [bytes(view.buffer) for view in log.batches(self.start_offset)] == kept
        if kept:
            assert log.epochs.latest >= BatchView(memoryview(kept[-1])).partition_leader_epoch
            records = [record for b in kept for record in BatchView(memoryview(b)).records()]
            rows = [(record.timestamp, record.offset) for record in records if record.offset >= self.start_offset]
            found = max_timestamp(log)
            assert (found and found[:2]) == max(rows, key=lambda row: (row[0], -row[1]), default=None)


LogModel.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestLogModel = LogModel.TestCase
assert SMALL.segment_bytes < 3000, "the model must roll often"
