"""Frames as messages: the header of a request or response, and its body by our own codecs."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from ottla.protocol.api import (
    APIS,
    Api,
    ApiKey,
    decode_request_header,
    decode_response_header,
    response_header_version,
)
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.primitives import Buffer

#: API key, version and correlation id: each request begins with these.
REQUEST_START = Struct(">hhi")
CORRELATION_ID = Struct(">i")

_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class FrameMessage(NamedTuple):
    """A frame that has been read. Its header ends at `body_at`, and `version` is that of the body."""

    body: Any
    version: int
    body_at: int
    client_id: str | None = None

    def encoded(self, frame: Buffer) -> bytes:
        """Return the frame with its present body."""
        return bytes(frame[: self.body_at]) + encode(self.body, self.version)


def api_of_key(api_key: int, version: int) -> Api | None:
    """Return the API if our codecs have this version of it, or else None."""
    try:
        api = APIS[ApiKey(api_key)]
    except ValueError:
        return None
    return api if api.min_version <= version <= api.max_version else None


def api_name(api_key: int) -> str:
    """Return the name of an API. An unknown API has its number as its name."""
    try:
        return APIS[ApiKey(api_key)].name
    except ValueError:
        return f"Api{api_key}"


def read_request_message(frame: Buffer) -> FrameMessage:
    """Return a request.

    Raises:
        MalformedMessage: our codecs lack its API or version, or it is no request.
    """
    api_key, version, _, client_id, pos = decode_request_header(frame, 0, len(frame))
    return FrameMessage(_body(api_key, version, frame, pos, is_request=True), version, pos, client_id)


def read_response_message(api_key: int, version: int, frame: Buffer) -> FrameMessage:
    """Return the response to a request of this API and version.

    Raises:
        MalformedMessage: our codecs lack these, or it is no such response.
    """
    pos = response_body_at(api_key, version, frame)
    if api_key == ApiKey.API_VERSIONS and bytes(frame[pos : pos + 2]) == _UNSUPPORTED_VERSION:
        version = 0  # KIP-511: the client must be able to read it before it knows the node's versions
    return FrameMessage(_body(api_key, version, frame, pos, is_request=False), version, pos)


def response_body_at(api_key: int, version: int, frame: Buffer) -> int:
    """Return the position at which the header of a response ends. Raises MalformedMessage."""
    return decode_response_header(frame, 0, len(frame), response_header_version(api_key, version) == 1)[1]


def _body(api_key: int, version: int, frame: Buffer, pos: int, *, is_request: bool) -> Any:
    api = api_of_key(api_key, version)
    if api is None:
        raise MalformedMessage(f"{api_name(api_key)} v{version} is not known")
    return decode(api.request if is_request else api.response, frame, version, pos)
