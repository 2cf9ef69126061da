"""The fetch sessions of a node, by id (KIP-227).

The cache is bounded (max.incremental.fetch.session.cache.slots). A full one gives a slot up only if its owner has been idle
for two minutes, or is smaller or less privileged (consumers against followers) than the newcomer and two minutes old; otherwise the
newcomer is served without a session. An evicted session loses nothing: its client gets FETCH_SESSION_ID_NOT_FOUND and opens another one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from random import Random

from ottla.broker.configs import BrokerConfigs
from ottla.broker.fetch.pacing import Pacings
from ottla.broker.fetch.session import FetchSession
from ottla.broker.replication.follower_session import EPOCH_MAX
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import LOOK_UNITS
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import new_turn
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Work
from ottla.server.network.route import LATENCY_BUCKETS
from ottla.server.tasks import isolated

#: A session younger than this is not evicted for a bigger one: Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
EVICTION_MS_MIN = 120_000


@dataclass(slots=True)
class DelayTimes:
    """The times that delayed fetches have waited: Kafka's RemoteTimeMs. Fetches that are answered at once are not counted."""

    total_ns: int = 0
    #: The bucket of a time is the bit length of its units of 1024 ns, as in a route.
    buckets: list[int] = field(default_factory=lambda: [0] * LATENCY_BUCKETS)

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def add(self, elapsed_ns: int) -> None:
        self.total_ns += elapsed_ns
        self.buckets[(elapsed_ns >> 10).bit_length()] += 1


class FetchSessionCache:
    """The fetch sessions of a node."""

    def __init__(self, slots: int, rng: Random, *, paced: bool = True) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        #: Returns the session with an id, or None.
        self.get = self._sessions.get
        self.evictions = 0
        self.consumer_delays = DelayTimes()
        self.follower_delays = DelayTimes()
        self.pacing = Pacings(paced)

    @classmethod
    def of(cls, configs: BrokerConfigs, rng: Random) -> FetchSessionCache:
        slots = configs["max.incremental.fetch.session.cache.slots"]
        return cls(slots, rng, paced=configs["ottla.fetch.pacing.enable"])

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(session.cached_size for session in self._sessions.values())

    def incremental(self, session_id: int, epoch: int, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """Return the session of an incremental request and increment its epoch, so that a repeated request gets INVALID_FETCH_SESSION_EPOCH."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.use(session, now_ms)
        return session

    def use(self, session: FetchSession, now_ms: int) -> None:
        """A request with the session's epoch has come, and the next one has the next epoch."""
        epoch = session.epoch
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms

    def close(self, session_id: int) -> None:
        """Remove a session and answer its delayed fetch, which would not be completed otherwise."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            if session.waiting is not None:
                isolated(session.waiting.expire)
            session.close()

    def answer_followers(self, replica_ids: Container[int]) -> None:
        """End the waits of these followers' fetches whose session has partitions to read: their next fetch shows their positions."""
        for session in list(self._sessions.values()):
            if session.replica_id in replica_ids and session.waiting is not None and session.active:
                isolated(session.waiting.expire)

    def open(self, session: FetchSession, now_ms: int) -> bool:
        """Keep the session under an id of its own; return False if there is no slot for it."""
        if not self._make_room(session, now_ms):
            return False
        session.id = self._new_id()
        session.created_ms = session.last_used_ms = now_ms
        self._sessions[session.id] = session
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, newcomer: FetchSession, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        victim = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - victim.last_used_ms <= EVICTION_MS_MIN:
            evictable = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS_MIN or (newcomer.is_followers and not session.is_followers)
            ]
            if not evictable:
                return False
            victim = min(evictable, key=lambda session: (session.is_followers, session.cached_size, session.id))
            if (victim.is_followers, victim.cached_size) >= (newcomer.is_followers, newcomer.cached_size):
                return False
        self.close(victim.id)
        self.evictions += 1
        return True

    def rejoin(self, partitions: Iterable[Partition], delta: MetadataDelta, image: MetadataImage) -> Work[None] | None:
        """Let replicas join the ISR again when their broker is unfenced (a listener of metadata): their next fetch has all their partitions.

        A follower begins to fetch while its broker is fenced, and is soon idle in most partitions (session.py). Only a fetch shows that it
        is alive, so nothing is proposed here. Its waiting fetch is answered, and the next one records all positions.
        """
        changed = {} if delta.cluster is None else delta.cluster.changed_brokers
        active = {broker_id for broker_id, broker in changed.items() if broker and broker.active}
        return self._note_followers(partitions, active) if active else None

    def _note_followers(self, partitions: Iterable[Partition], broker_ids: set[int]) -> Work[None]:
        turn = new_turn()
        for partition in list(partitions):
            if not broker_ids.isdisjoint(partition.followers):
                partition.note_followers()
            if turn.spend(LOOK_UNITS):
                yield None
        self.answer_followers(broker_ids)
