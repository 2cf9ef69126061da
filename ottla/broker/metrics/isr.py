"""ISR churn: how often sets of in-sync replicas of partitions led here lost or gained members, for any reason."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.publisher import new_turn
from ottla.protocol.work import Work
from ottla.server.metrics import Family, counter


class IsrChangeCounts:
    """A publisher's listener, and a source of metrics."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.shrinks = 0
        self.expands = 0

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
        turn = new_turn()
        for changed in delta.changed_topics.values():
            for index, after in changed.partition_changes.items():
                if turn.spend(1):
                    yield None
                before = changed.image.partitions.get(index)
                if before is None or after.leader != self.node_id:
                    continue
                self.shrinks += not set(before.isr) <= set(after.isr)
                self.expands += not set(after.isr) <= set(before.isr)

    def __call__(self) -> Iterator[Family]:
        prefix = "kafka_server_replicamanager"
        yield counter(f"{prefix}_isrshrinks", "Times that a replica fell out of sync", self.shrinks)
        yield counter(f"{prefix}_isrexpands", "Times that a replica came back in sync", self.expands)
