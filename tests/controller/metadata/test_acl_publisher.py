"""The authorizer gets the entries once they are complete, and every change after that."""

from __future__ import annotations

from ottla.controller.metadata.image import EMPTY, MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import AclPublisher
from ottla.protocol.internal_topics.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.server.authorization.authorizer import StandardAuthorizer


def record(number: int, name: str = "") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=bytes([number] * 16),
        resource_type=2,
        resource_name=name or f"topic-{number}",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


class Feed:
    """Metadata in the form in which the loader publishes it."""

    def __init__(self) -> None:
        self.caught_up = True
        self.authorizer = StandardAuthorizer()
        self.publisher = AclPublisher(self.authorizer, lambda: self.caught_up)
        self.image: MetadataImage = EMPTY

    def commit(self, *records: object, snapshot: bool = False) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        if snapshot:
            delta.finish_snapshot()
        self.image = delta.apply(self.image.offset + 1, 1)
        self.publisher.on_metadata_update(delta, self.image)

    def names(self) -> list[str]:
        return sorted(entry.resource_name for entry in self.authorizer.entries())


def test_nothing_is_decided_while_older_entries_are_still_being_read() -> None:
    feed = Feed()
    feed.caught_up = False
    feed.commit(record(1))
    assert not feed.authorizer.loaded.is_set()
    feed.commit(record(2))
    feed.caught_up = True
    feed.commit(record(3))
    assert feed.authorizer.loaded.is_set()
    assert feed.names() == ["topic-1", "topic-2", "topic-3"]


def test_no_entries_at_all_are_complete_too() -> None:
    feed = Feed()
    feed.commit()
    assert feed.authorizer.loaded.is_set()


def test_entries_come_go_and_change() -> None:
    feed = Feed()
    feed.commit(record(1), record(2))
    feed.commit(RemoveAccessControlEntryRecord(id=bytes([1] * 16)), record(3))
    assert feed.names() == ["topic-2", "topic-3"]
    feed.commit(record(4), RemoveAccessControlEntryRecord(id=bytes([4] * 16)))
    assert feed.names() == ["topic-2", "topic-3"]


def test_a_snapshot_replaces_everything() -> None:
    feed = Feed()
    feed.commit(record(1), record(2))
    feed.commit(record(2), record(3), snapshot=True)
    assert feed.names() == ["topic-2", "topic-3"]
