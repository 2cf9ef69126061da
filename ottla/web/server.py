"""One HTTP server: uvicorn with bounded connections, TLS, and the watch of its event loop."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import uvicorn

from ottla.server.loop_watch import watched
from ottla.web.certificate import ServedCertificate
from ottla.web.connections import HEAD_BYTES_MAX, HttpConnections

#: uvicorn calls `on_tick` ten times a second.
LOOK_TICKS = 10


class HttpServer(uvicorn.Server):
    """Serves an ASGI application at sockets that listen. `serve(sockets)` runs until `should_exit`."""

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
        """Take an application, and where TLS is served files of PEM.

        Raises:
            OSError: they cannot be read, or do not belong together.
        """
        self._certificate = None if certificate is None else ServedCertificate(certificate, key)
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
                # The limit is one more, because the newest connection is counted before a waiting one makes room for it.
                limit_concurrency=connections_max + 1,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                timeout_keep_alive=keep_alive_s,
                timeout_graceful_shutdown=stop_s,
            )
        )

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
