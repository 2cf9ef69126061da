"""SaslHandshake: choose the SASL mechanism.

v1 puts the exchange that follows into SaslAuthenticate (KIP-152). Never flexible (KAFKA-9577).
"""

from __future__ import annotations

from ottla.protocol.schema import int16, message, v


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str = ""


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: int16 = 0
    mechanisms: list[str] = v(default=[])
