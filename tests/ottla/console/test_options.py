"""The options of a console: unsafe ones are rejected, and only known host names are accepted from a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.client.failures import Failure, Kind
from ottla.console.options import LOGIN_FILE_BYTES_MAX, ConsoleLogin, ConsoleOptions, UserLogin, read_login
from ottla.console.roles import Role

LOGIN = ConsoleLogin({"ada": UserLogin("a", Role.ADMINISTRATOR)})


def options(**values: Any) -> ConsoleOptions:
    return ConsoleOptions(bootstrap="localhost:9092", **values)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "console.example.com"])
def test_a_console_for_other_machines_needs_a_login(host: str) -> None:
    with pytest.raises(Failure, match="there is no login") as refused:
        options(host=host).check(no_login=False)
    assert refused.value.kind is Kind.WRONG
    options(host=host).check(no_login=True)
    options(host=host, login=LOGIN).check(no_login=False)
    options(host=host, login=ConsoleLogin({}, token="t")).check(no_login=False)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "[::1]"])
def test_one_for_this_machine_needs_none(host: str) -> None:
    options(host=host).check(no_login=False)


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"url": "console.example.com"}, "is no URL"),
        ({"url": "ftp://console.example.com"}, "is no URL"),
        ({"url": "https://console.example.com:0"}, "is no URL"),
        ({"url": "https://[::1"}, "is no URL"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(values: dict[str, Any], cause: str) -> None:
    with pytest.raises(Failure, match=cause):
        options(**values).check(no_login=False)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"host": "127.0.0.1"}, {"127.0.0.1", "localhost", "::1"}),
        ({"host": "0.0.0.0"}, {"127.0.0.1", "localhost", "::1"}),
        ({"host": "Console.Example.com"}, {"console.example.com"}),
        ({"host": "192.0.2.7", "url": "https://Console.Example.com/ottla"}, {"192.0.2.7", "console.example.com"}),
        ({"host": "192.0.2.7", "allowed_hosts": ("B.example", "[::2]")}, {"192.0.2.7", "b.example", "::2"}),
    ],
)
def test_a_browser_may_come_by_the_names_of_the_console_alone(values: dict[str, Any], names: set[str]) -> None:
    """Another name in the Host header means that a foreign page's name points at this console for a moment."""
    assert options(**values).host_names() == names


@pytest.mark.parametrize(
    ("values", "is_tls"),
    [({}, False), ({"cert": "c"}, True), ({"url": "https://x"}, True), ({"url": "http://x"}, False)],
)
def test_a_proxy_with_tls_counts_as_tls(values: dict[str, Any], is_tls: bool) -> None:
    assert options(**values).is_reached_by_tls is is_tls


def test_logins_are_read_from_lines_and_a_password_may_have_colons(tmp_path: Path) -> None:
    logins, token = tmp_path / "logins", tmp_path / "token"
    logins.write_text("# who may do what\n\nvera:viewer:v\nada: Administrator :a:b:c\n")
    token.write_text("t0ken\nnot this\n")
    found = read_login(str(logins), str(token))
    assert found.users == {"vera": UserLogin("v", Role.VIEWER), "ada": UserLogin("a:b:c", Role.ADMINISTRATOR)}
    assert found.token == "t0ken" and found.required
    assert not read_login(None, None).required


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("ada\n", ":1 is not USER:ROLE:PASSWORD"),
        ("ada:administrator:\n", ":1 is not USER:ROLE:PASSWORD"),
        ("# x\n:viewer:v\n", ":2 is not USER:ROLE:PASSWORD"),
        ("ada:root:a\n", ":1 is not USER:ROLE:PASSWORD"),
        ("# no user yet\n", "has no user"),
        ("\xff", None),
    ],
)
def test_a_file_without_a_login_is_refused_and_no_password_is_shown(
    tmp_path: Path, text: str, cause: str | None
) -> None:
    file = tmp_path / "logins"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(Failure, match=cause or "cannot be read") as refused:
        read_login(str(file), None)
    assert ":a" not in refused.value.cause


def test_a_token_file_without_a_token_and_a_file_that_is_missing_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "token"
    empty.write_text("\n")
    with pytest.raises(Failure, match="has no token"):
        read_login(None, str(empty))
    with pytest.raises(Failure, match="cannot be read"):
        read_login(str(tmp_path / "gone"), None)


def test_a_file_above_the_bound_is_refused_and_not_cut_within_a_password(tmp_path: Path) -> None:
    file = tmp_path / "logins"
    file.write_text("#" * (LOGIN_FILE_BYTES_MAX - 20) + "\nada:administrator:abcdef\n")
    with pytest.raises(Failure, match="is larger than"):
        read_login(str(file), None)
    file.write_text("ada:viewer:a\n".ljust(LOGIN_FILE_BYTES_MAX, "#"))
    assert set(read_login(str(file), None).users) == {"ada"}
