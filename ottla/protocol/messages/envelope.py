"""Envelope: a broker forwards a client's request to the controller (KIP-590)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16


@api_message(58)
class EnvelopeRequest:
    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


@api_message(58)
class EnvelopeResponse:
    response_data: bytes | None = None
    error_code: int16 = 0
