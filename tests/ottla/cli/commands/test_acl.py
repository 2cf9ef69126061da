"""`ottla acl` against a node with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.cli.errors import FAILED, USAGE
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from tests.broker.conftest import start_node, stop_node
from tests.ottla.conftest import Cli, Finished


@pytest.fixture(scope="module")
def acl_cli() -> Iterator[Cli]:
    node = start_node(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    yield Cli(node.bootstrap)
    stop_node(node)


def why(cli: Cli, *words: str) -> Finished:
    return cli("acl", "why", *words)


def test_entries_are_added_listed_and_removed(acl_cli: Cli) -> None:
    acl_cli.ok("acl", "add", "alice", "read", "topic:orders")
    acl_cli.ok("acl", "add", "alice", "write", "topic:or", "--prefixed", "--host", "10.0.0.0/8")
    acl_cli.ok("acl", "add", "Group:admins", "cluster-action", "cluster")
    assert acl_cli.rows("acl", "list", "topic:orders", "--user", "alice") == [
        {
            "permission": "allow",
            "user": "User:alice",
            "operation": "write",
            "resource": "topic:or",
            "pattern": "prefixed",
            "host": "10.0.0.0/8",
        },
        {
            "permission": "allow",
            "user": "User:alice",
            "operation": "read",
            "resource": "topic:orders",
            "pattern": "literal",
            "host": "*",
        },
    ]
    assert len(acl_cli.rows("acl", "list")) == 3
    acl_cli.ok("acl", "remove", "alice", "any", "topic:orders")
    assert acl_cli("acl", "remove", "alice", "read", "topic:orders").code == FAILED
    acl_cli.ok("acl", "remove", "alice", "write", "topic:or", "--prefixed", "--host", "10.0.0.0/8")
    acl_cli.ok("acl", "remove", "Group:admins", "cluster_action", "cluster")
    assert acl_cli.rows("acl", "list") == []


def test_why_names_the_entry_that_decides_or_the_one_that_is_missing(acl_cli: Cli) -> None:
    missing = why(acl_cli, "bob", "describe", "topic:pay")
    assert missing.code == FAILED
    assert "no entry is about it" in missing.out
    assert "ottla acl add User:bob describe topic:pay" in missing.out
    acl_cli.ok("acl", "add", "bob", "write", "topic:pay")
    implied = why(acl_cli, "bob", "describe", "topic:pay")
    assert implied.code == 0
    assert "by: allow User:bob write on topic:pay from *" in implied.out
    other = why(acl_cli, "eve", "write", "topic:pay")
    assert other.code == FAILED and "none of its entries matches" in other.out
    acl_cli.ok("acl", "add", "*", "all", "topic:p", "--prefixed", "--deny", "--host", "10.1.0.0/16")
    denied = why(acl_cli, "bob", "write", "topic:pay", "--host", "10.1.2.3")
    assert denied.code == FAILED
    assert "by: deny User:* all on names that begin with topic:p from 10.1.0.0/16" in denied.out
    assert why(acl_cli, "bob", "write", "topic:pay", "--host", "10.2.0.1").code == 0


def test_why_knows_the_rules_of_the_nodes_file() -> None:
    everyone = {"super_users": "User:ANONYMOUS;User:root", "allow_everyone_if_no_acl_found": "true"}
    node = start_node(authorizer_class_name=STANDARD_AUTHORIZER, **everyone)
    try:
        open_cli = Cli(node.bootstrap)
        anyone = why(open_cli, "bob", "delete", "topic:pay")
        assert anyone.code == 0 and "by: no entry is about it, and the node's file has allow.everyone" in anyone.out
        open_cli.ok("acl", "add", "bob", "read", "topic:pay")
        assert why(open_cli, "bob", "delete", "topic:pay").code == FAILED
        root = why(open_cli, "root", "delete", "topic:pay")
        assert root.code == 0 and "by: super.users of the node's file" in root.out
    finally:
        stop_node(node)


def test_what_is_no_entry_is_refused(acl_cli: Cli) -> None:
    assert "'describe'" in acl_cli("acl", "add", "bob", "describ", "topic:t").err
    assert acl_cli("acl", "add", "bob", "read", "table:t").code == USAGE
    assert acl_cli("acl", "add", "bob", "read", "topic:").code == USAGE
    network = acl_cli("acl", "add", "bob", "read", "topic:t", "--host", "10.0.0.0/40")
    assert network.code == FAILED and "INVALID_REQUEST" in network.err


def test_a_node_without_an_authorizer_has_no_entries(cli: Cli) -> None:
    done = cli("acl", "list")
    assert done.code == FAILED and "SECURITY_DISABLED" in done.err


def test_a_name_with_a_star_is_refused_and_nothing_is_added(acl_cli: Cli) -> None:
    before = acl_cli.rows("acl", "list")
    refused = acl_cli("acl", "add", "bob", "read", "topic:payments*", "--deny")
    assert refused.code == USAGE
    assert "topic:payments with --prefixed" in refused.err
    assert acl_cli.rows("acl", "list") == before
