"""A client that sends exactly the given request, in any version: for requests that no real client would send."""

from __future__ import annotations

import socket
import struct
from typing import Any

from ottla.protocol.api import APIS, ApiKey, request_header_version, response_header_version
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.schema import info_of

TIMEOUT_S = 10.0


class Wire:
    """A connection."""

    def __init__(self, port: int, host: str = "127.0.0.1", client_id: str = "wire") -> None:
        self.client_id = client_id
        self.correlation_id = 0
        self.sock = socket.create_connection((host, port), timeout=TIMEOUT_S)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def request(self, request: Any, version: int | None = None) -> Any:
        api_key, version = self.send(request, version)
        return self.receive(api_key, version)

    def send(self, request: Any, version: int | None = None) -> tuple[ApiKey, int]:
        api_key = ApiKey(info_of(type(request)).key or 0)
        if version is None:
            version = APIS[api_key].max_version
        self.sock.sendall(self.frame(request, api_key, version))
        return api_key, version

    def frame(self, request: Any, api_key: ApiKey, version: int) -> bytes:
        self.correlation_id += 1
        client_id = self.client_id.encode()
        head = struct.pack(">hhih", api_key, version, self.correlation_id, len(client_id)) + client_id
        if request_header_version(api_key, version) == 2:
            head += b"\0"
        parts: list[Any] = []
        encoder(type(request), version)(request, parts)
        body = b"".join(bytes(part) for part in parts)
        return struct.pack(">i", len(head) + len(body)) + head + body

    def send_raw(self, frame: bytes) -> None:
        self.sock.sendall(frame)

    def receive(self, api_key: ApiKey, version: int) -> Any:
        frame = self.receive_frame()
        if frame is None:
            raise ConnectionResetError("the connection was closed")
        pos = 5 if response_header_version(api_key, version) == 1 else 4
        response, end = decoder(APIS[api_key].response, version)(bytearray(frame), pos, len(frame))
        assert end == len(frame), "bytes behind the response"
        return response

    def receive_frame(self) -> bytes | None:
        """Return the next frame; None if the server has closed the connection."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def closed_by_server(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, n: int) -> bytes | None:
        data = bytearray()
        while len(data) < n:
            try:
                chunk = self.sock.recv(n - len(data))
            except ConnectionError:
                return None
            if not chunk:
                return None
            data += chunk
        return bytes(data)
