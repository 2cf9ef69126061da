"""An identity provider: its keys in a file, tokens that it signs, and an endpoint where clients ask for them (OIDC)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER, AUDIENCE = "https://idp.example", "kafka"
#: What a client of a cloud's metadata service has to send: librdkafka's 0126 leaves one of them out.
METADATA_QUERY = {"api-version", "resource", "client_id"}


class Identity:
    """Tokens for one subject."""

    def __init__(self, subject: str, keys: Path) -> None:
        self._subject = subject
        self._key = rsa.generate_private_key(65537, 2048)
        self.keys = keys
        row = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        keys.write_text(json.dumps({"keys": [{**row, "kid": "k"}]}))

    def token(self, lifetime_s: int = 3600) -> str:
        now_s = int(time.time())
        times = {"iat": min(now_s, now_s + lifetime_s - 1), "exp": now_s + lifetime_s}
        claims = {"sub": self._subject, "client_id": self._subject, "iss": ISSUER, "aud": AUDIENCE, **times}
        return jwt.encode(claims, self._key, "RS256", headers={"kid": "k"})

    def unsigned(self) -> str:
        """A token with the algorithm none."""
        now_s = int(time.time())
        return jwt.encode({"sub": self._subject, "iat": now_s, "exp": now_s + 3600}, None, "none")

    @contextmanager
    def endpoint(self) -> Iterator[str]:
        """Serves /token, /expired and /malformed; gives the address."""
        identity = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self._answer()

            def do_GET(self) -> None:
                if parse_qs(urlsplit(self.path).query).keys() >= METADATA_QUERY:
                    self._answer()
                else:
                    self.send_error(400)

            def _answer(self) -> None:
                tokens = {"/token": identity.token(), "/expired": identity.token(-60), "/malformed": "no.token"}
                found = tokens.get(urlsplit(self.path).path)
                if found is None:
                    self.send_error(404)
                    return
                body = json.dumps({"access_token": found, "token_type": "Bearer", "expires_in": 3600}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Tokens are no business of the console."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
