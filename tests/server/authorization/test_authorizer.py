"""Super users, defaults, what is cached and what is logged (invariant 50)."""

from __future__ import annotations

import logging

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization import authorizer as module
from ottla.server.authorization.acl import AccessControlEntry, java_host
from ottla.server.authorization.authorizer import (
    STANDARD_AUTHORIZER,
    AllowAll,
    StandardAuthorizer,
    make_authorizer,
)
from ottla.server.authorization.operations import (
    ALL,
    ALLOW,
    AUTHORIZATION_ERRORS,
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    DENY,
    DESCRIBE,
    LITERAL,
    PREFIXED,
    READ,
    SUPPORTED_OPERATIONS,
    TOPIC,
    USER,
    WRITE,
    bit_field,
)
from ottla.server.config.broker import ALLOW_EVERYONE, SUPER_USERS
from ottla.server.config.key import ConfigError
from ottla.server.principal import Principal
from tests.server.authorization.callers import caller

ALICE = Principal("User", "alice")


def entry(name: str, operation: int, permission: int = ALLOW, principal: str = "User:alice") -> AccessControlEntry:
    return AccessControlEntry(TOPIC, name, LITERAL, principal, "*", operation, permission)


def loaded(*entries: AccessControlEntry, allow_if_no_acl: bool = False, super_users: str = "") -> StandardAuthorizer:
    authorizer = StandardAuthorizer([super_users] if super_users else [], allow_if_no_acl=allow_if_no_acl)
    authorizer.change((), entries)
    return authorizer


def test_before_the_entries_are_known_only_super_users_pass() -> None:
    authorizer = StandardAuthorizer(["User:alice"], allow_if_no_acl=True)
    assert authorizer.allows(caller(ALICE), READ, TOPIC, "t")
    with pytest.raises(KafkaError) as refused:
        authorizer.allows(caller(), READ, TOPIC, "t")
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    authorizer.change((), ())
    assert authorizer.allows(caller(), READ, TOPIC, "t")


def test_a_super_user_is_not_bound_by_denials() -> None:
    authorizer = loaded(entry("t", ALL, DENY, "User:*"), super_users="User:alice")
    assert authorizer.allows(caller(ALICE), READ, TOPIC, "t")
    assert not authorizer.allows(caller(Principal("Group", "alice")), READ, TOPIC, "t")


@pytest.mark.parametrize("allow", [True, False])
def test_the_default_counts_only_where_no_entry_is_about_the_resource(allow: bool) -> None:
    authorizer = loaded(entry("t", READ), allow_if_no_acl=allow)
    assert authorizer.allows(caller(), READ, TOPIC, "free") is allow
    assert not authorizer.allows(caller(), READ, TOPIC, "t")


def test_a_change_counts_at_once() -> None:
    authorizer = loaded(entry("t", READ))
    assert authorizer.allows(caller(ALICE), READ, TOPIC, "t")
    authorizer.change([entry("t", READ)], [])
    assert not authorizer.allows(caller(ALICE), READ, TOPIC, "t")
    authorizer.change([], [entry("t", READ)])
    assert authorizer.allows(caller(ALICE), READ, TOPIC, "t")


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_BYTES_MAX", 4_000)
    authorizer = loaded(entry("t", READ))
    for number in range(100):
        authorizer.allows(caller(), READ, TOPIC, f"made-up-{number}")
        assert not authorizer.allows(caller(), READ, TOPIC, f"{number}" * 30_000)
    assert 0 < len(authorizer.decisions) <= 12 and authorizer.decisions.bytes <= 4_000
    assert authorizer.allows(caller(ALICE), READ, TOPIC, "t")


def test_a_denial_names_the_beginning_of_a_long_name(caplog: pytest.LogCaptureFixture) -> None:
    """Each of many names with 32 KB gave a log line of 32 KB."""
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        loaded(entry("t", READ)).allows(caller(), READ, TOPIC, "n" * 32_000)
    assert f"Topic:LITERAL:{'n' * 256}... (32000 characters) for request" in caplog.text


