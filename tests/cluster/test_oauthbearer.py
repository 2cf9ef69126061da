"""Three nodes that log in to each other by OAUTHBEARER: an identity provider gives each of them tokens for its own assertions,
which are valid for seconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla.testing import Cluster
from tests.cluster.shared import STEADY
from tests.ports import free_ports

WAIT_S = 60
#: The lifetime of a token. Nodes log in again after 85 % of it.
TOKEN_S = 5
ISSUER, AUDIENCE = "https://idp", "kafka"
KEY = rsa.generate_private_key(65537, 2048)
NODES_KEY = rsa.generate_private_key(65537, 2048)
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


def token(subject: str, lifetime_s: int = TOKEN_S) -> str:
    now_s = int(time.time())
    claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + lifetime_s}
    return jwt.encode(claims, KEY, "RS256", headers={"kid": "1"})


class Provider(ThreadingHTTPServer):
    """An identity provider that exchanges assertions, which nodes have signed, for tokens, and counts the tokens by node."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.given: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Exchange(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        try:
            [assertion] = form["assertion"]
            claims = jwt.decode(assertion, NODES_KEY.public_key(), ["RS256"], audience=self.server.url)
        except (jwt.PyJWTError, KeyError):
            self.send_error(400)
            return
        self.server.given[claims["sub"]] += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": token(claims["sub"]), "expires_in": TOKEN_S}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def provider() -> Iterator[Provider]:
    with Provider() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def properties(directory: Path, idp: Provider, node: int) -> dict[str, str]:
    key = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    (directory / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "1", "use": "sig"}]}))
    (directory / "nodes-key.pem").write_bytes(
        NODES_KEY.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": MODULE,
        "listener.name.controller.oauthbearer.sasl.jaas.config": MODULE,
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "sasl.oauthbearer.token.endpoint.url": idp.url,
        "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.private.key.file": str(directory / "nodes-key.pem"),
        "sasl.oauthbearer.assertion.claim.aud": idp.url,
        "sasl.oauthbearer.assertion.claim.sub": f"node-{node}",
    }


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.02)


@pytest.mark.chaos
def test_nodes_go_on_with_new_tokens_and_clients_log_in_with_their_own(tmp_path: Path) -> None:
    ports = free_ports(3)
    cluster = Cluster(directory=str(tmp_path / "cluster"), min_insync_replicas="3", **STEADY)
    with provider() as idp:
        for number, port in zip(cluster.nodes, ports, strict=True):
            own = cluster._properties[number]
            listeners = f"{own['listeners']},SASL://127.0.0.1:{port}"
            own |= properties(tmp_path, idp, number) | {"listeners": listeners}
        with cluster:
            client = {
                "bootstrap.servers": f"127.0.0.1:{ports[0]}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (token("alice", 600), time.time() + 600),
            }
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.create_topics([NewTopic("t", 3, 3)])["t"].result(WAIT_S)
            failed: list[object] = []
            producer = Producer({**client, "acks": "all"})

            def produce() -> None:
                for number in range(30):
                    producer.produce("t", str(number), partition=number % 3, on_delivery=lambda e, _: failed.append(e))
                assert producer.flush(WAIT_S) == 0
                assert set(failed) == {None}

            produce()
            # By now all sessions that were open have ended, and each node has logged in again with newer tokens.
            before = Counter(idp.given)
            wait_for(lambda: all(idp.given[f"node-{number}"] >= before[f"node-{number}"] + 2 for number in (1, 2, 3)))
            produce()
            assert cluster.wait_isr("t") < WAIT_S
