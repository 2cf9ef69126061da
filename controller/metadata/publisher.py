"""Who gets told of new metadata. A log batch and a whole snapshot arrive by the same call: both are a delta.

A delta may be every partition of a large cluster, seconds of work. Whoever loads or publishes it does so in slices
(`protocol.work`): the loader makes the next image beside the one in force and swaps them, and a publisher takes its
partitions over one after the other, as Kafka's does on a thread of its own beside the requests. The quorum's delivery
(`controller.raft.delivery`) gives each slice a turn of the loop, and begins nothing new before the last one.
"""

from __future__ import annotations

from typing import Protocol

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.work import Turn, Work

#: A slice, in units of about a microsecond: several of them, one for each publisher, may be in one turn.
UNITS_A_TURN = 4_000


def new_turn() -> Turn:
    return Turn(UNITS_A_TURN)


class Publisher(Protocol):
    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None] | None:
        """`delta.image` is the image before, `image` the one after. Called in log order, committed metadata only.

        The work, if there is any, is done before the next publisher is called.
        """
        ...
