"""Users, their passwords, and the operations that each may do on which subjects."""

from __future__ import annotations

import asyncio
import base64
from typing import ClassVar

import pytest

from ottla.registry import access as access_module
from ottla.registry.access import ITERATIONS, Access, RegistryLogins, hashed, read_permissions, read_users
from ottla.registry.errors import RegistryError


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_passwords_are_plain_or_hashed_and_a_right_login_is_not_hashed_again() -> None:
    access = Access(read_users(f"# comment\n\nalice: secret\nbob: {hashed('other:word')}\ncarol: pw,admin\n"))
    assert access.known(basic("bob", "other:word")) is None
    assert access.login(basic("bob", "other:word")) == "bob"
    assert access.known(basic("bob", "other:word")) == "bob"
    assert access.login(basic("alice", "secret")) == "alice"
    assert access.login(basic("carol", "pw")) == "carol"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Bearer abc",
        basic("alice", "wrong"),
        basic("eve", "secret"),
        "Basic " + base64.b64encode(b"alice").decode(),
    ],
)
def test_wrong_logins_are_unauthorized(header: str | None) -> None:
    access = Access({"alice": "secret", "broken": "PBKDF2:x:y:z"})
    assert access.known(header) is None
    with pytest.raises(RegistryError) as caught:
        access.login(header)
    assert (caught.value.code, caught.value.status) == (401, 401)


def test_permissions_are_by_user_subject_and_operation() -> None:
    access = Access({"alice": "a"}, read_permissions("alice orders-* read,write\n* public-* read\nroot * all\n"))
    assert access.may("alice", "write", "orders-value")
    assert not access.may("alice", "delete", "orders-value")
    assert access.may("bob", "read", "public-key")
    assert not access.may("bob", "read", "orders-value")
    access.require("root", "config", "")
    with pytest.raises(RegistryError) as caught:
        access.require("alice", "config", "")
    assert (caught.value.code, caught.value.status) == (40301, 403)
    assert Access().may("", "delete", "anything")


def test_only_the_star_of_a_permission_stands_for_other_text() -> None:
    access = Access({"alice": "a"}, read_permissions("alice shop?-[ab]*.v1 read\n"))
    assert access.may("alice", "read", "shop?-[ab]\norders.v1")
    for other in ("shops-a.v1", "shops-[ab].v1", "shop?-a.v1", "shop?-[ab]xv1", "Shop?-[ab].v1"):
        assert not access.may("alice", "read", other)


def test_wrong_lines_are_named() -> None:
    for text in ("alice", "alice:", ": x"):
        with pytest.raises(ValueError, match="line 1"):
            read_users(text)
    for text in ("", "# nothing yet\n\n"):
        with pytest.raises(ValueError, match="it has no user"):
            read_users(text)
    for text in ("alice", "alice x", "alice x fly", "alice x read more"):
        with pytest.raises(ValueError, match="line 1"):
            read_permissions(text)


async def test_wrong_logins_are_checked_one_at_a_time_and_hold_up_no_other_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Access):
        inside = inside_max = 0
        order: ClassVar[list[str]] = []

        def login(self, header: str | None) -> str:
            self.inside += 1
            self.inside_max = max(self.inside, self.inside_max)
            try:
                return super().login(header)
            finally:
                self.order.append(header or "")
                self.inside -= 1

    monkeypatch.setattr(access_module, "WRONG_LOGIN_S", 0)
    access = Slow({"alice": hashed("right"), "bob": "pw"})
    logins = RegistryLogins(access)
    guesses = [asyncio.ensure_future(logins.user(basic("alice", str(n)), "10.0.0.1")) for n in range(20)]
    await asyncio.sleep(0)
    assert await logins.user(basic("bob", "pw"), "10.0.0.1") == "bob"
    assert {str(fault) for fault in await asyncio.gather(*guesses, return_exceptions=True)} == {"Unauthorized"}
    assert (access.inside_max, access.order.index(basic("bob", "pw")) <= 2) == (1, True)


def test_a_name_that_does_not_exist_is_hashed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    access = Access({"alice": hashed("right")})

    def derive(password: str, salt: bytes, iterations: int) -> bytes:
        made.append(iterations)
        return b""

    monkeypatch.setattr(access_module, "_derive", derive)
    for name in ("alice", "eve"):
        with pytest.raises(RegistryError):
            access.login(basic(name, "wrong"))
    assert made == [ITERATIONS, ITERATIONS]
