"""The login of a channel at a SASL listener of another node, before its first request."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.server.clock import Clock
from ottla.server.network.channel_protocol import carried_out
from ottla.server.network.peer_security import LoginRejected, Send
from ottla.server.network.wire import Work
from ottla.server.sasl.client_exchange import ClientExchange, authenticate, choose_mechanism
from ottla.server.workers import Workers

log = logging.getLogger(__name__)

#: Nodes retry all the time, so the same failure is not logged more often than this.
LOG_INTERVAL_MS = 10_000

#: Makes the exchange for each login at a host, because it may have to fetch a token.
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
        await carried_out(choose_mechanism(self.mechanism), send)
        exchange = await self._exchange(host)
        return await carried_out(authenticate(exchange, version), send, self._work)

    def _work(self, work: Work) -> Awaitable[bytes | None]:
        return self._workers.run(work.run, work.argument)
