"""One HTTP server: uvicorn with bounded connections, TLS, and a watch of its event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

import uvicorn

from ottla.client.failures import Failure, Kind
from ottla.server.listening import listening_sockets
from ottla.server.loop_watch import watched
from ottla.web.certificate import ServedCertificate
from ottla.web.connections import HEAD_BYTES_MAX, HttpConnections

#: uvicorn calls `on_tick` ten times a second.
LOOK_TICKS = 10


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on sockets that listen. `serve(sockets)` runs until `should_exit`."""

    def __init__(
        self,
        application: Any,
        connections_max: int,
        *,
        certificate: str | None = None,
        key: str | None = None,
        keep_alive_s: int = 5,
        stop_s: int = 5,
    ) -> None:
        """Take an application, and for TLS the PEM files that the options --cert and --key name.

        Raises:
            Failure: the files cannot be read, or do not belong together.
        """
        try:
            self._certificate = None if certificate is None else ServedCertificate(certificate, key)
        except OSError as fault:
            raise Failure(f"--cert and --key cannot be used: {fault}", None, Kind.WRONG) from None
        self.connections = HttpConnections(
            connections_max, None if self._certificate is None else self._certificate.context
        )
        super().__init__(
            uvicorn.Config(
                application,
                http=self.connections.protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                # The limit is one higher, because the newest connection is counted before an idle one is closed for it.
                limit_concurrency=connections_max + 1,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                timeout_keep_alive=keep_alive_s,
                timeout_graceful_shutdown=stop_s,
            )
        )

    def stop_on_signals(self) -> None:
        """Stop at SIGINT or SIGTERM. Call this in the running event loop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, setattr, self, "should_exit", True)

    async def serve(self, sockets: Sequence[socket.socket] | None = None) -> None:
        with watched():
            await super().serve(list(sockets or ()))

    async def on_tick(self, counter: int) -> bool:
        if counter % LOOK_TICKS == 0:
            now_s = time.monotonic()
            self.connections.look(now_s)
            if self._certificate is not None:
                self._certificate.look(now_s)
                self.connections.tls = self._certificate.context
        return bool(await super().on_tick(counter))


def listen(host: str, port: int, remedy: str) -> list[socket.socket]:
    """Bind the addresses of a host, which may be an IPv6 address in brackets. Port 0 means a free port.

    Raises:
        Failure: the port is in use, or this machine has none of the addresses. It has the remedy.
    """
    try:
        return listening_sockets(host.strip("[]"), port)
    except OSError as fault:
        raise Failure(f"cannot listen at {host}:{port}: {fault.strerror or fault}", remedy) from None
