"""The comparison of metadata images."""

from __future__ import annotations

from ottla.controller.metadata.image import MetadataImage


def same_content(one: MetadataImage, other: MetadataImage) -> bool:
    """Return whether two images are equal, apart from their offset and epoch."""
    return one.parts == other.parts
