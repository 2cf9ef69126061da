"""Request and response headers; the API and its version decide the version of the header.

A request header has a client id (v1) and, for flexible versions of its API, tagged fields (v2); the client id keeps
its two-byte length, so that any version of ApiVersions can be read. A response header is the correlation id, with
tagged fields for flexible versions. Responses to ApiVersions never have tagged fields in the header, because the client
reads them before it knows the node's versions (KIP-511). Header v0, without a client id, was used by ControlledShutdown
alone, which Kafka 4.0 removed.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.primitives import Buffer, skip_tags

_request = Struct(">hhih")
_correlation = Struct(">i")
_NEVER = 32768

# First flexible version by API key, for the fast path; unknown keys are read as not flexible.
_FLEXIBLE_FROM = [_NEVER] * (max(APIS) + 1)
for _api in APIS.values():
    if _api.flexible_from is not None:
        _FLEXIBLE_FROM[_api.key] = _api.flexible_from


def request_header_version(api_key: int, api_version: int) -> int:
    return 2 if 0 <= api_key < len(_FLEXIBLE_FROM) and api_version >= _FLEXIBLE_FROM[api_key] else 1


def response_header_version(api_key: int, api_version: int) -> int:
    return 0 if api_key == ApiKey.API_VERSIONS else request_header_version(api_key, api_version) - 1


def decode_request_header(buf: Buffer, pos: int, end: int) -> tuple[int, int, int, str | None, int]:
    """API key, version, correlation id, client id, and the position of the body."""
    try:
        api_key, api_version, correlation_id, size = _request.unpack_from(buf, pos)
        pos += 10
        client_id = None
        if size >= 0:
            client_id = str(buf[pos : pos + size], "utf-8", "replace")  # as Java reads it
            pos += size
        if 0 <= api_key < len(_FLEXIBLE_FROM) and api_version >= _FLEXIBLE_FROM[api_key]:
            tags = buf[pos]
            pos += 1
            if tags:
                pos = skip_tags(buf, pos, end, tags)
    except (IndexError, struct_error) as error:
        raise MalformedMessage(f"request header: {error}") from error
    if pos > end:
        raise MalformedMessage("request header: cut short")
    return api_key, api_version, correlation_id, client_id, pos


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    text = b"" if client_id is None else client_id.encode()
    fixed = _request.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(text))
    return fixed + text + b"\0" if request_header_version(api_key, api_version) == 2 else fixed + text


def decode_response_header(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """Correlation id, and the position of the body."""
    try:
        (correlation_id,) = _correlation.unpack_from(buf, pos)
        pos += 4
        if flexible:
            pos = skip_tags(buf, pos + 1, end, buf[pos])
    except (IndexError, struct_error) as error:
        raise MalformedMessage(f"response header: {error}") from error
    if pos > end:
        raise MalformedMessage("response header: cut short")
    return correlation_id, pos
