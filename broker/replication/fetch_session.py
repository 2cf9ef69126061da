"""Incremental fetch sessions (KIP-227), without I/O: what a client need not repeat, the broker remembers here.

    request (id, epoch)     meaning
    (0,  0)                 full fetch, please open a session
    (0, -1)                 full fetch, no session
    (id, 0)                 full fetch, close session id and open a new one
    (id, -1)                full fetch, close session id
    (id, n > 0)             incremental: changes to what the session holds; n must be the epoch that the session expects

A session holds its partitions in the order in which they will be read. A partition that returned data moves to the end, so that
one busy partition cannot starve the others behind it when the response's size limit is hit (invariant 46).

The cache is bounded (max.incremental.fetch.session.cache.slots). A full one gives a slot up only if its owner has been idle
for two minutes, or is smaller or less privileged (consumers against followers) than the newcomer and two minutes old; otherwise the
newcomer is served without a session. Nothing is lost with an evicted session: its client is told so and opens another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Protocol, TypeAlias

from protocol.errors import ErrorCode, KafkaError

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
#: A session younger than this is not evicted for a bigger one: Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
EVICTION_MS_MIN = 120_000

#: Topic id and index from Fetch v13 on, before it topic name and index.
PartitionKey: TypeAlias = tuple[bytes | str, int]


class FetchPartition:
    """One partition of a fetch: what was asked for, and what the client was last told."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "key",
        "last_fetched_epoch",
        "max_bytes",
        "replica_high_watermark",
        "replica_log_start_offset",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        replica_log_start_offset: int = -1,
        replica_high_watermark: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.replica_log_start_offset = replica_log_start_offset
        self.replica_high_watermark = replica_high_watermark
        #: What the last response of the session said; -1 makes the next one say it again.
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def update(self, request: FetchPartition) -> None:
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch
        self.replica_log_start_offset = request.replica_log_start_offset
        self.replica_high_watermark = request.replica_high_watermark

    def must_tell(self, high_watermark: int, log_start_offset: int, *, has_records: bool, has_error: bool) -> bool:
        """Whether an incremental response has to contain this partition; remembers what it will then have said."""
        must = has_records or has_error
        if high_watermark != self.told_high_watermark:
            self.told_high_watermark = high_watermark
            must = True
        if log_start_offset != self.told_log_start_offset:
            self.told_log_start_offset = log_start_offset
            must = True
        if has_error:
            # So that the client hears of the recovery even if the offsets are then the same as before the error.
            self.told_high_watermark = -1
        return must


class WaitingRequest(Protocol):
    def expire(self) -> None: ...


class FetchSession:
    """What one client fetches. Owned by the cache; used by one request at a time: a second one ends the first one's wait."""

    __slots__ = (
        "cached_size", "created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "uses_topic_ids",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        session_id: int,
        *,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[PartitionKey, FetchPartition],
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.cached_size = len(partitions)
        #: The request that has not been answered yet.
        self.waiting: WaitingRequest | None = None

    def change(self, updates: Iterable[tuple[PartitionKey, FetchPartition]], forgotten: Iterable[PartitionKey]) -> None:
        for key, request in updates:
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = request
            else:
                known.update(request)
        for key in forgotten:
            self.partitions.pop(key, None)
        self.cached_size = len(self.partitions)

    def move_to_end(self, key: PartitionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self.partitions[key] = partition


class FetchSessionCache:
    """All sessions of a node."""

    def __init__(self, slots: int, rng: Random) -> None:
        self._slots = slots
        self._rng = rng
        # Ordered by last use: a touched session moves to the end, so the first one is the stalest.
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(session.cached_size for session in self._sessions.values())

    def incremental(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session for an incremental request. Its epoch is moved on: a repeated request finds the wrong one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def open(
        self, partitions: dict[PartitionKey, FetchPartition], *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session that holds `partitions`, or None if no slot can be had."""
        if not partitions or not self._make_room(privileged, len(partitions), now_ms):
            return None
        session = FetchSession(
            self._new_id(), privileged=privileged, uses_topic_ids=uses_topic_ids, partitions=partitions, now_ms=now_ms
        )
        self._sessions[session.id] = session
        return session

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, privileged: bool, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.last_used_ms <= EVICTION_MS_MIN:
            evictable = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS_MIN or (privileged and not session.privileged)
            ]
            if not evictable:
                return False
            victim = min(evictable, key=lambda session: (session.privileged, session.cached_size, session.id))
            if (victim.privileged, victim.cached_size) >= (privileged, size):
                return False
        del self._sessions[victim.id]
        self.evictions += 1
        return True
