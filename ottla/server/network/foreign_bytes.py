"""Why a connection is closed for the first bytes of a frame: the protocol of a non-Kafka peer, or a request that is too large."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import Buffer

#: Of a request of other APIs than these: twice what the largest legitimate one takes, an IncrementalAlterConfigs of 8 MB.
OTHER_REQUEST_BYTES_MAX = 16 * 1024 * 1024
#: What has records in it, or another request.
LARGE_REQUESTS = frozenset({ApiKey.PRODUCE, ApiKey.ENVELOPE})
#: First bytes -> the protocol whose first message begins with them.
SIGNS = (
    (b"\x16\x03", "a TLS handshake: the client wants SSL, but this listener is plaintext"),
    (b"\x80", "an SSLv2 handshake: the client wants SSL, but this listener is plaintext"),
    (b"GET ", "an HTTP request"),
    (b"POST", "an HTTP request"),
    (b"PUT ", "an HTTP request"),
    (b"HEAD", "an HTTP request"),
    (b"DELE", "an HTTP request"),
    (b"OPTI", "an HTTP request"),
    (b"CONN", "an HTTP request"),
    (b"PRI ", "an HTTP/2 request"),
    (b"SSH-", "an SSH client"),
    (b"\x04\x01", "a SOCKS request"),
    (b"\x05\x01\x00", "a SOCKS request"),
    (b"*1\r\n", "a Redis client"),
)


def describe_foreign_bytes(first_bytes: bytes, size: int, limit: int) -> str:
    """Return the reason to close a connection whose frame size is out of bounds."""
    for sign, what in SIGNS:
        if first_bytes.startswith(sign):
            return f"the first bytes look like {what}"
    if size < 0:
        return f"Invalid receive (size = {size})"
    return f"Invalid receive (size = {size} larger than {limit})"


def describe_foreign_response(first_bytes: bytes, size: int) -> str:
    """Return what a peer has done whose frame is larger than any response: web servers and proxies answer Kafka's requests with HTTP."""
    if first_bytes.startswith(b"HTTP/"):
        return "answered with HTTP, so it is no Kafka listener"
    return f"sent a frame of {size} bytes: is it a Kafka listener?"


def why_too_large(beginning: Buffer, size: int) -> str | None:
    """Return the reason to close a connection that begins to send a large request of another API than those with records in it."""
    if len(beginning) < 2 or (api_key := int.from_bytes(beginning[:2], "big")) in LARGE_REQUESTS:
        return None
    return f"Invalid receive (size = {size} larger than {OTHER_REQUEST_BYTES_MAX} for API key {api_key})"
