"""Bootstrap records of a new cluster's metadata log: the finalized features of the release that Ottla advertises.

Kafka requires a formatted directory; here the first active controller finds an empty log and writes these records.
"""

from __future__ import annotations

from ottla.controller.decisions.features import min_isr_records
from ottla.controller.metadata.features import ELR_VERSION
from ottla.protocol.features import DEFAULT, KRAFT_VERSION, METADATA_VERSION, default_levels
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, MetadataRecord
from ottla.protocol.releases import Advertised


def completed(records: list[MetadataRecord], min_insync_replicas: int) -> list[MetadataRecord]:
    """Returns the records of a formatted directory, and those that its features require."""
    elr = any(
        isinstance(each, FeatureLevelRecord) and each.name == ELR_VERSION and each.feature_level for each in records
    )
    return records + (min_isr_records({}, min_insync_replicas) if elr else [])


def bootstrap_records(min_insync_replicas: int, advertised: Advertised = DEFAULT) -> list[MetadataRecord]:
    """Returns the bootstrap records. metadata.version comes first: it decides how the others are read. kraft.version is the quorum's own."""
    levels = default_levels(advertised=advertised)
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels.pop(METADATA_VERSION))
    ]
    levels.pop(KRAFT_VERSION, None)
    records += [FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(levels.items()) if level]
    if levels.get(ELR_VERSION):
        records += min_isr_records({}, min_insync_replicas)
    return records
