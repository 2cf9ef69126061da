"""The requests that an HTTP server accepts: those of its own pages and of programs, but none that a page of another site has
made.

400  a Host header of another name: DNS rebinding
403  another site has made the request: by Sec-Fetch-Site, or by Origin
415  a body of a type that pages of other sites may send without asking, such as text/plain
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

from ottla.server.hosts import LOOPBACK, is_known, is_loopback

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Links and bookmarks of other sites may open a page; no other request may come from another site.
NAVIGATION = "navigate"
PORTS = {"http": 80, "https": 443}


class HttpRules:
    """The check of requests by their headers."""

    def __init__(
        self, hosts: frozenset[str] | None, bodies: frozenset[str], *, is_tls: bool = False, url: str | None = None
    ) -> None:
        """Take the server's names as `hosts` (None: all names are accepted), the media types of requests as `bodies`, and the
        URL by which browsers reach it through a proxy as `url`.
        """
        self._hosts = hosts
        self._bodies = bodies
        self._schemes = ("https",) if is_tls else ("http", "https")
        self._own = None if url is None else _origin(url)

    @classmethod
    def at(cls, host: str, names: Collection[str], allowed: Collection[str], bodies: frozenset[str]) -> HttpRules:
        """Return the rules of a server that listens at `host`, and accepts its own names and the allowed ones.

        At an address of this machine alone, where no login is needed, pages of browsers are the danger.
        """
        if not allowed and not is_loopback(host):
            return cls(None, bodies)
        return cls(frozenset(name.lower() for name in (*LOOPBACK, host, *names, *allowed)), bodies)

    def problem(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and the reason if a request is rejected, or None. `headers` are by their names in lower case."""
        host = headers.get("host", "")
        if self._hosts is not None and not is_known(host, self._hosts):
            return 400, f"the name {host[:80]!r} is not one of this server: start it with --allowed-host NAME"
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", NAVIGATION)
        is_change = method not in ("GET", "HEAD")
        if site not in ("none", "same-origin") and (is_change or mode != NAVIGATION):
            return 403, "another site has made this request"
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return 403, "a page of another site has made this request"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if is_change and kind and kind not in self._bodies:
            return 415, "HTTP 415 Unsupported Media Type"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether the origin is the server's own.

        Behind a proxy that ends TLS, the connection has another scheme than the origin: so name and port must be those of Host.
        """
        found = _origin(origin)
        if found is None:
            return False
        return found == self._own or (found[0] in self._schemes and found == _origin(f"{found[0]}://{host}"))


def _origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, name and port, or None if the origin has none, such as "null"."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            return None
        return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]
    except ValueError:
        return None


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


class Ruled:
    """An application behind rules. `refusal` makes the response to a rejected request."""

    def __init__(self, app: App, rules: HttpRules, refusal: Callable[[int, str], App]) -> None:
        self._app = app
        self._rules = rules
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._rules.problem(scope["method"], headers_of(scope)) if scope["type"] == "http" else None
        await (self._app if problem is None else self._refusal(*problem))(scope, receive, send)
