"""The options of one console: its cluster, its address, its users, and whether it allows changes."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.client.admin_listeners import AdminAddresses
from ottla.client.failures import Failure, Kind
from ottla.client.values import is_url
from ottla.console.roles import ConsoleUser, Role, role_of
from ottla.server.hosts import LOOPBACK, is_loopback

LISTEN = "127.0.0.1:9490"
LOGIN_FILE_BYTES_MAX = 64 * 1024
NAME_CHARS_MAX = 100
LINE = "USER:ROLE:PASSWORD, with the role viewer, operator or administrator"


class UserLogin(NamedTuple):
    """The password of a user, and what the user may do."""

    password: str
    role: Role


@dataclass(frozen=True)
class ConsoleLogin:
    """Logins by user, and the token of an administrator: it is valid as the password of any user, or in `Authorization:
    Bearer`.
    """

    users: dict[str, UserLogin] = field(default_factory=dict)
    token: str | None = None

    @property
    def required(self) -> bool:
        return bool(self.users) or self.token is not None

    def user_of(self, name: str, password: str) -> ConsoleUser | None:
        """Return the user of a login, or None if it is wrong. Comparing a wrong password takes the same time."""
        known = self.users.get(name)
        expected = "" if known is None else known.password
        if hmac.compare_digest(expected.encode(), password.encode()) and known is not None:
            return ConsoleUser(name, known.role)
        return self.user_of_token(password, name)

    def user_of_token(self, token: str, name: str = "") -> ConsoleUser | None:
        """Return the user who has the token, or None for another token. The name is the one that was typed: it proves nothing."""
        if self.token is None or not hmac.compare_digest(self.token.encode(), token.encode()):
            return None
        return ConsoleUser(f"{name[:NAME_CHARS_MAX]} (token)".strip(), Role.ADMINISTRATOR)


@dataclass(frozen=True)
class ConsoleOptions:
    """The options of `ottla console` for one cluster.

    With several clusters, the options differ only in the cluster's own: name, addresses, registry and tables.
    """

    bootstrap: str
    #: The name of the cluster's context, for links if there are several clusters; it is empty if there is only one.
    name: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    config: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    allow_changes: bool = False
    login: ConsoleLogin = ConsoleLogin()
    allowed_hosts: tuple[str, ...] = ()
    #: The URL by which browsers reach it through a proxy.
    url: str | None = None
    #: The files of a certificate chain and its key in PEM.
    cert: str | None = None
    key: str | None = None
    registry: str | None = None
    #: The file with the registry's login.
    registry_config: str | None = None
    #: The location of topics' tables.
    tables: str | None = None
    admin: AdminAddresses = field(default_factory=AdminAddresses)
    #: Seconds between two samples.
    interval_s: float = 5.0

    @property
    def scheme(self) -> str:
        return "https" if self.cert else "http"

    @property
    def is_reached_by_tls(self) -> bool:
        return bool(self.cert) or (self.url or "").startswith("https:")

    def host_names(self) -> frozenset[str]:
        """Return the host names by which a browser may reach this console.

        Another name would be a foreign page whose name leads here (DNS rebinding).
        """
        own = set() if is_wildcard(self.host) else {self.host.lower()}
        if is_wildcard(self.host) or is_loopback(self.host):
            own |= LOOPBACK
        if self.url is not None:
            own.add(urlsplit(self.url).hostname or "")
        return frozenset(own | {name.lower().strip("[]") for name in self.allowed_hosts})

    def check(self, no_login: bool) -> None:
        """Raise for options that are unsafe, unless the user has asked for that.

        Raises:
            Failure: other machines could reach the console without a login, or the URL is malformed.
        """
        if not is_loopback(self.host) and not self.login.required and not no_login:
            raise Failure(
                f"--listen {self.host}:{self.port} is for other machines, and there is no login",
                "pass --login-file or --token-file, or --no-login if a proxy asks for one",
                Kind.WRONG,
            )
        if self.url is not None and not is_url(self.url):
            raise Failure(f"--url {self.url!r} is no URL", "for example https://console.example.com", Kind.WRONG)


def is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::", "[::]")


def read_login(login_file: str | None, token_file: str | None) -> ConsoleLogin:
    """Return the logins of a file of lines USER:ROLE:PASSWORD, and the token that is the first line of another file.

    Raises:
        Failure: a file cannot be read, is empty, or has a line that is no login.
    """
    users: dict[str, UserLogin] = {}
    for number, line in enumerate(_lines(login_file), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, rest = line.partition(":")
        word, _, password = rest.partition(":")
        role = role_of(word)
        if not user or role is None or not password:
            raise Failure(f"{login_file}:{number} is not USER:ROLE:PASSWORD", f"a line is {LINE}", Kind.WRONG)
        users[user] = UserLogin(password, role)
    token = next(iter(_lines(token_file)), "").strip() or None
    if login_file is not None and not users:
        raise Failure(f"{login_file} has no user", f"a line is {LINE}", Kind.WRONG)
    if token_file is not None and token is None:
        raise Failure(f"{token_file} has no token", "its first line is the token", Kind.WRONG)
    return ConsoleLogin(users, token)


def _lines(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LOGIN_FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as fault:
        raise Failure(f"{path} cannot be read: {fault}", None, Kind.WRONG) from None
    # otherwise the last password could be cut, and lines after it would be missing
    if len(text) > LOGIN_FILE_BYTES_MAX:
        raise Failure(f"{path} is larger than {LOGIN_FILE_BYTES_MAX} bytes", None, Kind.WRONG)
    return text.splitlines()
