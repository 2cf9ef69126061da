"""The words of an access control entry, which the command line, `ottla apply`, the console and the test kit read alike."""

from __future__ import annotations

import pytest

from ottla.cli.declared import read_declared
from ottla.cli.errors import USAGE
from ottla.cli.hints import as_command_failed, hint_of
from ottla.client.access import new_entry
from ottla.client.errors import ClusterError
from ottla.client.failures import Failure
from ottla.console.pages.access import entry_of
from ottla.testing.users import _entry


@pytest.mark.parametrize("resource", ["topic:payments*", "topic:*payments", "group:a*b", "transactional-id:**"])
@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("deny", [False, True])
def test_a_star_in_a_name_is_refused_because_it_would_stand_for_itself(
    resource: str, prefixed: bool, deny: bool
) -> None:
    with pytest.raises(ClusterError, match="stands for no other letters") as refused:
        new_entry("bob", "read", resource, prefixed=prefixed, deny=deny)
    assert as_command_failed(refused.value).exit_code == USAGE
    assert refused.value.remedy is not None


def test_the_refusal_says_how_a_beginning_and_how_all_names_are_given() -> None:
    for resource, hint in {
        "topic:payments*": "names that begin so: topic:payments with --prefixed, or with prefixed: true in a file",
        "topic:**": "all names: topic:* alone",
    }.items():
        with pytest.raises(ClusterError) as refused:
            new_entry("bob", "read", resource)
        assert hint_of(refused.value) == hint


def test_all_names_are_a_star_alone() -> None:
    assert new_entry("bob", "read", "topic:*").resource_name == "*"
    with pytest.raises(ClusterError):
        new_entry("bob", "read", "topic:*", prefixed=True)  # names that begin with a star


def test_a_file_a_form_and_the_test_kit_refuse_it_as_the_command_does() -> None:
    with pytest.raises(Failure, match=r"cluster\.yml: acls\[1\]: the name 'payments\*' has a"):
        read_declared("acls: [bob read topic:x, bob read topic:payments*]", "cluster.yml")
    with pytest.raises(Failure, match="stands for no other letters"):
        entry_of({"who": "bob", "operation": "read", "what": "topic:payments*", "deny": "on"})
    with pytest.raises(Failure, match="stands for no other letters"):
        _entry("bob", "read topic:payments*")
