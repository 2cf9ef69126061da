"""The access to the registry: users with passwords (basic authentication), and the operations that each may do on which
subjects.

The file of users has a line for each: `alice: secret`, or with a hash that `ottla registry --hash-password` prints. The file of
permissions has lines `alice orders-* read,write`: the user, or `*` for all; the subjects, with `*` for any text in them; and
the operations, or `all`. Whatever no line permits is denied. Without such a file everything is permitted.

    read     versions, ids and compatibility checks of the subject     write    register schemas
    delete   delete versions and subjects                              config   compatibility level and mode

The subject `` of a line with `*` alone covers the global configuration and mode as well.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ottla.registry.errors import RegistryError
from ottla.registry.subjects import GLOBAL
from ottla.registry.turns import Turns

OPERATIONS = ("read", "write", "delete", "config")
SCHEME = "PBKDF2"
ITERATIONS = 100_000
#: Correct logins are remembered, so that they are not hashed again.
VERIFIED_MAX = 1_024
#: A wrong login is answered only after this time.
WRONG_LOGIN_S = 0.5
NAME_CHARS_MAX = 100
UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Permission:
    """A line of the file of permissions."""

    user: str
    subjects: re.Pattern[str]
    operations: frozenset[str]

    @classmethod
    def of(cls, user: str, subjects: str, operations: frozenset[str]) -> Permission:
        """Return the permission for the subjects in a line: `*` stands for any text, and every other character for itself."""
        return cls(user, re.compile(".*".join(map(re.escape, subjects.split("*"))), re.DOTALL), operations)


class Access:
    """Logins and permissions. Without users every client may do everything."""

    def __init__(self, users: Mapping[str, str] | None = None, permissions: Iterable[Permission] | None = None) -> None:
        self._users = users
        self._permissions = None if permissions is None else list(permissions)
        self._verified: dict[bytes, str] = {}
        # For an unknown user a hash of the kind that most users have is checked.
        hashes = [each for each in (users or {}).values() if each.startswith(SCHEME + ":")]
        self._decoy = hashed(secrets.token_hex()) if hashes else secrets.token_hex()

    @property
    def is_open(self) -> bool:
        return self._users is None

    def login(self, header: str | None) -> str:
        """Return the user of an Authorization header.

        It computes a hash, so it runs on the thread of `RegistryLogins`, unless `known` returns the user. An unknown name takes
        as long as a known one.

        Raises:
            RegistryError: there is no such user, or the password is wrong.
        """
        if self._users is None:
            return ""
        name, password = _credentials(header)
        expected = self._users.get(name)
        is_right = verify(password, expected or self._decoy)
        if expected is None or not is_right:
            raise RegistryError("unauthorized")
        while len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[_digest(header or "")] = name
        return name

    def known(self, header: str | None) -> str | None:
        """Return the user of a header that was correct before."""
        return "" if self._users is None else self._verified.get(_digest(header or ""))

    def may(self, user: str, operation: str, subject: str) -> bool:
        if self._permissions is None:
            return True
        return any(
            row.user in (user, "*") and operation in row.operations and row.subjects.fullmatch(subject)
            for row in self._permissions
        )

    def require(self, user: str, operation: str, subject: str) -> None:
        """Check that the user may do the operation.

        Raises:
            RegistryError: no permission covers it.
        """
        if not self.may(user, operation, subject):
            if subject == GLOBAL:
                raise RegistryError("denied_globally", operation.capitalize())
            raise RegistryError("denied", operation.capitalize(), subject)


class RegistryLogins:
    """Checks logins one at a time on a separate thread, and answers a wrong one late, so that guessing takes no processor time
    from other work.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._turns = Turns(1)
        self._thread = ThreadPoolExecutor(1, "logins")

    async def user(self, header: str | None, address: str) -> str:
        """Return the user of an Authorization header. Each address and name has its own queue.

        Raises:
            RegistryError: there is no such user, the password is wrong, or too many of the same name wait.
        """
        known = self._access.known(header)
        if known is not None:
            return known
        try:
            name, _ = _credentials(header)
            async with self._turns.turn((address, name[:NAME_CHARS_MAX])):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._access.login, header)
        except RegistryError as fault:
            if header is not None and fault.status == UNAUTHORIZED:  # a browser's first request has no header
                await asyncio.sleep(WRONG_LOGIN_S)
            raise


def read_users(text: str) -> dict[str, str]:
    """Return the users of a file and their passwords or hashes.

    Raises:
        ValueError: a line is malformed, or the file has no user, so that all requests would be rejected.
    """
    users = {}
    for number, line in _lines(text):
        name, colon, password = line.partition(":")
        if not colon or not name.strip() or not password.strip():
            raise ValueError(f"line {number}: it must be NAME: PASSWORD")
        # In Jetty's files, which Confluent's registry reads, a comma and roles follow.
        users[name.strip()] = password.strip().partition(",")[0]
    if not users:
        raise ValueError("it has no user: a line is NAME: PASSWORD")
    return users


def read_permissions(text: str) -> list[Permission]:
    """Return the lines of a file of permissions.

    Raises:
        ValueError: a line is malformed.
    """
    found = []
    for number, line in _lines(text):
        parts = line.split()
        operations = frozenset(parts[2].lower().split(",")) if len(parts) == 3 else frozenset()
        if operations == {"all"}:
            operations = frozenset(OPERATIONS)
        if not operations or not operations <= frozenset(OPERATIONS):
            raise ValueError(f"line {number}: it must be USER SUBJECTS OPERATIONS, of {', '.join(OPERATIONS)} or all")
        found.append(Permission.of(parts[0], parts[1], operations))
    return found


def hashed(password: str) -> str:
    """Return the hash that a file of users may have in place of a password."""
    salt = secrets.token_bytes(16)
    return f"{SCHEME}:{ITERATIONS}:{base64.b64encode(salt).decode()}:{base64.b64encode(_derive(password, salt, ITERATIONS)).decode()}"


def verify(password: str, expected: str) -> bool:
    """Return whether a password matches the password or hash in a file's line."""
    if not expected.startswith(SCHEME + ":"):
        return hmac.compare_digest(password.encode(), expected.encode())
    try:
        _, iterations, salt, derived = expected.split(":")
        return hmac.compare_digest(
            _derive(password, base64.b64decode(salt), int(iterations)), base64.b64decode(derived)
        )
    except ValueError:
        return False


def _derive(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)


def _digest(header: str) -> bytes:
    return hashlib.sha256(header.encode("utf-8", "surrogatepass")).digest()


def _credentials(header: str | None) -> tuple[str, str]:
    scheme, _, data = (header or "").partition(" ")
    if scheme.lower() != "basic":
        raise RegistryError("unauthorized")
    try:
        name, colon, password = base64.b64decode(data.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise RegistryError("unauthorized") from None
    if not colon:
        raise RegistryError("unauthorized")
    return name, password


def _lines(text: str) -> Iterable[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()
