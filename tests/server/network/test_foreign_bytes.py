"""A non-Kafka client is described by the protocol that its first bytes look like."""

from __future__ import annotations

import pytest

from ottla.server.network.limits import (
    LARGE_REQUESTS,
    OTHER_REQUEST_BYTES_MAX,
    describe_foreign_bytes,
    why_too_large,
)
from ottla.server.network.wire import describe_foreign_response

LIMIT = 100 << 20


@pytest.mark.parametrize(
    ("first_bytes", "what"),
    [
        (b"\x16\x03\x01\x02\x00", "a TLS handshake"),
        (b"GET / HTTP/1.1", "an HTTP request"),
        (b"PRI * HTTP/2.0", "an HTTP/2 request"),
        (b"SSH-2.0-OpenSSH", "an SSH client"),
        (b"\x05\x01\x00", "a SOCKS request"),
        (b"*1\r\n$4\r\nPING", "a Redis client"),
    ],
)
def test_a_protocol_that_is_known_by_its_first_bytes_is_named(first_bytes: bytes, what: str) -> None:
    assert what in describe_foreign_bytes(first_bytes, int.from_bytes(first_bytes[:4], "big"), LIMIT)


def test_a_web_server_that_answers_a_client_is_named() -> None:
    assert (
        describe_foreign_response(b"HTTP/1.1 400 Bad", 0x48545450) == "answered with HTTP, so it is no Kafka listener"
    )
    assert "frame of 2147483647 bytes" in describe_foreign_response(b"\x7f\xff\xff\xff", 2**31 - 1)


def test_any_other_size_out_of_bounds_reads_as_in_kafka() -> None:
    assert describe_foreign_bytes(b"\xff\xff\xff\xff", -1, LIMIT) == "Invalid receive (size = -1)"
    assert (
        describe_foreign_bytes(b"\x7f\xff\xff\xff", 2**31 - 1, LIMIT)
        == f"Invalid receive (size = {2**31 - 1} larger than {LIMIT})"
    )


def test_a_large_request_without_records_is_refused_by_its_first_bytes() -> None:
    size = OTHER_REQUEST_BYTES_MAX + 1
    assert (
        why_too_large(b"\0\x09\0\x08", size) == f"Invalid receive (size = {size} larger than {size - 1} for API key 9)"
    )
    for api_key in LARGE_REQUESTS:
        assert why_too_large(api_key.to_bytes(2, "big"), size) is None
    assert why_too_large(b"\0", size) is None, "its API is not known yet"
