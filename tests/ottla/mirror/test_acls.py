"""Access control entries of a mirror's topics."""

from __future__ import annotations

from ottla.mirror.acls import mirrored_entries
from ottla.mirror.names import Policy
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.operations import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)


def entry(name: str, operation: int, permission: int = ALLOW, pattern: int = LITERAL) -> AccessControlEntry:
    return AccessControlEntry(TOPIC, name, pattern, "User:ann", "*", operation, permission)


def test_readers_of_a_topic_may_read_its_mirror_and_writers_may_not_write_it() -> None:
    entries = [
        entry("t", READ),
        entry("t", DESCRIBE),
        entry("t", WRITE),
        entry("all", ALL),
        entry("t", WRITE, DENY),
        entry("t", ALL, DENY),
        entry("other", READ),
        entry("t", READ, ALLOW, PREFIXED),
        entry("*", READ),
        entry("t", READ)._replace(resource_type=GROUP),
    ]
    found = mirrored_entries(entries, Policy("west", "east"), lambda name: name != "other")
    assert found == {
        entry("west.t", READ),
        entry("west.t", DESCRIBE),
        entry("west.all", READ),
        entry("west.t", WRITE, DENY),
        entry("west.t", ALL, DENY),
    }
