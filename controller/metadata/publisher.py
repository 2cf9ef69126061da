"""Who gets told of new metadata. A log batch and a whole snapshot arrive by the same call: both are a delta."""

from __future__ import annotations

from typing import Protocol

from controller.metadata.delta import MetadataDelta
from controller.metadata.image import MetadataImage


class Publisher(Protocol):
    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """`delta.image` is the image before, `image` the one after. Called in log order, committed metadata only."""
        ...
