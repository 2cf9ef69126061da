"""A Fetch that waits: until an append or a high watermark brings fetch.min.bytes, an error turns up, or max.wait.ms is over.

It watches the partitions of its session (session.py) and is in the timer wheel. The two kinds differ in how they send the response:
the handler's completes a reply (handler.py), that of the fast path is a frame (repeated.py).
"""

from __future__ import annotations

from ottla.broker.fetch.reader import Row, SessionReader
from ottla.broker.fetch.session import FetchPartition
from ottla.server.network.connection_services import PendingResponse

DONE = -1


class DelayedFetch(PendingResponse):
    """The delayed fetch of its session (`WaitingRequest`)."""

    __slots__ = ("_delayed_at_ns", "_ready_bytes", "_slot", "fresh", "reader")

    def __init__(self, reader: SessionReader, rows: list[Row], is_batched: bool, wait_ms: int) -> None:
        self.parts = None
        self.nbytes = 0
        self.reader = reader
        #: What has changed since the last look.
        self.fresh: dict[FetchPartition, None] = {}
        #: How much each partition had to read then, where the records of one alone are not enough.
        self._ready_bytes = {row[0]: len(row[3] or b"") for row in rows} if reader.min_bytes > 1 else None
        self._delayed_at_ns = reader.mono_ns()
        reader.session.waiting = self
        self._slot = reader.broker.wheel.add(self, wait_ms)
        if is_batched:
            reader.batching.hold(self)
        for wanted, partition, _, _, _ in rows:
            wanted.watch(None if partition is None else partition.watchers)

    def wake(self) -> None:
        if self._slot != DONE:
            self._look(False)

    def expire(self) -> None:
        """Answers with what is there: max.wait.ms is over, or the session is about to change."""
        self._look(True)

    def _look(self, is_over: bool) -> None:
        reader = self.reader
        try:
            if is_over or self._ready_bytes is None or self._has_enough(self._ready_bytes):
                rows = reader.find(reader.session.active)
                if reader.read(rows) or is_over:
                    self._send(rows)
                    return
            fresh, self.fresh = self.fresh, {}
            for wanted, partition, _, _, _ in reader.find(fresh):
                wanted.watch(None if partition is None else partition.watchers)
        except Exception:
            # A bug of this broker: the client is answered all the same, so that it can ask again.
            if self._slot != DONE:
                self._fail()
            raise

    def _has_enough(self, ready_bytes: dict[FetchPartition, int]) -> bool:
        """Looks at what has changed, not at the whole session."""
        reader, is_enough = self.reader, False
        for wanted in self.fresh:
            rows = reader.find((wanted,))
            is_enough = reader.read(rows) or is_enough
            ready_bytes[wanted] = len(rows[0][3] or b"")
        return is_enough or sum(ready_bytes.values()) >= reader.min_bytes

    def _send(self, rows: list[Row]) -> None:
        """Sends the response, calls `_stop`, and adds to the reader's times of delay."""
        raise NotImplementedError

    def _fail(self) -> None:
        """Calls `_stop` and sends UNKNOWN_SERVER_ERROR."""
        raise NotImplementedError

    def _stop(self) -> None:
        reader = self.reader
        if reader.session.waiting is self:
            reader.session.waiting = None
        reader.broker.wheel.remove(self, self._slot)
        self._slot = DONE

    def cancel(self) -> None:
        """The connection has been closed."""
        self._stop()
        session = self.reader.session
        if not session.id:
            session.close()
