"""Handing to the listener what is committed: snapshots and batches in the log's order, and who leads.

It reads the log behind the high watermark. What the listener does with it is work in slices (`protocol.work`): the first
slice is done at once, each other one in a turn of its own, so that neither a long replay nor a snapshot of a large
cluster keeps a node from answering. Nothing else is handed over before the work is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.effects import LeaderAndEpoch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.snapshots import SnapshotReader, SnapshotReplaced
from ottla.controller.raft.state import RaftState
from ottla.protocol.work import Work
from ottla.server.clock import Clock

#: How much committed log is handed to the listener before the event loop gets a turn: about 10 ms of decoding.
DELIVERY_BYTES_MAX = 256 * 1024


class RaftListener(Protocol):
    """Whoever keeps the state that the log describes. Called on the event loop, in the log's order; may call the node."""

    def handle_commit(self, batches: list[CommittedBatch]) -> Work[None] | None: ...

    def handle_snapshot(self, reader: SnapshotReader) -> Work[None] | None:
        """Forget everything and load this: what was committed before its offset is not in the log any more.

        While it is being read the leader may send a newer one: then the work ends where it is, and that one is handed over.
        """

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        """-1: nobody, as far as this replica knows. Its own id: it leads, and the listener has the whole log."""


class Delivery:
    def __init__(
        self,
        state: RaftState,
        log: MetadataLog,
        listener: RaftListener,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.leader_to_tell: LeaderAndEpoch | None = None
        self.is_over = False
        self._state = state
        self._log = log
        self._listener = listener
        self._clock = clock
        self._on_failure = on_failure
        self._delivered = -1
        #: What is being done, and how far the listener will be after it.
        self._work: Work[None] | None = None
        self._end = -1
        self._asked: deque[Work[None]] = deque()
        #: The snapshot that the work is about, while it is being read.
        self._loading: SnapshotReader | None = None
        self._running = False
        self._turn_is_due = False

    @property
    def is_idle(self) -> bool:
        """Whether the listener has everything that is committed."""
        return self._work is None and not self._asked and self._delivered >= self._state.high_watermark

    def insert(self, work: Work[None]) -> None:
        """Do this between two deliveries."""
        self._asked.append(work)
        self.run()

    def run(self) -> None:
        """Deliver what there is. What the listener does may append more, but never comes back in here."""
        if self._running or self._turn_is_due or self.is_over:
            return
        if self.is_idle and self.leader_to_tell is None:
            return
        self._running = True
        try:
            size = 0
            while not self.is_idle:
                if size > DELIVERY_BYTES_MAX:
                    self._go_on_later()
                    return
                if self._work is None:
                    size += self._begin()
                if not self._advance():
                    self._go_on_later()
                    return
            self._tell_leader()
        except Exception as failure:
            # The listener's state is not the log's any more: nothing it would say can be trusted.
            self._on_failure(failure)
            raise
        finally:
            self._running = False

    def _go_on_later(self) -> None:
        self._turn_is_due = True
        self._clock.call_later(0, self._next_turn)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self.run()

    def _begin(self) -> int:
        """Let the listener begin with what comes next, of which there is something; how many bytes of the log that are."""
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
        if self._delivered >= state.high_watermark:
            return 0
        batches = self._log.committed(self._delivered, state.high_watermark, DELIVERY_BYTES_MAX)
        assert batches, f"nothing between {self._delivered} and the high watermark {state.high_watermark}"
        self._end = batches[-1].last_offset + 1
        self._work = self._listener.handle_commit(batches)
        return sum(batch.size_bytes for batch in batches)

    def _advance(self) -> bool:
        """A slice of the work; whether it was the last one."""
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

    def _tell_leader(self) -> None:
        while self.leader_to_tell is not None:
            leader = self.leader_to_tell
            if leader.leader_id == self._state.key.id and self._delivered < self._state.log.end_offset:
                # A change of the voters got in between; the listener is to begin with the whole log.
                return
            self.leader_to_tell = None
            self._listener.handle_leader_change(leader.leader_id, leader.epoch)
