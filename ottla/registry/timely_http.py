"""HTTP requests with a deadline.

`urllib` starts its timeout again with each byte, so that a server that sends one byte a second holds its caller for ever. Here
one deadline is for the whole connection: connecting, TLS, the request and the complete response.
"""

from __future__ import annotations

import http.client
import io
import ssl
import time
import urllib.request
from typing import Any


class _TimelySocket:
    """A connected socket. All its reads together end at a deadline."""

    def __init__(self, connected: Any, ends_s: float) -> None:
        self._socket = connected
        self._ends_s = ends_s

    def sendall(self, data: Any) -> None:
        self._socket.settimeout(self._left_s())
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the reading side, which is all that `http.client` needs."""
        assert mode == "rb"
        return io.BufferedReader(_TimelyReads(self._socket.makefile("rb", buffering=0), self))

    def before_read(self) -> None:
        self._socket.settimeout(self._left_s())

    def close(self) -> None:
        self._socket.close()

    def _left_s(self) -> float:
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("its answer takes too long")
        return left_s


class _TimelyReads(io.RawIOBase):
    def __init__(self, reads: Any, owner: _TimelySocket) -> None:
        self._reads = reads
        self._owner = owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._owner.before_read()
        count: int | None = self._reads.readinto(buffer)
        return count

    def close(self) -> None:
        self._reads.close()
        super().close()


class _Http(http.client.HTTPConnection):
    def connect(self) -> None:
        ends_s = time.monotonic() + float(self.timeout or 0)
        super().connect()
        self.sock: Any = _TimelySocket(self.sock, ends_s)


class _Https(http.client.HTTPSConnection):
    def connect(self) -> None:
        ends_s = time.monotonic() + float(self.timeout or 0)
        super().connect()
        self.sock: Any = _TimelySocket(self.sock, ends_s)


class TimelyHttp(urllib.request.HTTPHandler):
    """Handles urllib's http. `timeout` is for the whole response."""

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_Http, request)


class TimelyHttps(urllib.request.HTTPSHandler):
    """Handles urllib's https. `timeout` is for the whole response."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._tls = tls

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_Https, request, context=self._tls)
