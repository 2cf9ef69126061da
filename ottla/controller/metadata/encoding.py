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


class EncodedRecords(list[MetadataRecord]):
    """Records with their values in one metadata.version: those of a large topic are encoded in turns before the turn that appends them."""

    __slots__ = ("metadata_version", "values")

    def __init__(self, metadata_version: int, records: Iterable[MetadataRecord] = ()) -> None:
        super().__init__()
        self.metadata_version = metadata_version
        self.values: list[bytes] = []
        for record in records:
            self.add(record)

    def add(self, record: MetadataRecord) -> None:
        self.append(record)
        self.values.append(_encode(record, record_version(record, self.metadata_version)))

    def add_all(self, other: EncodedRecords) -> None:
        """Add records that are encoded in the same metadata.version."""
        assert other.metadata_version == self.metadata_version, "metadata.version changed within a turn"
        self += other
        self.values += other.values


def encode_metadata(records: Iterable[MetadataRecord], metadata_version: int) -> list[bytes]:
    if isinstance(records, EncodedRecords) and records.metadata_version == metadata_version:
        assert len(records.values) == len(records), "a record was added without its value"
        return records.values
    values = []
    versions: dict[type[MetadataRecord], int] = {}  # a topic may have 10,000 records of the same type
    for record in records:
        kind = record.__class__
        version = versions.get(kind)
        if version is None:
            version = record_version(record, metadata_version)
            if kind is not BrokerRegistrationChangeRecord:
                versions[kind] = version
        values.append(_encode(record, version))
    return values


def _encode(record: MetadataRecord, version: int) -> bytes:
    if version == 0 and isinstance(record, PartitionRecord):
        # metadata.version < 17 has no directories; the image has placeholders for them.
        record.directories = []
    return encode_record(record, version)
