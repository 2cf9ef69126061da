"""A session that ends by its time, or by another certificate, stops within a second at all of three brokers, in virtual time.

A delegation token ends open sessions too, with its own end. Who does not log in again has connections.max.reauth.ms; a credential that
is gone ends with that. Certificates are looked at in each handshake, and open connections go on, as in Kafka.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable

from ottla.local.certificates import Authority
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.wire import ChannelClosed
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient, ScramClient
from ottla.server.sasl.peer_login import PeerLogin
from ottla.server.sasl.scram import salted_password
from ottla.server.tls.contexts import client_context
from tests.server.tls.store_files import properties
from tests.server.tls.test_contexts import handshake
from tests.sim.cluster import BROKER_PORT, SimNode
from tests.sim.harness import APART, SimClusterHarness
from tests.sim.loop import run
from tests.sim.test_revocations import LIMIT_SECONDS, SCRAM_SHA_256, last_success

CLIENTS_PORT, SECURE_PORT = 9094, 9095
MECHANISM = "SCRAM-SHA-256"
SESSION_SECONDS, TOKEN_SECONDS = 5.0, 6.0
BROKER = 4
SASL = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,SECURE:SSL",
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "listener.name.clients.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="secret";',
    f"listener.name.clients.{MECHANISM.lower()}.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    f"listener.name.clients.{MECHANISM.lower()}.connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
    "delegation.token.secret.key": "key",
}


async def started(listener: str, port: int, settings: dict[str, str]) -> SimClusterHarness:
    """Each broker has one more listener."""
    harness = SimClusterHarness(APART, SASL | settings)
    for node in harness.cluster.brokers:
        name = node.host.name
        node.properties["listeners"] = f"PLAINTEXT://{name}:{BROKER_PORT},{listener}://{name}:{port}"
        node.properties["advertised.listeners"] = node.properties["listeners"]
    await harness.begin()
    return harness


class Sessions:
    """The channel of one client to each broker; a closed channel logs in again with the next request."""

    def __init__(self, harness: SimClusterHarness, mechanism: str, make: Callable[[], ClientExchange]) -> None:
        self._harness, self._mechanism, self._make = harness, mechanism, make
        self._open: dict[SimNode, Channel] = {}

    def channel(self, node: SimNode) -> Channel:
        world = self._harness.admin.world

        async def exchange(host: str) -> ClientExchange:
            return self._make()

        login = PeerLogin(self._mechanism, exchange, world.workers, world.clock)
        return Channel(world, node.host.name, CLIENTS_PORT, "client", PeerSecurity(login=login))

    async def goes_on(self, node: SimNode) -> bool:
        return await served(self._open.setdefault(node, self.channel(node)))

    async def logs_in(self, node: SimNode) -> bool:
        channel = self.channel(node)
        try:
            return await served(channel)
        finally:
            channel.close()


async def served(channel: Channel) -> bool:
    try:
        await channel.request(MetadataRequest(topics=[]))
    except (ChannelClosed, KafkaError):
        return False
    return True


async def token_of(harness: SimClusterHarness, lifetime_seconds: float) -> tuple[Sessions, bytes]:
    alice = Sessions(harness, "PLAIN", lambda: PlainClient("alice", "secret")).channel(harness.cluster.brokers[0])
    made = await alice.request(CreateDelegationTokenRequest(max_lifetime_ms=int(lifetime_seconds * 1000)))
    assert not made.error_code
    await asyncio.sleep(1)
    secret = base64.b64encode(made.hmac).decode()
    return Sessions(
        harness, MECHANISM, lambda: ScramClient(MECHANISM, made.token_id, secret, "c", token=True)
    ), made.hmac


def test_sessions_of_a_token_end_with_it_and_no_new_one_begins() -> None:
    async def main() -> float:
        harness = await started("CLIENTS", CLIENTS_PORT, {})
        sessions, _ = await token_of(harness, TOKEN_SECONDS)
        left = TOKEN_SECONDS - 2  # one second for the metadata, and one second for `last_success`
        return await last_success(harness, sessions.goes_on, asyncio.sleep(left))

    assert run(main()) < LIMIT_SECONDS


def test_a_token_that_its_owner_ends_logs_no_client_in() -> None:
    async def main() -> float:
        harness = await started("CLIENTS", CLIENTS_PORT, {})
        sessions, hmac = await token_of(harness, 600)
        alice = Sessions(harness, "PLAIN", lambda: PlainClient("alice", "secret")).channel(harness.cluster.brokers[0])
        return await last_success(harness, sessions.logs_in, alice.request(ExpireDelegationTokenRequest(hmac, -1)))

    assert run(main()) < LIMIT_SECONDS


def test_a_session_whose_credential_is_gone_ends_when_it_has_to_log_in_again() -> None:
    async def main() -> float:
        harness = await started("CLIENTS", CLIENTS_PORT, {})
        salted = salted_password("sha256", b"secret", bytes(16), 4096)
        added = ScramCredentialUpsertion("carol", SCRAM_SHA_256, 4096, bytes(16), salted)
        assert (
            not (await harness.admin.ask_any(AlterUserScramCredentialsRequest(upsertions=[added])))
            .results[0]
            .error_code
        )
        await asyncio.sleep(1)
        sessions = Sessions(harness, MECHANISM, lambda: ScramClient(MECHANISM, "carol", "secret", "c"))
        gone = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("carol", SCRAM_SHA_256)])
        return await last_success(harness, sessions.goes_on, harness.admin.ask_any(gone), seconds=SESSION_SECONDS + 3)

    assert run(main()) < SESSION_SECONDS + LIMIT_SECONDS


# -- Certificates --------------------------------------------------------------------------------------------------------

OLD, NEW = Authority.create("old CA"), Authority.create("new CA")
NODE_BEFORE, NODE_AFTER = OLD.issue("node", ["node"]), NEW.issue("node", ["node"])
PREFIX = "listener.name.secure.ssl."
TLS = {
    f"{PREFIX}client.auth": "required",
    f"{PREFIX}keystore.type": "PEM",
    f"{PREFIX}keystore.key": NODE_BEFORE.key_pem,
    f"{PREFIX}keystore.certificate.chain": NODE_BEFORE.chain_pem,
    f"{PREFIX}truststore.type": "PEM",
    f"{PREFIX}truststore.certificates": OLD.pem + NEW.pem,
}


def client(authority: Authority, trusted: str) -> ssl.SSLContext:
    issued = authority.issue("client", ["client"])
    stores = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": issued.key_pem,
        "ssl_keystore_certificate_chain": issued.chain_pem,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": trusted,
    }
    return client_context(properties(**stores)).context


def last_handshake(context: ssl.SSLContext, changes: dict[str, str]) -> float:
    def shakes(node: SimNode) -> bool:
        assert node.server is not None
        try:
            handshake(node.server._security.of_listeners["SECURE"].context, context, "node")
        except ssl.SSLError:
            return False
        return True

    async def succeeds(node: SimNode) -> bool:
        return shakes(node)

    async def main() -> float:
        harness = await started("SECURE", SECURE_PORT, TLS)
        rows = [AlterableConfig(name=PREFIX + name, value=value) for name, value in changes.items()]
        resources = [AlterConfigsResource(BROKER, str(node.number), rows) for node in harness.cluster.brokers]

        async def change() -> None:
            answer = await harness.admin.ask_any(IncrementalAlterConfigsRequest(resources))
            assert not any(row.error_code for row in answer.responses), answer

        return await last_success(harness, succeeds, change(), look_seconds=0.1)

    return run(main())


def test_a_client_whose_authority_is_out_of_the_trust_store_shakes_no_hand_any_more() -> None:
    assert last_handshake(client(OLD, OLD.pem), {"truststore.certificates": NEW.pem}) < LIMIT_SECONDS


def test_a_certificate_that_was_replaced_is_not_shown_any_more() -> None:
    """The client knows the old authority alone."""
    after = {"keystore.key": NODE_AFTER.key_pem, "keystore.certificate.chain": NODE_AFTER.chain_pem}
    assert last_handshake(client(OLD, OLD.pem), after) < LIMIT_SECONDS
