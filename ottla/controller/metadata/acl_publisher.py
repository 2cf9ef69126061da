"""Publishes the access control entries of the metadata to the node's authorizer, on brokers and controllers.

The authorizer gets the entries once they are complete, when everything committed before this node's start has been read. A DENY
entry might be among those that are not yet read.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.controller.metadata.acls import AclsDelta
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.server.authorization.authorizer import StandardAuthorizer


class AclPublisher:
    """A `controller.metadata.publisher.Publisher`."""

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