def test_a_denial_is_logged_once_and_names_everything(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = loaded(entry("t", READ))
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        for _ in range(3):
            authorizer.allows(caller(), WRITE, TOPIC, "t")
        authorizer.authorized_operations(caller(), TOPIC, "t")
    assert [record.getMessage() for record in caplog.records] == [
        "Principal = User:ANONYMOUS is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
    ]


def test_the_audit_log_has_kafkas_levels_and_names_the_entry_that_decided(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = loaded(entry("t", READ), entry("secret", ALL, DENY, "User:*"), super_users="User:root")
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        authorizer.allows(caller(ALICE), READ, TOPIC, "t")
        authorizer.allows(caller(ALICE, host="::1"), WRITE, TOPIC, "secret")
        authorizer.allows(caller(Principal("User", "root")), WRITE, TOPIC, "secret")
    acl = "StandardAcl(resourceType=TOPIC, resourceName={}, patternType=LITERAL, principal={}, host=*, operation={}, permissionType={})"
    assert [(record.levelname, record.getMessage().partition(" is ")[2]) for record in caplog.records] == [
        (
            "DEBUG",
            "Allowed operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:t for request = Produce "
            f"with resourceRefCount = 1 based on rule MatchingAcl(acl={acl.format('t', 'User:alice', 'READ', 'ALLOW')})",
        ),
        (
            "INFO",
            "Denied operation = WRITE from host = 0:0:0:0:0:0:0:1 on resource = Topic:LITERAL:secret for request = Produce "
            f"with resourceRefCount = 1 based on rule MatchingAcl(acl={acl.format('secret', 'User:*', 'ALL', 'DENY')})",
        ),
        (
            "DEBUG",
            "Allowed operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:secret for request = Produce "
            "with resourceRefCount = 1 based on rule SuperUser",
        ),
    ]


def test_authorized_operations_are_those_that_would_be_allowed() -> None:
    authorizer = loaded(entry("t", READ), entry("t", WRITE, DENY))
    assert authorizer.authorized_operations(caller(ALICE), TOPIC, "t") == bit_field([READ, DESCRIBE])
    assert authorizer.authorized_operations(caller(), TOPIC, "t") == 0
    everything = AllowAll().authorized_operations(caller(), CLUSTER, CLUSTER_NAME)
    assert everything == loaded(allow_if_no_acl=True).authorized_operations(caller(), CLUSTER, CLUSTER_NAME)


def test_any_topic_is_enough_for_an_idempotent_producer() -> None:
    assert loaded(entry("t", WRITE)).allows_any(caller(ALICE), WRITE, TOPIC)
    assert not loaded(entry("t", READ)).allows_any(caller(ALICE), WRITE, TOPIC)
    denied = AccessControlEntry(TOPIC, "t", PREFIXED, "User:*", "*", ALL, DENY)
    assert not loaded(entry("table", WRITE), denied).allows_any(caller(ALICE), WRITE, TOPIC)
    assert loaded(allow_if_no_acl=True).allows_any(caller(), WRITE, TOPIC)
    assert loaded(entry("*", ALL, DENY), super_users="User:alice").allows_any(caller(ALICE), WRITE, TOPIC)


@pytest.mark.parametrize(
    ("seen", "java"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_hosts_are_compared_as_java_prints_them(seen: str, java: str) -> None:
    assert java_host(seen) == java
    authorizer = loaded(AccessControlEntry(TOPIC, "t", LITERAL, "User:*", java, READ, ALLOW))
    assert authorizer.allows(caller(host=seen), READ, TOPIC, "t")
    assert not authorizer.allows(caller(host="10.9.9.9"), READ, TOPIC, "t")


def test_configuration_without_an_authorizer_allows_everything() -> None:
    assert not make_authorizer("", {SUPER_USERS: "rubbish"}).enabled


def test_configuration_of_super_users_and_the_default() -> None:
    made = make_authorizer(STANDARD_AUTHORIZER, {SUPER_USERS: " User:a;User:CN=b,O=c ; ", ALLOW_EVERYONE: " TRUE "})
    assert isinstance(made, StandardAuthorizer)
    made.change((), [entry("t", ALL, DENY, "User:*")])
    assert made.is_super_user(Principal("User", "CN=b,O=c"))
    assert made.allows(caller(Principal("User", "a")), READ, TOPIC, "t")
    assert made.allows(caller(), READ, TOPIC, "free")


@pytest.mark.parametrize(
    ("class_name", "properties"),
    [("com.example.Authorizer", {}), (STANDARD_AUTHORIZER, {SUPER_USERS: "User:a;bob"})],
)
def test_configuration_that_cannot_be_is_refused_at_the_start(class_name: str, properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        make_authorizer(class_name, properties)
    assert refused.value.what_to_try


def test_a_refusal_names_the_kind_of_resource_and_every_kind_but_users_has_one() -> None:
    assert AUTHORIZATION_ERRORS[DELEGATION_TOKEN] == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert set(AUTHORIZATION_ERRORS) == set(SUPPORTED_OPERATIONS) - {USER}
    assert all(code.name.endswith("_AUTHORIZATION_FAILED") for code in AUTHORIZATION_ERRORS.values())
