"""The only door to the network: listening and connecting, with asyncio's transports and protocols on both sides."""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from collections.abc import Callable
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

#: Kafka's socket.listen.backlog.size; also what the kernel's somaxconn usually cuts it to.
LISTEN_BACKLOG = 50


class Server(Protocol):
    """A socket that is bound, and accepts connections from `begin` on; until then they are refused."""

    @property
    def port(self) -> int: ...
    async def begin(self) -> None: ...
    async def close(self) -> None: ...


class Network(Protocol):
    """Every socket that Ottla opens."""

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: ProtocolFactory,
        ssl: tls.SSLContext | None = None,
        backlog: int = LISTEN_BACKLOG,
    ) -> Server: ...

    async def connect(
        self, host: str, port: int, protocol_factory: ProtocolFactory, ssl: tls.SSLContext | None = None
    ) -> asyncio.Transport: ...


class TcpServer:
    """`port` is the one that was bound, also where 0 was asked for."""

    def __init__(self, server: asyncio.AbstractServer, sockets: list[socket.socket]) -> None:
        self._server = server
        self._sockets = sockets
        name = sockets[0].getsockname()
        self.port: int = name[1]

    async def begin(self) -> None:
        await self._server.start_serving()

    async def close(self) -> None:
        """Accept no more. (Waiting for the server to be closed would wait for its connections.)"""
        self._server.close()


class TcpNetwork:
    """TCP, over IPv4 and IPv6."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: ProtocolFactory,
        ssl: tls.SSLContext | None = None,
        backlog: int = LISTEN_BACKLOG,
    ) -> TcpServer:
        """An empty host is every address of the machine, with one socket for IPv4 and IPv6 where there is IPv6."""
        sock = _listening_socket(host, port)
        server = await self._loop.create_server(
            protocol_factory, sock=sock, ssl=ssl, backlog=backlog, start_serving=False
        )
        return TcpServer(server, [sock])

    async def connect(
        self, host: str, port: int, protocol_factory: ProtocolFactory, ssl: tls.SSLContext | None = None
    ) -> asyncio.Transport:
        server_hostname = host if ssl is not None else None
        transport, _ = await self._loop.create_connection(
            protocol_factory, host, port, ssl=ssl, server_hostname=server_hostname
        )
        return transport


def _listening_socket(host: str, port: int) -> socket.socket:
    if host:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    else:
        family, kind, number, address = socket.AF_INET6, socket.SOCK_STREAM, 0, ("::", port)
        if not socket.has_ipv6 or not socket.has_dualstack_ipv6():
            family, address = socket.AF_INET, ("0.0.0.0", port)
    try:
        return _bound(family, kind, number, address, dualstack=family == socket.AF_INET6 and not host)
    except OSError:
        if host or family == socket.AF_INET:
            raise
        # The kernel may speak IPv6 and yet have it switched off.
        return _bound(socket.AF_INET, kind, number, ("0.0.0.0", port), dualstack=False)


def _bound(family: int, kind: int, number: int, address: tuple[object, ...], dualstack: bool) -> socket.socket:
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dualstack else 1)
        sock.setblocking(False)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
