"""Publishes the client quotas of the metadata to the node that keeps them, on brokers and controllers."""

from __future__ import annotations

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.server.quotas.clients import ClientQuotas


class QuotaPublisher:
    """A `controller.metadata.publisher.Publisher`."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.client_quotas is not None:
            self._quotas.update(image.client_quotas.entities)
