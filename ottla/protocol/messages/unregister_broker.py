"""UnregisterBroker: forget a broker that will not come back (KIP-631)."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, message


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int32 = 0


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
