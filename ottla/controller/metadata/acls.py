"""Access control entries by id. server/authorization matches them to requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.controller.metadata.shared_map import Map
from ottla.protocol.internal_topics.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from ottla.server.authorization.acl import AccessControlEntry


@dataclass(frozen=True, slots=True)
class AclsImage:
    entries: Map[bytes, AccessControlEntry] = field(default_factory=Map)

    def to_records(self) -> Iterator[MetadataRecord]:
        for entry_id, entry in sorted(self.entries.items()):
            yield AccessControlEntryRecord(
                id=entry_id,
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )


class AclsDelta:
    """New entries by id; None if the entry was removed."""

    __slots__ = ("changes", "image")

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changes: dict[bytes, AccessControlEntry | None] = {}

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

    def finish_snapshot(self) -> None:
        for entry_id in self.image.entries:
            self.changes.setdefault(entry_id, None)

    def apply(self) -> AclsImage:
        entries = self.image.entries.mutate()
        for entry_id, entry in self.changes.items():
            if entry is None:
                entries.pop(entry_id, None)
            else:
                entries[entry_id] = entry
        return AclsImage(entries.finish())
