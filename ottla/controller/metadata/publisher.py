"""Metadata publishers, which are notified of new metadata: their interface, and those of every node.

A log batch and a whole snapshot are both a delta. A delta may have every partition of a large cluster, which is
seconds of work. So loader and publishers work in slices (`protocol.work`): the loader makes the next image beside the
current one and swaps them, and a publisher applies its partitions one after the other, as Kafka's does on a thread of
its own beside the requests. The quorum's delivery (`controller.raft.delivery`) runs each slice in a turn of the event
loop, and begins the next delivery after the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.controller.metadata.acls import AclsDelta
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.work import Turn, Work
from ottla.server.authorization.authorizer import StandardAuthorizer
from ottla.server.quotas.clients import ClientQuotas

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


class AclPublisher:
    """Publishes the access control entries to the node's authorizer, on brokers and controllers.

    The authorizer gets the entries once they are complete, when everything committed before this node's start has been read. A DENY
    entry might be among those that are not yet read.
    """

    def __init__(self, authorizer: StandardAuthorizer, caught_up: Callable[[], bool]) -> None:
        self._authorizer = authorizer
        self._caught_up = caught_up

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._authorizer.loaded.is_set():
            if self._caught_up():
                self._authorizer.change((), image.acls.entries.values())
        elif delta.acls is not None:
            self._change(delta.acls)

    def _change(self, delta: AclsDelta) -> None:
        before = delta.image.entries
        removed = [before[entry_id] for entry_id in delta.changes if entry_id in before]
        added = [entry for entry in delta.changes.values() if entry is not None]
        self._authorizer.change(removed, added)


class QuotaPublisher:
    """Publishes the client quotas to the node that keeps them, on brokers and controllers."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.client_quotas is not None:
            self._quotas.update(image.client_quotas.entities)
