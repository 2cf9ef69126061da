"""Wrong arguments of `ottla token` are rejected; tests/clients/test_delegation_tokens.py has the tokens themselves."""

from __future__ import annotations

import pytest

from ottla.cli.errors import FAILED, USAGE
from tests.ottla.conftest import Cli


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "--hours", "0"), "--hours 0 is not above 0"),
        (("renew", "no base64!"), "the HMAC is not base64"),
        (("expire", "no base64!", "--dry-run"), "the HMAC is not base64"),
        (("renew", "aGk=", "--hours", "-1"), "--hours -1 is not above 0"),
    ],
)
def test_words_that_are_no_time_and_no_secret_are_refused(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    done = cli("token", *arguments)
    assert done.code == USAGE and text in done.err


@pytest.mark.parametrize(
    "arguments", [("list",), ("create",), ("create", "--dry-run"), ("expire", "aGk=", "--dry-run")]
)
def test_without_a_login_the_brokers_reason_is_shown(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli("token", *arguments)
    assert done.code == FAILED and "DELEGATION_TOKEN" in done.err
