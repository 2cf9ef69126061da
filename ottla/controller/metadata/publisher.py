"""The interface of metadata publishers, which are notified of new metadata. A log batch and a whole snapshot are both a delta.

A delta may have every partition of a large cluster, which is seconds of work. So loader and publishers work in slices
(`protocol.work`): the loader makes the next image beside the current one and swaps them, and a publisher applies its
partitions one after the other, as Kafka's does on a thread of its own beside the requests. The quorum's delivery
(`controller.raft.delivery`) runs each slice in a turn of the event loop, and begins the next delivery after the last one.
"""

from __future__ import annotations

from typing import Protocol

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.work import Turn, Work

#: The size of a slice, in units of about a microsecond: one turn may have several slices, one for each publisher.
UNITS_A_TURN = 4_000


def new_turn() -> Turn:
    return Turn(UNITS_A_TURN)


class Publisher(Protocol):
    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None] | None:
        """Metadata has changed: `delta.image` is the image before, `image` the one after. It is called in log order, for committed metadata only.

        If it returns work, that is completed before the next publisher is called.
        """
        ...
