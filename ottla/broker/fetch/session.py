"""Incremental fetch sessions (KIP-227), without I/O: the broker remembers the partitions and positions of a client's fetches.

    request (id, epoch)     meaning
    (0,  0)                 full fetch, please open a session
    (0, -1)                 full fetch, no session
    (id, 0)                 full fetch, close session id and open a new one
    (id, -1)                full fetch, close session id
    (id, n > 0)             incremental: changes to what the session holds; n must be the epoch that the session expects

Only partitions that may have changed are read: a partition without changes since the last response is idle and costs nothing.
It watches its replica on this broker, and any change there (an append, a higher high watermark, another role) makes it active
again, once.

    active      read by the next fetch: new, requested again, has records, changed, failed, or of a follower that may join the ISR
    idle        watches its replica; not read

Active partitions are read in turns: one that returned data goes to the end of the order, so that a busy one cannot starve them
when the response's size limit is hit (invariant 46). A fetch without a session is one of its own, for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ottla.broker.replication.follower_session import INVALID_SESSION_ID
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.watchers import Watchers
from ottla.protocol.messages.fetch import FetchRequest

FINAL_EPOCH = -1
#: The epoch of a session that is closed: no request has it.
NO_EPOCH = -2

#: Topic id and index from Fetch v13 on, before it topic name and index.
PartitionKey: TypeAlias = tuple[bytes | str, int]


@dataclass(slots=True, eq=False)
class FetchPartition:
    """One partition of a fetch: the requested position, and the offsets in the last response."""

    topic: str
    topic_id: bytes
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    replica_log_start_offset: int = -1
    #: The offsets in the session's last response; with -1 the next response has the partition again.
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    session: FetchSession | None = None
    #: The replica here that was read last; it may have ended since (`SessionReader.find`).
    replica: Partition | None = None
    watched: Watchers | None = None

    def watch(self, watchers: Watchers | None) -> None:
        """Watch the partition for its next change (`changed`), or None to end the watch."""
        watched = self.watched
        if watched is watchers:
            return
        if watched is not None:
            watched.remove(self)
        self.watched = watchers
        if watchers is not None:
            watchers.add(self)

    def changed(self) -> WaitingRequest | None:
        """Return the delayed fetch to wake, or None. The replica calls this when a one-shot watch fires."""
        self.watched = None
        session = self.session
        if session is None:
            return None
        session.active[self] = None
        waiting = session.waiting
        if waiting is not None:
            waiting.fresh[self] = None
        return waiting

    def note(self) -> None:
        """Make the partition active, so that the next response may have it; do not complete a delayed fetch."""
        if self.session is not None:
            self.session.active[self] = None

    def update(self, request: FetchPartition) -> None:
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch
        self.replica_log_start_offset = request.replica_log_start_offset

    def must_include(self, high_watermark: int, log_start_offset: int, *, has_error: bool) -> bool:
        """Return True if an incremental response without records must contain this partition, and remember the offsets of that
        response.
        """
        must = has_error
        if high_watermark != self.sent_high_watermark:
            self.sent_high_watermark = high_watermark
            must = True
        if log_start_offset != self.sent_log_start_offset:
            self.sent_log_start_offset = log_start_offset
            must = True
        if has_error:
            # The response after an error must have the partition even if its offsets are the same as before the error.
            self.sent_high_watermark = -1
        return must


class WaitingRequest(Protocol):
    """A delayed fetch. `fresh`: the partitions that have changed since its last read."""

    fresh: dict[FetchPartition, None]

    def wake(self) -> None: ...

    def expire(self) -> None: ...


class FetchSession:
    """The fetch session of one client. One request at a time uses it: a second one ends the wait of the first."""

    __slots__ = (
        "active",
        "cached_size",
        "contact_ms",
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "partitions",
        "reads_remote",
        "replica_id",
        "unnamed",
        "uses_topic_ids",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        replica_id: int = -1,
        uses_topic_ids: bool = False,
        epoch: int = 1,
    ) -> None:
        self.id = INVALID_SESSION_ID
        #: The epoch of the next request.
        self.epoch = epoch
        #: The follower that fetches; -1 for a consumer.
        self.replica_id = replica_id
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        #: The active partitions, in reading order.
        self.active: dict[FetchPartition, None] = dict.fromkeys(partitions.values())
        #: Partitions whose topic id this broker did not know when they came.
        self.unnamed: dict[FetchPartition, None] = {}
        for partition in partitions.values():
            partition.session = self
            if not partition.topic:
                self.unnamed[partition] = None
        self.created_ms = self.last_used_ms = 0
        #: Monotonic time of the last request: an idle follower held everything that there was then.
        self.contact_ms = 0
        self.cached_size = len(partitions)
        #: Its last request was for an offset that is only in remote storage, so the handler takes the next request.
        self.reads_remote = False
        #: The request that has not been answered yet.
        self.waiting: WaitingRequest | None = None

    @property
    def is_closed(self) -> bool:
        return self.epoch == NO_EPOCH

    @property
    def is_followers(self) -> bool:
        return self.replica_id >= 0

    def change(self, updates: Iterable[tuple[PartitionKey, FetchPartition]], forgotten: Iterable[PartitionKey]) -> None:
        for key, request in updates:
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = request
                request.session = self
                if not request.topic:
                    self.unnamed[request] = None
            else:
                known.update(request)
            self.active[known] = None
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                self._let_go(gone)
        self.cached_size = len(self.partitions)

    def move_to_end(self, partition: FetchPartition) -> None:
        """Move a partition that has returned data to the end of the order."""
        if partition in self.active:
            del self.active[partition]
            self.active[partition] = None

    def settle(self, partition: FetchPartition, replica: Watchers) -> None:
        """Make the partition idle until the replica changes: the last response had everything."""
        self.active.pop(partition, None)
        partition.watch(replica)

    def close(self) -> None:
        self.epoch = NO_EPOCH
        for partition in self.partitions.values():
            self._let_go(partition)

    def _let_go(self, partition: FetchPartition) -> None:
        partition.watch(None)
        partition.session = None
        self.active.pop(partition, None)
        self.unnamed.pop(partition, None)


def replica_id_of(request: FetchRequest, version: int) -> int:
    """Return the id of the follower that asks, or -1 for a consumer."""
    return request.replica_state.replica_id if version >= 15 else request.replica_id
