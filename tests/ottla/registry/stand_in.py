"""A stand-in for a registry: it answers GET requests from a table, for tests of clients of registries."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ottla.registry.client import MEDIA_TYPE

NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def registry_of(rows: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Serve `rows` by their paths. Yield the address, and the requested paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = self.path in rows
            body = json.dumps(rows.get(self.path, NOT_FOUND)).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
