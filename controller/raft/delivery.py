"""Handing to the listener what is committed: snapshots and batches in the log's order, and who leads.

It reads the log behind the high watermark and gives the event loop a turn now and then, so that a long replay does not
keep a node from answering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from controller.raft.batches import CommittedBatch
from controller.raft.core import RaftCore
from controller.raft.effects import LeaderAndEpoch
from controller.raft.metadata_log import MetadataLog
from controller.raft.snapshots import SnapshotReader
from server.clock import Clock

#: How much committed log is handed to the listener before the event loop gets a turn: about 10 ms of decoding.
DELIVERY_BYTES_MAX = 256 * 1024


class RaftListener(Protocol):
    """Whoever keeps the state that the log describes. Called on the event loop, in the log's order; may call the node."""

    def handle_commit(self, batches: list[CommittedBatch]) -> None: ...

    def handle_snapshot(self, reader: SnapshotReader) -> None:
        """Forget everything and load this: what was committed before its offset is not in the log any more."""

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        """-1: nobody, as far as this replica knows. Its own id: it leads, and the listener has the whole log."""


class Delivery:
    def __init__(
        self,
        core: RaftCore,
        log: MetadataLog,
        listener: RaftListener,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.leader_to_tell: LeaderAndEpoch | None = None
        self.is_over = False
        self._core = core
        self._log = log
        self._listener = listener
        self._clock = clock
        self._on_failure = on_failure
        self._delivered = -1
        self._running = False

    def run(self, everything: bool = False) -> None:
        """Deliver what there is. What the listener does may append more, but never comes back in here."""
        if self._running or self.is_over:
            return
        if self._delivered >= self._core.high_watermark and self.leader_to_tell is None:
            return
        self._running = True
        try:
            size = 0
            while self._delivered < self._core.high_watermark:
                if size > DELIVERY_BYTES_MAX and not everything:
                    self._clock.call_later(0, self.run)
                    return
                size += self._deliver_some()
            self._tell_leader()
        except Exception as failure:
            # The listener's state is not the log's any more: nothing it would say can be trusted.
            self._on_failure(failure)
            raise
        finally:
            self._running = False

    def _deliver_some(self) -> int:
        core = self._core
        if self._delivered < max(core.log.start_offset, 0):
            latest = core.log.latest_snapshot
            if latest is not None and latest.offset > 0:
                self._listener.handle_snapshot(self._log.snapshots.reader(latest))
                self._delivered = latest.offset
                return 0
            assert core.log.start_offset == 0, "the log starts later than 0, and there is no snapshot"
            self._delivered = 0
        if self._delivered >= core.high_watermark:
            return 0
        batches = self._log.committed(self._delivered, core.high_watermark, DELIVERY_BYTES_MAX)
        assert batches, f"nothing between {self._delivered} and the high watermark {core.high_watermark}"
        self._delivered = batches[-1].last_offset + 1
        self._listener.handle_commit(batches)
        return sum(batch.size_bytes for batch in batches)

    def _tell_leader(self) -> None:
        while self.leader_to_tell is not None:
            leader = self.leader_to_tell
            if leader.leader_id == self._core.key.id and self._delivered < self._core.log.end_offset:
                # A change of the voters got in between; the listener is to begin with the whole log.
                return
            self.leader_to_tell = None
            self._listener.handle_leader_change(leader.leader_id, leader.epoch)
