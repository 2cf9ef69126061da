"""Guess the protocol of a non-Kafka client from the first bytes that it sends, for the one line in the log."""

from __future__ import annotations

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
