"""A network in which some addresses are reached by way of others. For tests: what stands at the other address can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ottla.server.transport import DEFAULT_OPTIONS, Network, ProtocolFactory, Server, SocketOptions

Address = tuple[str, int]


class Detours:
    """A network that connects to the addresses in `ways` instead; listening is unchanged."""

    def __init__(self, network: Network, ways: Mapping[Address, Address]) -> None:
        self._network = network
        self._ways = dict(ways)

    @property
    def room(self) -> int:
        return self._network.room

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: ProtocolFactory,
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> Server:
        return await self._network.listen(host, port, protocol_factory, options)

    async def connect(self, host: str, port: int, protocol_factory: ProtocolFactory) -> asyncio.Transport:
        host, port = self._ways.get((host, port), (host, port))
        return await self._network.connect(host, port, protocol_factory)


def read_ways(text: str) -> dict[Address, Address]:
    """Parses `HOST:PORT=HOST:PORT,...`. Raises ValueError for other text."""
    ways = {}
    for pair in filter(None, text.split(",")):
        target, _, way = pair.partition("=")
        ways[_address(target)] = _address(way)
    return ways


def _address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)
