"""Encoding of metadata records, in the version that metadata.version requires, so that every node can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.protocol.features import partition_record_version, register_broker_record_version
from ottla.protocol.internal_topics.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    encode_record,
)
from ottla.protocol.releases import METADATA_VERSION_MIN


def _registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    """Return the lowest version that has the changed fields, as Kafka does: version 0 has fencing only."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


# All other record types have only version 0.
_BY_METADATA_VERSION: dict[type[MetadataRecord], Callable[[int], int]] = {
    RegisterBrokerRecord: register_broker_record_version,
    PartitionRecord: partition_record_version,
    PartitionChangeRecord: partition_record_version,
}


def record_version(record: MetadataRecord, metadata_version: int) -> int:
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _registration_change_version(record)
    by_metadata_version = _BY_METADATA_VERSION.get(type(record))
    return 0 if by_metadata_version is None else by_metadata_version(max(metadata_version, METADATA_VERSION_MIN))


def encode_metadata(records: Iterable[MetadataRecord], metadata_version: int) -> list[bytes]:
    values = []
    versions: dict[type[MetadataRecord], int] = {}  # a topic may have 10,000 records of the same type
    for record in records:
        kind = record.__class__
        version = versions.get(kind)
        if version is None:
            version = record_version(record, metadata_version)
            if kind is not BrokerRegistrationChangeRecord:
                versions[kind] = version
        if version == 0 and isinstance(record, PartitionRecord):
            # metadata.version < 17 has no directories; the image has placeholders for them.
            record.directories = []
        values.append(encode_record(record, version))
    return values
