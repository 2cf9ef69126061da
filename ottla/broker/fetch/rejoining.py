"""What a leader does when a broker is unfenced: its replicas may join the ISR again, so their next fetch has all their partitions.

A follower begins to fetch while its broker is fenced, and is soon idle in most partitions (fetch_session.py). Only a fetch shows
that it is alive, so nothing is proposed here. Its waiting fetch is answered, and the next one records all positions.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import LOOK_UNITS
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.publisher import new_turn
from ottla.protocol.work import Work


class Rejoining:
    """A listener of the broker's publisher."""

    def __init__(self, partitions: Iterable[Partition], sessions: FetchSessionCache) -> None:
        self._partitions = partitions
        self._sessions = sessions

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None] | None:
        if delta.cluster is None:
            return None
        active = {broker_id for broker_id, broker in delta.cluster.changed_brokers.items() if broker and broker.active}
        return self._note(active) if active else None

    def _note(self, broker_ids: set[int]) -> Work[None]:
        turn = new_turn()
        for partition in list(self._partitions):
            if not broker_ids.isdisjoint(partition.followers):
                partition.note_followers()
            if turn.spend(LOOK_UNITS):
                yield None
        self._sessions.answer_followers(broker_ids)
