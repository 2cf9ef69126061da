"""The login of a client of registries: it may be in a file, and is never sent to an address that a registry names."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ottla.registry.client import RegistryClient, RegistryFailed


@contextmanager
def server(location: str | None) -> Iterator[tuple[str, list[str | None]]]:
    """A registry that redirects clients, or has no subjects, and the Authorization headers that it got."""
    got: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("Authorization"))
            self.send_response(200 if location is None else 307)
            if location is not None:
                self.send_header("Location", location)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *arguments: object) -> None:
            return

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", got
    finally:
        made.shutdown()
        made.server_close()


def test_a_login_stands_in_a_file_and_does_not_follow_a_redirect(tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("# of the registry\nschema.registry.basic.auth.user.info=alice:a:b\n")
    with server(None) as (there, got_there):
        client = RegistryClient.of(there, str(file))
        assert client.subjects() == []
        assert got_there == ["Basic " + base64.b64encode(b"alice:a:b").decode()]
        with server(there) as (url, got), pytest.raises(RegistryFailed, match="307"):
            RegistryClient.of(url, str(file)).subjects()
        assert (len(got), len(got_there)) == (1, 1)
    file.write_text("user=alice\n")
    with pytest.raises(ValueError, match="user is none of"):
        RegistryClient.of("http://x", str(file))
