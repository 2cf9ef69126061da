"""What the log of a new cluster begins with: the finalised features of the release we present ourselves as.

Kafka wants a directory to be formatted first; here the first active controller finds an empty log and formats it.
"""

from __future__ import annotations

from ottla.controller.decisions.features import min_isr_records
from ottla.controller.metadata.features import ELR_VERSION
from ottla.protocol.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSION_LATEST, default_levels
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, MetadataRecord


def completed(records: list[MetadataRecord], min_insync_replicas: int) -> list[MetadataRecord]:
    """What a formatted directory says, with what follows from its features."""
    elr = any(
        isinstance(each, FeatureLevelRecord) and each.name == ELR_VERSION and each.feature_level for each in records
    )
    return records + (min_isr_records({}, min_insync_replicas) if elr else [])


def bootstrap_records(
    min_insync_replicas: int, metadata_version: int = METADATA_VERSION_LATEST
) -> list[MetadataRecord]:
    """metadata.version comes first: it says how the rest is to be read. kraft.version is the quorum's own."""
    levels = default_levels(metadata_version)
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels.pop(METADATA_VERSION))
    ]
    levels.pop(KRAFT_VERSION, None)
    records += [FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(levels.items()) if level]
    if levels.get(ELR_VERSION):
        records += min_isr_records({}, min_insync_replicas)
    return records
