"""Apache Iceberg's own server of its REST catalog, in a process of its own, and a proxy that loses responses."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.compat.lakehouse import jars
from tests.ports import free_base_port

MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
START_SECONDS_MAX = 60
#: Headers of requests that the proxy does not forward: it reads the responses, so that none may be compressed.
UNKEPT = frozenset({"host", "connection", "accept-encoding"})


class RestServer:
    """The server. Its commits are in a database that outlives it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._log = folder / "server.log"
        self.port = free_base_port()
        self._environment = os.environ | {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
            "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it answers. Raises TimeoutError."""
        command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", jars.server_classpath(), MAIN]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(f"{self.url}/v1/config", timeout=5).close()
                return
            time.sleep(0.1)
        raise TimeoutError(f"Iceberg's REST server does not answer: {self._log.read_text()[-1000:]}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def rest_server(folder: Path) -> Iterator[RestServer]:
    server = RestServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class Losses:
    """The number of the next commits that lose their response, and the number that have lost it."""

    def __init__(self) -> None:
        self.due = self.lost = 0


@contextmanager
def losing_way(server: RestServer, status: int) -> Iterator[tuple[Losses, str]]:
    """Run a proxy before the server. It forwards the commits that are `due`, then returns this status, or cuts the connection
    if it is 0.
    """
    losses = Losses()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kept = {name: value for name, value in self.headers.items() if name.lower() not in UNKEPT}
            request = urllib.request.Request(server.url + self.path, body or None, kept, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    code, data, kind = answer.status, answer.read(), answer.headers.get("Content-Type", "")
            except urllib.error.HTTPError as fault:
                code, data, kind = fault.code, fault.read(), fault.headers.get("Content-Type", "")
            is_commit = self.command == "POST" and "/tables/" in self.path
            if is_commit and losses.due and code < 300:
                losses.due -= 1
                losses.lost += 1
                if not status:
                    self.close_connection = True
                    return
                code, data, kind = (
                    status,
                    b'{"error": {"message": "lost", "type": "Lost", "code": %d}}' % status,
                    "application/json",
                )
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_HEAD = do_DELETE = _pass

        def log_message(self, format: str, *args: Any) -> None:
            """Do nothing, so that the output of a run has none of these lines."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield losses, f"http://127.0.0.1:{proxy.server_address[1]}"
    finally:
        proxy.shutdown()
        proxy.server_close()
