"""Delivery to the listener: committed snapshots and batches in the log's order, and leader changes.

It reads the log up to the high watermark. The listener handles a delivery as work in slices (`protocol.work`): the first
slice runs at once, each other one in a turn of its own, so that neither a long replay nor a snapshot of a large cluster
blocks the event loop. The next delivery begins after the work is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.effects import LeaderAndEpoch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.snapshots import SnapshotReader, SnapshotReplaced
from ottla.protocol.work import Work
from ottla.server.clock import Clock, begin_in_turns

#: The size of committed batches that are delivered in one turn of the event loop: about 10 ms of decoding.
DELIVERY_BYTES_MAX = 256 * 1024


class RaftListener(Protocol):
    """The state machine over the log. Its methods are called on the event loop, in the log's order, and may call the node."""

    def handle_commit(self, batches: list[CommittedBatch]) -> Work[None] | None: ...

    def handle_snapshot(self, reader: SnapshotReader) -> Work[None] | None:
        """Replace the state by the snapshot's: the log before its offset is deleted.

        If the leader sends a newer snapshot meanwhile, the work is stopped and the newer one is delivered.
        """

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        """The quorum has another leader; -1: it is unknown.

        The own id says that this replica leads, and that all committed batches are delivered.
        """


class Delivery:
    def __init__(
        self,
        state: QuorumState,
        log: MetadataLog,
        listener: RaftListener,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.leader_to_notify: LeaderAndEpoch | None = None
        self.is_over = False
        self._state = state
        self._log = log
        self._listener = listener
        self._clock = clock
        self._on_failure = on_failure
        self._delivered = -1
        #: The running work, and the listener's offset after it.
        self._work: Work[None] | None = None
        self._end = -1
        self._asked: deque[Work[None]] = deque()
        #: The snapshot that the running work reads.
        self._loading: SnapshotReader | None = None
        self._running = False

    @property
    def is_idle(self) -> bool:
        """Return True if everything committed is delivered."""
        return self._work is None and not self._asked and self._delivered >= self._end_to_deliver

    @property
    def _end_to_deliver(self) -> int:
        """Return the offset up to which batches can be delivered.

        Without room on the disk, batches may be committed that are not in the log yet.
        """
        return min(self._state.high_watermark, self._log.end_offset)

    def insert(self, work: Work[None]) -> None:
        """Run this work between two deliveries."""
        self._asked.append(work)
        self.run()

    def run(self) -> None:
        """Deliver everything committed. The listener may append meanwhile, but calls of this method do not nest."""
        if self._running or self.is_over or (self.is_idle and self.leader_to_notify is None):
            return
        self._running = True
        begin_in_turns(self._clock, self._deliver())

    def _deliver(self) -> Work[None]:
        try:
            size = 0
            while not self.is_idle:
                if size <= DELIVERY_BYTES_MAX:
                    if self._work is None:
                        size += self._begin()
                    if self._advance():
                        continue
                yield None
                if self.is_over:
                    return
                size = 0
            self._notify_leader()
        except Exception as failure:
            # The listener's state differs from the log now, so the node must stop.
            self._on_failure(failure)
            raise
        finally:
            self._running = False

    def _begin(self) -> int:
        """Begin the next delivery, which must exist; return its size in bytes of the log."""
        state = self._state
        self._end = self._delivered
        if self._asked:
            self._work = self._asked.popleft()
            return 0
        if self._delivered < max(state.log.start_offset, 0):
            latest = state.log.latest_snapshot
            if latest is not None and latest.offset > 0:
                self._end = latest.offset
                self._loading = self._log.snapshots.reader(latest)
                self._work = self._listener.handle_snapshot(self._loading)
                return 0
            assert state.log.start_offset == 0, "the log starts later than 0, and there is no snapshot"
            self._delivered = self._end = 0
        end = self._end_to_deliver
        if self._delivered >= end:
            return 0
        batches = self._log.committed(self._delivered, end, DELIVERY_BYTES_MAX)
        assert batches, f"nothing between {self._delivered} and the high watermark {end}"
        self._end = batches[-1].last_offset + 1
        self._work = self._listener.handle_commit(batches)
        return sum(batch.size_bytes for batch in batches)

    def _advance(self) -> bool:
        """Run a slice of the work; return True if it was the last one."""
        if self._loading is not None:
            self._loading.is_replaced = self._loading.snapshot_id != self._state.log.latest_snapshot
        try:
            if self._work is not None:
                next(self._work)
                return False
        except StopIteration:
            pass
        except SnapshotReplaced:
            self._end = self._delivered
        self._delivered, self._work, self._loading = self._end, None, None
        return True

    def _notify_leader(self) -> None:
        while self.leader_to_notify is not None:
            leader = self.leader_to_notify
            if leader.leader_id == self._state.key.id and self._delivered < self._state.log.end_offset:
                # The voter set has changed meanwhile. A leader's listener must have the whole log first.
                return
            self.leader_to_notify = None
            self._listener.handle_leader_change(leader.leader_id, leader.epoch)
