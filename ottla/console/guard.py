"""The checks before each page: the Host header, the login, requests of other sites, and the headers that keep a browser safe.

400, 403, 415    a request of another site (ottla/web/rules.py)
401              no login, or a wrong one
403              a change without the token of its form
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, MutableMapping
from typing import Any

from ottla.console.options import ConsoleOptions
from ottla.console.roles import ConsoleUser, Role
from ottla.web.rules import App, HttpRules, Receive, Scope, Send, headers_of

#: Scripts, styles and pictures are files of the console; no page may frame it, and forms go nowhere else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # Other sites get no referrer. With no-referrer the console's own forms would have the Origin null, which is rejected.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
COOKIE = "ottla_console"
FIELD = "csrf"
#: A wrong login is answered after this time, so that guessing passwords takes long.
WRONG_LOGIN_S = 0.5
#: The body of a posted form, by its media type.
FORMS = frozenset({"application/x-www-form-urlencoded"})


class Guard:
    """Serves `app` to users who may use it."""

    def __init__(self, app: App, options: ConsoleOptions) -> None:
        self._app = app
        self._options = options
        self._rules = HttpRules(options.host_names(), FORMS, is_tls=bool(options.cert), url=options.url)
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        cookie = self._session(headers.get("cookie", ""))
        scope["ottla.session"] = session = cookie or secrets.token_urlsafe(24)
        scope["ottla.csrf"] = self.token(session)
        problem = self._rules.problem(scope["method"], headers)
        if problem is None:
            problem = await self._log_in(scope, headers.get("authorization"))
        added = list(HEADERS)
        if not scope["path"].startswith("/static/"):
            added.append((b"cache-control", b"no-store"))
        if cookie is None and problem is None:
            secure = "; Secure" if self._options.is_reached_by_tls else ""
            added.append((b"set-cookie", f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict{secure}".encode()))

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        if problem is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await refuse(send_with_headers, *problem)

    def token(self, session: str) -> str:
        """Return the token that the forms of a session carry."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def _session(self, cookies: str) -> str | None:
        for part in cookies.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE and value:
                return value[:128]
        return None

    async def _log_in(self, scope: Scope, authorization: str | None) -> tuple[int, str] | None:
        """Find the user of a request. If a login is required and missing or wrong, return the status and the reason."""
        if not self._options.login.required:
            scope["ottla.user"] = ConsoleUser("", Role.ADMINISTRATOR)
            return None
        user = None if authorization is None else self._user_of(authorization)
        if user is not None:
            scope["ottla.user"] = user
            return None
        if authorization is not None:
            await asyncio.sleep(WRONG_LOGIN_S)
        return 401, "log in: this console asks for a user and a password, or a token as the password"

    def _user_of(self, authorization: str) -> ConsoleUser | None:
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._options.login.user_of_token(rest.strip())
        if scheme.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except ValueError:
            return None
        return self._options.login.user_of(name, password)


def is_right_token(given: str, scope: Scope) -> bool:
    return hmac.compare_digest(given.encode(), str(scope["ottla.csrf"]).encode())


async def refuse(send: Send, status: int, text: str) -> None:
    headers: Iterable[tuple[bytes, bytes]] = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == 401:
        headers = [*headers, (b"www-authenticate", b'Basic realm="ottla console", charset="UTF-8"')]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
