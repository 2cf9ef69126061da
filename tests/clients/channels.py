"""Ottla's channels, logged in at nodes by PLAIN or by a delegation token. Python's stock clients cannot use tokens."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient, ScramClient
from ottla.server.sasl.peer_login import PeerLogin
from ottla.server.world import RealWorld


@asynccontextmanager
async def channels(address: str) -> AsyncIterator[Channels]:
    """Yield a factory of channels, which log in at `address` unless a call names another one."""
    made = Channels(address, RealWorld(asyncio.get_running_loop()))
    try:
        yield made
    finally:
        for channel in made.open:
            channel.close()
        await made.real.close()


class Channels:
    def __init__(self, address: str, real: RealWorld) -> None:
        self.address = address
        self.real = real
        self.open: list[Channel] = []

    def plain(self, user: str) -> Channel:
        return self._channel(self.address, "PLAIN", lambda: PlainClient(user, f"planted-{user}"))

    def token(
        self, mechanism: str, made: CreateDelegationTokenResponse, secret: bytes | None = None, address: str = ""
    ) -> Channel:
        password = base64.b64encode(made.hmac if secret is None else secret).decode()
        return self._channel(
            address or self.address,
            mechanism,
            lambda: ScramClient(mechanism, made.token_id, password, "nonce", token=True),
        )

    def anonymous(self, address: str) -> Channel:
        return self._open(address, PLAINTEXT)

    def _channel(self, address: str, mechanism: str, make: Callable[[], ClientExchange]) -> Channel:
        async def exchange(host: str) -> ClientExchange:
            return make()

        login = PeerLogin(mechanism, exchange, self.real.workers, self.real.world.clock)
        return self._open(address, PeerSecurity(login=login))

    def _open(self, address: str, security: PeerSecurity) -> Channel:
        host, _, port = address.rpartition(":")
        channel = Channel(self.real.world, host, int(port), "test", security)
        self.open.append(channel)
        return channel
