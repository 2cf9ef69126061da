"""The records that a mirror writes of its own: pairs of offsets while it commits, and heartbeats."""

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

#: The time between two writes of pairs, at which those of a partition that waits for records are written.
EMIT_S = 1.0
#: MirrorMaker's emit.heartbeats.interval.seconds.
HEARTBEAT_S = 1.0
PARTITION = 0


class Emitter:
    """Records for one of the mirror's topics in a cluster. Those that could not be written are tried again with the next ones."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._producer: ClusterProducer | None = None
        self._left: list[NewRecord] = []

    async def write(self, records: Iterable[NewRecord]) -> None:
        """Write records with the time of now, and wait until they are acknowledged.

        Raises:
            Failure: they may not be there; the next call writes them again.
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
    """The pairs of offsets of this worker's partitions, written to the topic of pairs.

    A worker knows the id of a topic in the target from before a transaction, and a transaction names topics, not ids. Therefore the id is
    asked for again after it: if it is still the same, the offsets are of that topic; otherwise they may be of either, and the pair is dropped.
    """

    def __init__(
        self, cluster: ClusterClient, topic: str, target_ids: Callable[[set[str]], Awaitable[dict[str, bytes]]]
    ) -> None:
        """Take the function that asks the target for the ids which the counterparts of the source's topics have now."""
        self.topic = topic
        self._emitter = Emitter(cluster, topic)
        self._target_ids = target_ids
        self._choice = SyncWriter()
        self._due: list[OffsetSync] = []

    def take(self, pairs: Iterable[OffsetSync]) -> None:
        """Take the pairs of a transaction that was committed."""
        self._due += self._choice.take(pairs)

    def write_again(self) -> None:
        """Write the last pair of each partition with the next ones: the topic was deleted, and is there again."""
        self._choice.again()

    async def flush(self) -> None:
        """Write all pairs that are not written yet.

        Raises:
            Failure: they may not be there; they are written with the next ones.
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
    """Heartbeats of a mirror, in each cluster under the key that MirrorMaker's flow towards it would have."""

    def __init__(self, source: str, target: str, at: Iterable[tuple[ClusterClient, bool]]) -> None:
        """Take the clusters in `at`, and of each whether it is the target."""
        self._emitters = [
            (Emitter(cluster, HEARTBEATS), (source, target) if is_target else (target, source))
            for cluster, is_target in at
        ]

    async def beat(self, now_ms: int) -> None:
        """Write one heartbeat to each cluster.

        Raises:
            Failure: a cluster does not take it.
        """
        await asyncio.gather(*(emitter.write([heartbeat_record(*key, now_ms)]) for emitter, key in self._emitters))
