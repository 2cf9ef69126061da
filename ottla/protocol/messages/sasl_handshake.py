"""SaslHandshake: choose the SASL mechanism.

v1 puts the exchange that follows into SaslAuthenticate (KIP-152). Never flexible (KAFKA-9577).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, v


@api_message(17)
class SaslHandshakeRequest:
    mechanism: str = ""


@api_message(17)
class SaslHandshakeResponse:
    error_code: int16 = 0
    mechanisms: list[str] = v(default=[])
