"""Access control entries by id. server/authorization matches them to requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ottla.controller.metadata.shared_map import Map, MapDelta
from ottla.protocol.internal_topics.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.protocol.slotted import frozen
from ottla.server.authorization.acl import AccessControlEntry


@frozen
class AclsImage:
    entries: Map[bytes, AccessControlEntry] = field(default_factory=Map)

    def to_records(self) -> Iterator[MetadataRecord]:
        for entry_id, entry in sorted(self.entries.items()):
            yield AccessControlEntryRecord(entry_id, *entry)


class AclsDelta(MapDelta[AclsImage, bytes, AccessControlEntry]):
    """New entries by id; None if the entry was removed."""

    map_name = "entries"

    def replay_access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self.changes[record.id] = AccessControlEntry(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def replay_remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        self.changes[record.id] = None
