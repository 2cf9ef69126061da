"""The options of one console: its cluster, its address, who may look, and whether anything may be changed."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ottla.client.errors import Failure, Kind
from ottla.server.hosts import LOOPBACK, is_loopback

HOST = "127.0.0.1"
PORT = 9490
LOGIN_FILE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class ConsoleLogin:
    """Passwords by user, and tokens. A token is the password of any user, or stands in `Authorization: Bearer`."""

    users: dict[str, str] = field(default_factory=dict)
    token: str | None = None

    @property
    def required(self) -> bool:
        return bool(self.users) or self.token is not None

    def accepts(self, user: str, password: str) -> bool:
        """Compare in the time that a wrong password takes too."""
        known = self.users.get(user, "")
        by_password = hmac.compare_digest(known.encode(), password.encode()) and user in self.users
        return by_password or self.accepts_token(password)

    def accepts_token(self, token: str) -> bool:
        return self.token is not None and hmac.compare_digest(self.token.encode(), token.encode())


@dataclass(frozen=True)
class ConsoleOptions:
    """The options of `ottla console`."""

    bootstrap: str
    properties: dict[str, str] = field(default_factory=dict)
    config: str | None = None
    host: str = HOST
    port: int = PORT
    allow_changes: bool = False
    login: ConsoleLogin = ConsoleLogin()
    allowed_hosts: tuple[str, ...] = ()
    #: How browsers reach it through a proxy.
    url: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    registry: str | None = None
    #: The file with the registry's login.
    registry_config: str | None = None
    #: Addresses of admin listeners by broker, and the port at which the other brokers' hosts have theirs.
    admin: dict[int, str] = field(default_factory=dict)
    admin_port: int | None = None
    #: Seconds between two samples.
    interval_s: float = 5.0

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert else "http"

    @property
    def is_reached_by_tls(self) -> bool:
        return bool(self.tls_cert) or (self.url or "").startswith("https:")

    def host_names(self) -> frozenset[str]:
        """Return the names that a browser may use for this console: another one is a page elsewhere that points its name here."""
        own = set() if is_wildcard(self.host) else {self.host.lower()}
        if is_wildcard(self.host) or is_loopback(self.host):
            own |= LOOPBACK
        if self.url is not None:
            own.add(urlsplit(self.url).hostname or "")
        return frozenset(own | {name.lower().strip("[]") for name in self.allowed_hosts})

    def check(self, no_login: bool) -> None:
        """Raise for what is unsafe without having been asked for.

        Raises:
            Failure: other machines could look at the cluster without a login, or a file of TLS is missing.
        """
        if not is_loopback(self.host) and not self.login.required and not no_login:
            raise Failure(
                f"--host {self.host} is for other machines, and there is no login",
                "pass --login-file or --token-file, or --no-login if a proxy asks for one",
                Kind.WRONG,
            )
        if self.url is not None and not is_url(self.url):
            raise Failure(f"--url {self.url!r} is no URL", "for example https://console.example.com", Kind.WRONG)
        if bool(self.tls_cert) != bool(self.tls_key):
            raise Failure("--tls-cert and --tls-key belong together", None, Kind.WRONG)
        if not 0 <= self.port < 65536:
            raise Failure(f"--port {self.port} is no port", None, Kind.WRONG)


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::", "[::]")


def read_login(login_file: str | None, token_file: str | None) -> ConsoleLogin:
    """Return the logins of a file of lines USER:PASSWORD, and the token that is the first line of another file.

    Raises:
        Failure: a file cannot be read, is empty, or has a line that is no login.
    """
    users: dict[str, str] = {}
    for number, line in enumerate(_lines(login_file), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not colon or not user or not password:
            raise Failure(f"{login_file}:{number} is not USER:PASSWORD", None, Kind.WRONG)
        users[user] = password
    token = next(iter(_lines(token_file)), "").strip() or None
    if login_file is not None and not users:
        raise Failure(f"{login_file} has no user", "a line is USER:PASSWORD", Kind.WRONG)
    if token_file is not None and token is None:
        raise Failure(f"{token_file} has no token", "its first line is the token", Kind.WRONG)
    return ConsoleLogin(users, token)


def _lines(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(LOGIN_FILE_BYTES_MAX).splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise Failure(f"{path} cannot be read: {fault}", None, Kind.WRONG) from None
