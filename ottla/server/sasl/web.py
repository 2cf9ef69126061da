"""Requests to an identity provider over HTTP. They block, so they run on a worker."""

from __future__ import annotations

from http.client import HTTPException
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

#: The limit of an identity provider's response; a key set has a few KB.
ANSWER_BYTES_MAX = 1024 * 1024
TIMEOUT_S = 10.0


class _NoRedirect(HTTPRedirectHandler):
    """Rejects redirects, because secrets must only be sent to the configured host."""

    def redirect_request(self, *args: object) -> None:
        return None


def without_secrets(url: str) -> str:
    """The URL for logs: without user, password and query, which may have a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def fetch(
    url: str, body: bytes | None = None, headers: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> bytes:
    """Sends a GET, or a POST of `body`, and returns the response.

    Raises:
        OSError: there is no response with status 200.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise OSError(f"{without_secrets(url)} is no URL of HTTP")
    request = Request(url, body, {"Accept": "application/json", **(headers or {})})
    try:
        with build_opener(_NoRedirect).open(request, timeout=timeout_s) as response:
            data: bytes = response.read(ANSWER_BYTES_MAX + 1)
    except HTTPException as error:
        raise OSError(f"malformed response: {type(error).__name__}") from None
    if len(data) > ANSWER_BYTES_MAX:
        raise OSError(f"the response has more than {ANSWER_BYTES_MAX} bytes")
    return data
