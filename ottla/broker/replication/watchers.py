"""The watchers of a replica: who is notified of its next change, a fetch session (KIP-227) or a share partition.

The followers watch the end of the log, the consumers the high watermark.
"""

from __future__ import annotations

from typing import Protocol

from ottla.broker.replication.isr import ReplicaProgress
from ottla.broker.replication.wakeups import Batching, DelayedOperation, NoBatching, Wakeups


class Watcher(Protocol):
    """A partition of a fetch session, or a share partition."""

    def changed(self) -> DelayedOperation | None: ...


class WatchingSession(Protocol):
    """The fetch session of a client."""

    replica_id: int
    contact_ms: int


class WatchingFetch(Watcher, Protocol):
    """A partition of a fetch session."""

    fetch_offset: int

    @property
    def session(self) -> WatchingSession | None: ...

    def note(self) -> None: ...


class Watchers:
    """The watchers of one replica: it notifies each once of its next change, and they must be set again."""

    __slots__ = ("_batching", "_wakeups", "consumers", "followers")

    def __init__(self, wakeups: Wakeups, batching: Batching | NoBatching) -> None:
        self._wakeups = wakeups
        self._batching = batching
        self.followers: dict[WatchingFetch, None] = {}
        self.consumers: dict[Watcher, None] = {}

    def add(self, fetch: WatchingFetch) -> None:
        session = fetch.session
        assert session is not None
        if session.replica_id >= 0:
            self.followers[fetch] = None
        else:
            self.consumers[fetch] = None

    def remove(self, fetch: WatchingFetch) -> None:
        self.followers.pop(fetch, None)
        self.consumers.pop(fetch, None)

    def fire(self) -> None:
        """Something has changed for every reader: the role, the log's start, the log itself."""
        self._fire(self.followers)
        self._fire(self.consumers)

    def appended(self, first_offset: int, last_offset: int, progress: dict[int, ReplicaProgress]) -> None:
        """The leader has appended from `first_offset` to `last_offset`. An idle follower omits the partition, so its session knows when it was caught up."""
        for fetch in self.followers:
            session = fetch.session
            if session is not None and fetch.fetch_offset == first_offset:
                follower = progress.get(session.replica_id)
                if (
                    follower is not None
                    and follower.log_end_offset == first_offset
                    and session.contact_ms > follower.last_caught_up_ms
                ):
                    follower.last_caught_up_ms = session.contact_ms
            waiting = fetch.changed()
            if waiting is not None and not self._batching.holds(waiting, last_offset - first_offset + 1):
                self._wakeups.schedule(waiting)
        self.followers.clear()

    def note_followers(self) -> None:
        """The next fetch of each follower has the partition, whether it has changed for the follower or not."""
        for fetch in self.followers:
            fetch.note()

    def watermark_raised(self) -> None:
        """Consumers can read more; followers get the high watermark with the next records."""
        self.note_followers()
        if self.consumers:
            self._fire(self.consumers)

    def _fire(self, watchers: dict[WatchingFetch, None] | dict[Watcher, None]) -> None:
        for fetch in watchers:
            waiting = fetch.changed()
            if waiting is not None:
                self._wakeups.schedule(waiting)
        watchers.clear()
