"""What stands before each page: the Host header, the login, requests of other sites, and the headers that keep a browser safe.

400  a Host header of another name: DNS rebinding
401  no login, or a wrong one
403  a request that another site has made, or a change without the token of its form
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from ottla.console.options import Options

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Scripts, styles and pictures are files of the console; no page may frame it, and forms go nowhere else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # Other sites get no referrer. With no-referrer the console's own forms would have the Origin null, which is refused.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
COOKIE = "ottla_console"
FIELD = "csrf"
#: A wrong login is answered after this time, so that guessing takes long.
WRONG_LOGIN_S = 0.5
#: Links and bookmarks of other sites may lead to a page; nothing else may be asked for from there.
NAVIGATION = "navigate"


class Guard:
    """Serves `app` to those who may look."""

    def __init__(self, app: App, options: Options) -> None:
        self._app = app
        self._options = options
        self._hosts = options.host_names()
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        cookie = self._session(headers.get("cookie", ""))
        scope["ottla.session"] = session = cookie or secrets.token_urlsafe(24)
        scope["ottla.csrf"] = self.token(session)
        problem = await self._problem(scope, headers)
        added = list(HEADERS)
        if not scope["path"].startswith("/static/"):
            added.append((b"cache-control", b"no-store"))
        if cookie is None and problem is None:
            secure = "; Secure" if self._options.tls_cert else ""
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

    async def _problem(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            return 400, f"this console does not answer to the name {host[:80]!r}: start it with --allowed-host NAME"
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", NAVIGATION)
        is_change = scope["method"] not in ("GET", "HEAD")
        if site not in ("none", "same-origin") and (is_change or mode != NAVIGATION):
            return 403, "another site has made this request"
        origin = headers.get("origin")
        if is_change and origin is not None and origin != f"{self._options.scheme}://{host}":
            return 403, "a form of another site has made this request"
        if self._options.login.required and not self._is_logged_in(headers.get("authorization", "")):
            if "authorization" in headers:
                await asyncio.sleep(WRONG_LOGIN_S)
            return 401, "log in: this console asks for a user and a password, or a token as the password"
        return None

    def _is_logged_in(self, authorization: str) -> bool:
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._options.login.accepts_token(rest.strip())
        if scheme.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except ValueError:
            return False
        return self._options.login.accepts(user, password)


def host_name(host: str) -> str:
    """Return the name of a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def is_right_token(given: str, scope: Scope) -> bool:
    return hmac.compare_digest(given.encode(), str(scope["ottla.csrf"]).encode())


async def refuse(send: Send, status: int, text: str) -> None:
    headers: Iterable[tuple[bytes, bytes]] = [(b"content-type", b"text/plain; charset=utf-8")]
    if status == 401:
        headers = [*headers, (b"www-authenticate", b'Basic realm="ottla console", charset="UTF-8"')]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
