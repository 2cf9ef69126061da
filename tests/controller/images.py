"""Comparing metadata images."""

from __future__ import annotations

from ottla.controller.metadata.image import MetadataImage


def same_content(one: MetadataImage, other: MetadataImage) -> bool:
    """Equal but for the offset and epoch that they were made at."""
    return one.parts == other.parts
