"""UnregisterBroker: forget a broker that will not come back (KIP-631)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32


@api_message(64)
class UnregisterBrokerRequest:
    broker_id: int32 = 0


@api_message(64)
class UnregisterBrokerResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
