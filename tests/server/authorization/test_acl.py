"""The index compared with an oracle that looks at every entry, with so few names that patterns and callers collide all the time
(invariant 49).
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.authorization.acl import AccessControlEntry, AclIndex, Decision
from ottla.server.authorization.operations import (
    ALLOW,
    ALTER_CONFIGS,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from tests.effort import examples
from tests.server.authorization import acl_oracle

NAMES = st.text(alphabet="ab*!", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from(["User:*", "User:a", "User:b", "Group:a"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"])
ENTRY_HOSTS = st.one_of(
    HOSTS, st.sampled_from(["10.0.0.0/31", "10.0.0.2/31", "0.0.0.0/0", "::/0", "10.0.0.0/33", "10.0.0.0/"])
)
OPERATIONS = st.integers(2, 12)
TYPES = st.sampled_from([TOPIC, GROUP])
ENTRIES = st.builds(
    AccessControlEntry,
    TYPES,
    st.one_of(NAMES, st.just("*")),
    st.sampled_from([LITERAL, PREFIXED]),
    PRINCIPALS,
    ENTRY_HOSTS,
    OPERATIONS,
    st.sampled_from([ALLOW, ALLOW, DENY]),
)


def indexed(entries: list[AccessControlEntry]) -> AclIndex:
    index = AclIndex()
    for entry in entries:
        index.add(entry)
    return index


@settings(max_examples=examples(300))
@given(
    st.lists(ENTRIES, max_size=12, unique=True),
    st.lists(st.tuples(PRINCIPALS, HOSTS, OPERATIONS, TYPES, NAMES), min_size=10, max_size=10),
    st.data(),
)
def test_the_index_decides_as_one_who_reads_every_entry(
    entries: list[AccessControlEntry], questions: list[tuple[str, str, int, int, str]], data: st.DataObject
) -> None:
    index = indexed(entries)
    removed = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
    for question in questions:
        assert index.decide(*question).decision is acl_oracle.decide(entries, *question)
        assert index.allows_any(*question[:4]) == acl_oracle.allows_any(entries, *question[:4])
    for entry in removed:
        index.remove(entry)
    left = [entry for entry in entries if entry not in removed]
    assert sorted(index) == sorted(left)
    assert len(index) == len(left)
    for question in questions:
        assert index.decide(*question).decision is acl_oracle.decide(left, *question)
        assert index.allows_any(*question[:4]) == acl_oracle.allows_any(left, *question[:4])


def entry(name: str, operation: int, permission: int = ALLOW, pattern: int = LITERAL) -> AccessControlEntry:
    return AccessControlEntry(TOPIC, name, pattern, "User:a", "*", operation, permission)


def decide(index: AclIndex, operation: int, name: str, principal: str = "User:a") -> Decision:
    return index.decide(principal, "10.0.0.1", operation, TOPIC, name).decision


def test_one_denial_outweighs_every_permission() -> None:
    index = indexed([entry("orders", READ), entry("*", READ), entry("ord", READ, DENY, PREFIXED)])
    assert decide(index, READ, "orders") is Decision.DENIED
    assert decide(index, READ, "other") is Decision.ALLOWED


def test_reading_implies_describing_but_denying_to_read_does_not_deny_that() -> None:
    index = indexed([entry("t", READ), entry("u", READ, DENY), entry("u", WRITE)])
    assert decide(index, DESCRIBE, "t") is Decision.ALLOWED
    assert decide(index, DESCRIBE, "u") is Decision.ALLOWED
    assert decide(index, DESCRIBE_CONFIGS, "t") is Decision.NO_MATCH
    assert decide(indexed([entry("t", ALTER_CONFIGS)]), DESCRIBE_CONFIGS, "t") is Decision.ALLOWED


def test_an_entry_for_another_principal_takes_the_resource_out_of_the_default() -> None:
    index = indexed([entry("t", READ)])
    assert decide(index, READ, "t", "User:b") is Decision.NO_MATCH
    assert decide(index, READ, "t2", "User:b") is Decision.NO_ACL


def test_a_prefix_is_longer_than_the_name() -> None:
    assert decide(indexed([entry("orders", READ, ALLOW, PREFIXED)]), READ, "ord") is Decision.NO_ACL


def test_an_entry_stored_twice_goes_away_twice() -> None:
    index = indexed([entry("t", READ), entry("t", READ)])
    index.remove(entry("t", READ))
    assert decide(index, READ, "t") is Decision.ALLOWED
    index.remove(entry("t", READ))
    assert decide(index, READ, "t") is Decision.NO_ACL
