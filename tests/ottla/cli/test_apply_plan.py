"""The file of `ottla apply`, and the plan that results from it."""

from __future__ import annotations

import pytest

from ottla.cli.apply_plan import Present, Setting, Shape, plan
from ottla.cli.declared import DeclaredCluster, DeclaredUser, read_declared
from ottla.cli.errors import USAGE, CommandFailed
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.operations import DENY, PREFIXED

FILE = """
topics:
  orders: {partitions: 6, replication_factor: 3, config: {retention.ms: 1000, cleanup.policy: [compact, delete], segment.ms: null}}
  plain:
users:
  ann: {password_env: ANN}
acls:
  - ann write topic:orders
  - {user: "Group:x", operation: read, resource: "group:g-", prefixed: true, host: 10.0.0.0/8, deny: true}
quotas:
  - {user: ann, producer_byte_rate: 1024}
  - {user: <default>, client_id: c, request_percentage: 12.5}
config:
  broker: {all: {log.cleaner.threads: 2, auto.create.topics.enable: false}}
"""


def no_password(name: str, user: DeclaredUser) -> str:
    return f"secret of {name}"


def planned(declared: DeclaredCluster, present: Present) -> list[tuple[str, str, str]]:
    changes = plan(declared, present, no_password, lambda entry: f"{entry.principal} on {entry.resource_name}")
    return [(each.kind, each.name, each.change) for each in changes]


def present_after() -> Present:
    """Return a cluster that has all objects of FILE."""
    declared = read_declared(FILE, "f")
    return Present(
        topics={"orders": Shape(6, 3), "plain": Shape(1, 1)},
        settings={
            ("topic", "orders"): {
                "retention.ms": Setting("1000", True),
                "cleanup.policy": Setting("compact,delete", True),
                "segment.ms": Setting("604800000", False),
            },
            ("broker", "all"): {
                "log.cleaner.threads": Setting("2", True),
                "auto.create.topics.enable": Setting("false", True),
            },
        },
        users={"ann": {"SCRAM-SHA-512"}},
        acls=set(declared.acls),
        quotas=dict(declared.quotas),
    )


def test_all_of_it_is_planned_for_an_empty_cluster() -> None:
    assert planned(read_declared(FILE, "f"), Present()) == [
        (
            "topic",
            "orders",
            "create with 6 partitions, replication factor 3, retention.ms=1000, cleanup.policy=compact,delete",
        ),
        ("topic", "plain", "create with the default number of partitions"),
        ("broker settings", "all", "log.cleaner.threads - -> 2, auto.create.topics.enable - -> false"),
        ("user", "ann", "create with SCRAM-SHA-512"),
        ("acl", "User:ann on orders", "add"),
        ("acl", "Group:x on g-", "add"),
        ("quota", "user ann", "producer_byte_rate - -> 1024"),
        ("quota", "user <default>, client-id c", "request_percentage - -> 12.5"),
    ]


def test_nothing_is_planned_for_a_cluster_that_has_all_of_it() -> None:
    assert planned(read_declared(FILE, "f"), present_after()) == []


def test_what_differs_is_planned_and_nothing_else() -> None:
    present = present_after()
    present.topics["orders"] = Shape(4, 3)
    present.settings["topic", "orders"]["segment.ms"] = Setting("5", True)
    # A value that comes from a default is still set, because otherwise it would change with the default.
    present.settings["broker", "all"]["log.cleaner.threads"] = Setting("2", False)
    present.quotas[("user", "ann"),] = {"producer_byte_rate": 1.0}
    assert planned(read_declared(FILE, "f"), present) == [
        ("topic", "orders", "partitions 4 -> 6"),
        ("topic settings", "orders", "segment.ms 5 -> default"),
        ("broker settings", "all", "log.cleaner.threads 2 -> 2"),
        ("quota", "user ann", "producer_byte_rate 1.0 -> 1024"),
    ]


@pytest.mark.parametrize(("shape", "said"), [(Shape(9, 3), "9 partitions"), (Shape(6, 1), "replication factor 1")])
def test_a_topic_that_cannot_become_what_is_declared_is_refused_before_anything_changes(
    shape: Shape, said: str
) -> None:
    present = present_after()
    present.topics["orders"] = shape
    with pytest.raises(CommandFailed, match=said):
        planned(read_declared(FILE, "f"), present)


def test_an_entry_in_words_and_one_in_fields() -> None:
    entries = read_declared(FILE, "f").acls
    assert entries[0].principal == "User:ann" and entries[0].host == "*"
    assert entries[1] == AccessControlEntry(3, "g-", PREFIXED, "Group:x", "10.0.0.0/8", 3, DENY)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics: [a]", "f: topics: a mapping"),
        ("topics: {t: {partitions: 0}}", "f: topics.t.partitions: 0 is no number above 0"),
        ("topics: {t: {partitions: true}}", "f: topics.t.partitions"),
        ("topic: {}", "f: there is no 'topic'"),
        ("topics: {t: {config: {a: {b: 1}}}}", "f: topics.t.config.a"),
        ("users: {u: {}}", "f: users.u: a user has one of"),
        ("users: {u: {password: x}}", "f: users.u: there is no 'password'"),
        ("acls: [ann writes topic:t]", "no operation 'writes'"),
        ("acls: [ann write]", "f: acls[0]"),
        ("acls: [{user: ann, operation: 1, resource: cluster}]", "f: acls[0]: an entry has a operation"),
        ("quotas: [{producer_byte_rate: 1}]", "f: quotas[0]"),
        ("quotas: [{user: u, producer_byte_rate: much}]", "f: quotas[0].producer_byte_rate"),
        ("config: {topic: {}}", "f: config: there is no 'topic'"),
        ("a: [", "f is no YAML"),
        ("!!python/object/apply:os.system [x]", "f is no YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        read_declared(text, "f")
    assert said in caught.value.cause and caught.value.exit_code == USAGE


def test_an_empty_file_declares_nothing() -> None:
    assert read_declared("", "f") == DeclaredCluster()
