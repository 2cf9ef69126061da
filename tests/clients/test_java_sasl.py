"""Apache Kafka's own clients and tools log in, re-authenticate, and use delegation tokens; skipped with the reason where Java is missing."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.sasl_node import MECHANISMS, SaslNode, started
from tests.needs import needs_apache_kafka
from tests.ports import free_ports
from tools.apache_kafka import ToolSession

pytestmark = [needs_apache_kafka, pytest.mark.timeout(300)]

KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{KAFKA}.plain.PlainLoginModule required"
SCRAM = f"{KAFKA}.scram.ScramLoginModule required"
OAUTH = f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required"
SESSION_MS = 2_000


@pytest.fixture(scope="module")
def admin() -> str:
    """Return the address of the node's metrics."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def node(admin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    more = {
        "ottla.admin.listener": admin,
        "delegation.token.secret.key": "planted-key",
        "connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.clients.sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "listener.name.clients.oauthbearer.sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="node";',
    }
    with started(tmp_path_factory.mktemp("java"), more) as made:
        yield made


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    with ToolSession() as session:
        yield session


def properties(directory: Path, mechanism: str, jaas: str) -> str:
    file = directory / f"{mechanism}.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return str(file)


def sessions(admin: str) -> list[int]:
    """Return the number of renewed sessions, and of connections that were closed because their sessions had ended."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=30) as response:
        text = response.read().decode()
    names = ("successful_reauthentication", "expired_connections_killed")
    return [int(float(re.findall(rf'_{name}\w*{{listener="CLIENTS"}} (\S+)', text)[0])) for name in names]


@pytest.mark.compat
@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", f'{PLAIN} username="alice" password="planted-alice";'),
        ("SCRAM-SHA-256", f'{SCRAM} username="bob" password="planted-bob";'),
        ("SCRAM-SHA-512", f'{SCRAM} username="bob" password="planted-bob";'),
        ("OAUTHBEARER", f'{OAUTH} unsecuredLoginStringClaim_sub="zoe";'),
    ],
)
def test_the_tools_log_in(node: SaslNode, tools: ToolSession, tmp_path: Path, mechanism: str, jaas: str) -> None:
    config = properties(tmp_path, mechanism, jaas)
    done = tools.run("kafka-topics", "--bootstrap-server", node.sasl, "--command-config", config, "--list")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.compat
def test_a_wrong_password_is_kafkas_error(node: SaslNode, tools: ToolSession, tmp_path: Path) -> None:
    config = properties(tmp_path, "SCRAM-SHA-256", f'{SCRAM} username="bob" password="planted-wrong";')
    done = tools.run("kafka-topics", "--bootstrap-server", node.sasl, "--command-config", config, "--list")
    assert done.returncode == 1
    assert "SaslAuthenticationException: Authentication failed during authentication due to invalid credentials" in (
        done.stdout + done.stderr
    )


@pytest.mark.compat
def test_a_producer_goes_on_over_several_sessions_on_its_connections(
    node: SaslNode, admin: str, tools: ToolSession, tmp_path: Path
) -> None:
    before = sessions(admin)
    config = properties(tmp_path, "SCRAM-SHA-512", f'{SCRAM} username="bob" password="planted-bob";')
    rate, seconds = 100, 4 * SESSION_MS // 1000
    done = tools.run(
        "kafka-producer-perf-test", "--topic", "sessions", "--num-records", str(rate * seconds), "--record-size", "10",
        "--throughput", str(rate), "--bootstrap-server", node.sasl, "--command-config", config,
    )  # fmt: skip
    assert done.returncode == 0 and f"{rate * seconds} records sent" in done.stdout, done.stdout + done.stderr
    # The client logs in again at 85 to 95 % of a session: if the node stands still for so long, one of the four sessions ends.
    renewed, ended = (now - then for now, then in zip(sessions(admin), before, strict=True))
    assert renewed >= 2 and ended <= 1, (renewed, ended)


@pytest.mark.compat
def test_a_token_of_the_tool_logs_in(node: SaslNode, tools: ToolSession, tmp_path: Path) -> None:
    config = properties(tmp_path, "PLAIN", f'{PLAIN} username="alice" password="planted-alice";')
    made = tools.run(
        "kafka-delegation-tokens", "--bootstrap-server", node.sasl, "--command-config", config, "--create",
        "--max-life-time-period", "-1", "--renewer-principal", "User:admin",
    ).stdout  # fmt: skip
    token = re.search(r"(?P<id>\S{22})\s+(?P<hmac>\S{86}==)\s+User:alice", made)
    assert token is not None, made
    jaas = f'{SCRAM} username="{token["id"]}" password="{token["hmac"]}" tokenauth="true";'
    with_token = properties(tmp_path, "SCRAM-SHA-256", jaas)
    done = tools.run("kafka-topics", "--bootstrap-server", node.sasl, "--command-config", with_token, "--list")
    assert done.returncode == 0, done.stdout + done.stderr
    assert token["hmac"] not in node.log.read_text()
