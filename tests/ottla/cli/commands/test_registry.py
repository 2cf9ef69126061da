"""Options of `ottla registry` that are rejected before its server starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.errors import USAGE
from ottla.registry.access import read_users
from tests.ottla.conftest import run_here


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--cert", "x.pem"), "--cert and --key belong together"),
        (("--session-timeout-ms", "0"), "--session-timeout-ms 0 is no time"),
        (("--acl", "x"), "--acl needs --users"),
        (("--listen", "nowhere"), "--listen: 'nowhere' is not HOST:PORT"),
        (("--advertise", ":::"), "--advertise: ':::' is not HOST:PORT"),
        (("--users", "/no/such/file"), "--users /no/such/file cannot be read"),
        (("--secret-file", "/no/such/file"), "--secret-file /no/such/file cannot be read"),
    ],
)
def test_wrong_options_say_what_to_write(arguments: tuple[str, ...], text: str) -> None:
    done = run_here("registry", *arguments)
    assert done.code == USAGE and text in done.err, done.err


@pytest.mark.parametrize(
    ("lines", "said"), [("no login\n", "line 1: it must be NAME: PASSWORD"), ("", "it has no user")]
)
@pytest.mark.parametrize("command", ["registry", "table serve --at {folder}"])
def test_a_file_of_logins_that_has_none_is_refused(tmp_path: Path, command: str, lines: str, said: str) -> None:
    users = tmp_path / "users"
    users.write_text(lines)
    done = run_here(*command.format(folder=tmp_path).split(), "--users", str(users))
    assert done.code == USAGE and done.err.startswith(f"ottla: --users {users}: {said}")


def test_a_port_for_all_machines_without_logins_is_warned_of() -> None:
    done = run_here("registry", "--listen", "0.0.0.0:0", "--secret-file", "/no/such/file")
    assert done.code == USAGE and "everybody who reaches 0.0.0.0:0 may register and delete schemas" in done.err


def test_a_password_is_hashed_to_a_line_that_the_file_of_logins_takes() -> None:
    done = run_here("registry", "--hash-password", stdin="secret\n")
    assert done.code == 0 and "secret" not in done.out
    assert read_users(f"ann: {done.out.strip()}\n")
