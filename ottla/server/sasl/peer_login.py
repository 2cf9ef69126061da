"""The login of a channel at a SASL listener of another node, before its first request."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.server.clock import Clock
from ottla.server.network.peer_security import LoginRejected, Send
from ottla.server.sasl.client_exchange import ClientExchange
from ottla.server.workers import Workers

log = logging.getLogger(__name__)

#: Nodes try again and again, so the same failure is not logged more often.
LOG_INTERVAL_MS = 10_000

#: Makes the exchange of each login at a host; a token may have to be fetched for it.
Exchanges: TypeAlias = Callable[[str], Awaitable[ClientExchange]]


class PeerLogin:
    """The mechanism and the credentials of this node."""

    def __init__(self, mechanism: str, exchange: Exchanges, workers: Workers, clock: Clock) -> None:
        self.mechanism = mechanism
        self._exchange = exchange
        self._workers = workers
        self._clock = clock
        self._logged_ms = -LOG_INTERVAL_MS

    async def log_in(self, host: str, where: str, send: Send, version: int) -> int:
        """Log the same failure every ten seconds at most."""
        try:
            return await self._log_in(host, send, version)
        except LoginRejected as refused:
            now_ms = self._clock.mono_ms()
            if now_ms - self._logged_ms >= LOG_INTERVAL_MS:
                self._logged_ms = now_ms
                log.error("Login at %s by %s failed: %s", where, self.mechanism, refused)
            raise

    async def _log_in(self, host: str, send: Send, version: int) -> int:
        shaken = await send(SaslHandshakeRequest(mechanism=self.mechanism), APIS[ApiKey.SASL_HANDSHAKE], 1)
        assert isinstance(shaken, SaslHandshakeResponse)
        if shaken.error_code != ErrorCode.NONE:
            raise LoginRejected(
                f"{ErrorCode(shaken.error_code).name}, it enables {', '.join(shaken.mechanisms) or 'no mechanism'}"
            )
        exchange = await self._exchange(host)
        token, lifetime_ms = await self._answer(exchange, b""), 0
        while token is not None:
            response = await send(SaslAuthenticateRequest(auth_bytes=token), APIS[ApiKey.SASL_AUTHENTICATE], version)
            assert isinstance(response, SaslAuthenticateResponse)
            if response.error_code != ErrorCode.NONE:
                raise LoginRejected(response.error_message or ErrorCode(response.error_code).name)
            lifetime_ms, challenge = response.session_lifetime_ms, bytes(response.auth_bytes)
            token = await self._answer(exchange, challenge)
        return lifetime_ms

    async def _answer(self, exchange: ClientExchange, challenge: bytes) -> bytes | None:
        if exchange.is_slow:
            return await self._workers.run(exchange.answer, challenge)
        return exchange.answer(challenge)
