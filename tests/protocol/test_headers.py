"""Headers of requests and responses, against golden bytes and Kafka's table of header versions."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from ottla.protocol.api import (
    APIS,
    ApiKey,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.protocol.errors import MalformedMessage
from tests.protocol.catalog import DATA


def test_header_versions_are_kafkas() -> None:
    for line in (DATA / "protocol_facts.txt").read_text().splitlines():
        kind, *words = line.split()
        if kind != "api":
            continue
        key, _, low, *headers = words
        for version, header in enumerate(headers, int(low)):
            assert f"{request_header_version(int(key), version)}/{response_header_version(int(key), version)}" == header


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ((ApiKey.HEARTBEAT, 3, 7, "cli"), "000c 0003 00000007 0003 636c69"),
        ((ApiKey.HEARTBEAT, 4, 7, "cli"), "000c 0004 00000007 0003 636c69 00"),
        ((ApiKey.HEARTBEAT, 4, -1, None), "000c 0004 ffffffff ffff 00"),
        ((ApiKey.API_VERSIONS, 3, 0, ""), "0012 0003 00000000 0000 00"),
        ((999, 0, 1, "x"), "03e7 0000 00000001 0001 78"),
        ((-1, 0, 1, "x"), "ffff 0000 00000001 0001 78"),
    ],
)
def test_request_header(header: tuple[int, int, int, str | None], data: str) -> None:
    frame = bytes.fromhex(data)
    assert encode_request_header(*header) == frame
    for buffer in (frame, memoryview(frame)):
        assert decode_request_header(buffer, 0, len(frame)) == (*header, len(frame))
    assert decode_request_header(b"??" + frame + b"body", 2, len(frame) + 6) == (*header, 2 + len(frame))


def test_unsupported_version_of_api_versions_can_still_be_read() -> None:
    """Its header must be readable, so that it can be answered in version 0."""
    frame = bytes.fromhex("0012 7fff 00000005 0001 78 00")
    assert decode_request_header(frame, 0, len(frame))[:4] == (18, 32767, 5, "x")


def test_tags_of_a_newer_client_are_skipped() -> None:
    frame = bytes.fromhex("000c 0004 00000007 0000 01 00 02 abcd") + b"body"
    assert frame[decode_request_header(frame, 0, len(frame))[4] :] == b"body"


def test_a_client_id_that_is_no_utf8_is_read_as_java_reads_it() -> None:
    frame = bytes.fromhex("000c 0003 00000007 0001 ff")
    assert decode_request_header(frame, 0, len(frame))[3:] == ("\ufffd", len(frame))


@pytest.mark.parametrize(
    "data",
    [
        "", "000c", "000c 0004 00000007", "000c 0004 00000007 0003 6363", "000c 0004 00000007 0003 636c69",
        "000c 0004 00000007 0000 01 00 7f", "000c 0004 00000007 0000 ffffffffff7f",
    ],
)  # fmt: skip
def test_broken_request_header(data: str) -> None:
    frame = bytes.fromhex(data)
    for buffer in (frame, frame + bytes(300)):
        with pytest.raises(MalformedMessage):
            decode_request_header(buffer, 0, len(frame))


def test_noise_is_refused_or_read() -> None:
    rng = Random(3)
    for _ in range(5_000):
        noise = bytes((0, rng.choice(list(APIS)), 0, rng.randrange(20))) + rng.randbytes(rng.randrange(30))
        with suppress(MalformedMessage):
            assert decode_request_header(noise, 0, len(noise))[4] <= len(noise)


def test_response_header() -> None:
    assert decode_response_header(b"\0\0\1\2x", 0, 5, False) == (258, 4)
    assert decode_response_header(b"\0\0\1\2\0x", 0, 6, True) == (258, 5)
    for broken in (b"", b"\0\0\1", b"\0\0\1\2", b"\0\0\1\2\1\0\7"):
        with pytest.raises(MalformedMessage):
            decode_response_header(broken, 0, len(broken), True)


def test_response_of_api_versions_is_never_flexible() -> None:
    """A client reads it before it knows what the broker understands (KIP-511)."""
    assert response_header_version(ApiKey.API_VERSIONS, 3) == 0
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
