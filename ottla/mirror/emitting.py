"""The mirror's own records: pairs of offsets while it commits, and heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.producer import ClusterProducer
from ottla.mirror.formats import OffsetSync, heartbeat_record
from ottla.mirror.names import HEARTBEATS
from ottla.mirror.syncs import SyncWriter
from ottla.protocol.records.record import NewRecord

#: The time between two writes of pairs. The last pairs of partitions without new records are written then.
EMIT_S = 1.0
#: MirrorMaker's emit.heartbeats.interval.seconds.
HEARTBEAT_S = 1.0
PARTITION = 0


class Emitter:
    """A writer of records to one of the mirror's topics in a cluster.

    Records that could not be written are tried again with the next ones.
    """

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._producer: ClusterProducer | None = None
        self._left: list[NewRecord] = []

    async def write(self, records: Iterable[NewRecord]) -> None:
        """Write records with the present time, and wait until they are acknowledged.

        Raises:
            Failure: they may not have been written; the next call writes them again.
        """
        self._left += records
        if not self._left:
            return
        now_ms = self._cluster.world.clock.wall_ms()
        producer = self._producer or ClusterProducer(self._cluster, self.topic)
        try:
            async with self._cluster.limit():
                if self._producer is None:
                    await producer.start()
                self._producer = producer
                for record in self._left:
                    await producer.send(record._replace(timestamp=now_ms), PARTITION)
                await producer.flush()
        except (Failure, TimeoutError) as fault:
            self._producer = None
            raise Failure(f"writing to {self.topic}: {fault or 'time is up'}") from None
        self._left = []


class SyncEmitter:
    """A writer of the pairs of offsets of this worker's partitions, to the topic of pairs.

    A worker knows the id of a topic in the target from before a transaction, but a transaction names topics, not ids. Therefore
    the id is requested again afterwards: if it is still the same, the offsets belong to that topic. Otherwise they may belong
    to either topic, and the pair is dropped.
    """

    def __init__(
        self, cluster: ClusterClient, topic: str, target_ids: Callable[[set[str]], Awaitable[dict[str, bytes]]]
    ) -> None:
        """Take the function that requests the present ids of the counterparts of the source's topics."""
        self.topic = topic
        self._emitter = Emitter(cluster, topic)
        self._target_ids = target_ids
        self._choice = SyncWriter()
        self._due: list[OffsetSync] = []

    def take(self, pairs: Iterable[OffsetSync]) -> None:
        """Take the pairs of a committed transaction."""
        self._due += self._choice.take(pairs)

    def write_again(self) -> None:
        """Write the last pair of each partition again with the next ones, because the topic was deleted and created again."""
        self._choice.again()

    async def flush(self) -> None:
        """Write all pairs that are not written yet.

        Raises:
            Failure: they may not have been written; they are written again with the next ones.
        """
        due, self._due = [*self._due, *self._choice.pause()], []
        try:
            ids = await self._target_ids({pair.place[0] for pair in due}) if due else {}
        except (Failure, TimeoutError):
            self._due = [*due, *self._due]
            raise
        same = [pair for pair in due if pair.ids is not None and pair.ids.target == ids.get(pair.place[0])]
        await self._emitter.write(pair.record for pair in same)


class MirrorHeartbeats:
    """A writer of a mirror's heartbeats to each cluster, with the key of MirrorMaker's flow towards that cluster."""

    def __init__(self, source: str, target: str, at: Iterable[tuple[ClusterClient, bool]]) -> None:
        """Take the clusters in `at`, each with whether it is the target."""
        self._emitters = [
            (Emitter(cluster, HEARTBEATS), (source, target) if is_target else (target, source))
            for cluster, is_target in at
        ]

    async def beat(self, now_ms: int) -> None:
        """Write one heartbeat to each cluster.

        Raises:
            Failure: a cluster does not accept it.
        """
        await asyncio.gather(*(emitter.write([heartbeat_record(*key, now_ms)]) for emitter, key in self._emitters))
