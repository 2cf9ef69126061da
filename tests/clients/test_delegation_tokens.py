"""Delegation tokens over the wire: a user makes them, a client with the secret uses them, the owner ends them, and those
concerned can describe them.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.errors import FAILED
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.shared_structs import TokenPrincipal
from ottla.server.network.client import Channel
from ottla.server.network.wire import ChannelClosed
from ottla.server.sasl.delegation_tokens import hmac_of
from tests.clients.channels import channels
from tests.clients.sasl_node import PLAIN_LOGIN, SaslNode, started
from tests.ottla.conftest import Cli

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
#: The lifetime of a token whose end is waited for. On a busy machine a login with it takes seconds.
LIFETIME_MS = 6_000
HOUR_MS = 3_600_000
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def sasl_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    with started(tmp_path_factory.mktemp("tokens"), {"delegation.token.secret.key": "planted-key"}) as made:
        yield made
    assert "planted-key" not in made.log.read_text()


async def create(channel: Channel, lifetime_ms: int = -1, **owner: str) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        renewers=[TokenPrincipal("User", "admin")], max_lifetime_ms=lifetime_ms, **owner
    )
    response: CreateDelegationTokenResponse = await channel.request(request)
    return response


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_token_logs_in_until_it_is_expired(sasl_node: SaslNode, mechanism: str) -> None:
    async with channels(sasl_node.sasl) as to:
        alice = to.plain("alice")
        made = await create(alice)
        assert made.error_code == 0 and (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")
        with_token = to.token(mechanism, made)
        assert (await with_token.request(MetadataRequest(topics=[]))).error_code == 0
        # A client that has logged in by a token can neither make nor see tokens.
        for request in (CreateDelegationTokenRequest(), DescribeDelegationTokenRequest(owners=None)):
            response = await with_token.request(request)
            assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for request in (RenewDelegationTokenRequest(made.hmac, -1), ExpireDelegationTokenRequest(made.hmac, -1)):
            assert (await with_token.request(request)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (await alice.request(ExpireDelegationTokenRequest(made.hmac, -1))).error_code == 0
        with pytest.raises(ChannelClosed, match="due to invalid credentials"):
            await to.token(mechanism, made).request(MetadataRequest(topics=[]))


@pytest.mark.chaos
async def test_the_session_of_a_token_ends_with_the_token(sasl_node: SaslNode) -> None:
    async with channels(sasl_node.sasl) as to:
        made = await create(to.plain("alice"), LIFETIME_MS)
        channel = to.token("SCRAM-SHA-256", made)
        await channel.request(MetadataRequest(topics=[]))
        await asyncio.sleep(max(0.0, made.max_timestamp_ms / 1000 - time.time()) + 0.1)
        with pytest.raises(ChannelClosed, match="due to invalid credentials"):
            await channel.request(MetadataRequest(topics=[]))


async def test_who_does_not_have_the_secret_is_refused(sasl_node: SaslNode) -> None:
    async with channels(sasl_node.sasl) as to:
        made = await create(to.plain("alice"))
        with pytest.raises(ChannelClosed, match="due to invalid credentials"):
            await to.token("SCRAM-SHA-256", made, b"another secret").request(MetadataRequest(topics=[]))
        made.token_id = "no-such-token"
        with pytest.raises(ChannelClosed, match="due to invalid credentials"):
            await to.token("SCRAM-SHA-256", made).request(MetadataRequest(topics=[]))
        assert base64.b64encode(made.hmac).decode() not in sasl_node.log.read_text()


async def test_clients_of_the_first_versions_make_and_see_tokens_without_a_requester(sasl_node: SaslNode) -> None:
    """Before the fix these responses could not be encoded, so that the connection was closed; the fuzzer found it."""
    async with channels(sasl_node.sasl) as to:
        alice, anonymous = to.plain("alice"), to.anonymous(sasl_node.plaintext)
        for version in (1, 2):
            made = await alice.request(CreateDelegationTokenRequest(), version)
            assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "")
            described = await alice.request(DescribeDelegationTokenRequest(owners=None), version)
            assert made.token_id in [token.token_id for token in described.tokens]
            refused = await anonymous.request(CreateDelegationTokenRequest(), version)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_owners_and_renewers_see_and_renew_a_token(sasl_node: SaslNode) -> None:
    async with channels(sasl_node.sasl) as to:
        alice, admin, bob = (to.plain(user) for user in ("alice", "admin", "bob"))
        made = await create(alice)
        for channel in (alice, admin):
            described = await channel.request(DescribeDelegationTokenRequest(owners=[TokenPrincipal("User", "alice")]))
            [token] = [each for each in described.tokens if each.token_id == made.token_id]
            assert (token.hmac, token.max_timestamp, token.renewers[0].principal_name) == (
                made.hmac,
                made.max_timestamp_ms,
                "admin",
            )
        renewed = await admin.request(RenewDelegationTokenRequest(made.hmac, HOUR_MS))
        assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
        assert (await bob.request(RenewDelegationTokenRequest(made.hmac, -1))).error_code == (
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        )
        assert (await alice.request(DescribeDelegationTokenRequest(owners=[]))).tokens == []
        for_bob = await create(alice, owner_principal_type="User", owner_principal_name="bob")
        described = await alice.request(DescribeDelegationTokenRequest([TokenPrincipal("User", "alice")]))
        assert for_bob.token_id in [token.token_id for token in described.tokens], "the requester finds it as its own"
        nobodys = await alice.request(RenewDelegationTokenRequest(b"x", -1))
        assert (nobodys.error_code, nobodys.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


async def test_a_client_that_is_not_authenticated_gets_no_token(sasl_node: SaslNode) -> None:
    async with channels(sasl_node.sasl) as to:
        refused = await create(to.anonymous(sasl_node.plaintext))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (refused.principal_name, refused.hmac, refused.max_timestamp_ms) == ("ANONYMOUS", b"", -1)


async def test_a_node_without_a_key_has_no_tokens(tmp_path: Path) -> None:
    with started(tmp_path, {}) as node:
        async with channels(node.sasl) as to:
            alice = to.plain("alice")
            assert (await create(alice)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            described = await alice.request(DescribeDelegationTokenRequest(owners=None))
            assert described.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_with_an_authorizer_others_need_a_permission(tmp_path: Path) -> None:
    authorizer = {
        "delegation.token.secret.key": "planted-key",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with started(tmp_path, authorizer) as node:
        async with channels(node.sasl) as to:
            alice, bob, admin = (to.plain(user) for user in ("alice", "bob", "admin"))
            made = await create(alice)
            for_alice = await create(bob, owner_principal_type="User", owner_principal_name="alice")
            assert for_alice.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            by_admin = await create(admin, owner_principal_type="User", owner_principal_name="alice")
            assert (by_admin.principal_name, by_admin.token_requester_principal_name) == ("alice", "admin")
            everything = DescribeDelegationTokenRequest(owners=None)
            assert (await bob.request(everything)).tokens == []
            ids = {made.token_id, by_admin.token_id}
            assert {token.token_id for token in (await alice.request(everything)).tokens} == ids
            assert {token.token_id for token in (await admin.request(everything)).tokens} == ids


async def test_the_key_is_replaced_by_restarts_while_tokens_stay_valid(tmp_path: Path) -> None:
    key, other = "delegation.token.secret.key", "ottla.delegation.token.other.secret.key"
    metadata = MetadataRequest(topics=[])
    # First all nodes learn the new key, which does not sign tokens yet.
    with started(tmp_path, {key: "planted-old", other: "planted-new"}) as node:
        async with channels(node.sasl) as to:
            made = await create(to.plain("alice"))
            assert made.hmac == hmac_of("planted-old", made.token_id)
            # A node that was restarted already accepts the secret by the new key.
            await to.token("SCRAM-SHA-512", made, hmac_of("planted-new", made.token_id)).request(metadata)
    # Then the new key signs, and tokens with secrets by the old key are still valid.
    with started(tmp_path, {key: "planted-new", other: "planted-old"}) as node:
        async with channels(node.sasl) as to:
            alice = to.plain("alice")
            await to.token("SCRAM-SHA-512", made).request(metadata)
            assert (await alice.request(RenewDelegationTokenRequest(made.hmac, -1))).error_code == 0
            newer = await create(alice)
            assert newer.hmac == hmac_of("planted-new", newer.token_id)
            described = await alice.request(DescribeDelegationTokenRequest(owners=None))
            secrets = {token.token_id: token.hmac for token in described.tokens}
            assert secrets == {each.token_id: hmac_of("planted-new", each.token_id) for each in (made, newer)}
    # At last the old key is gone.
    with started(tmp_path, {key: "planted-new"}) as node:
        async with channels(node.sasl) as to:
            await to.token("SCRAM-SHA-256", newer).request(metadata)
            await to.token("SCRAM-SHA-256", made, secrets[made.token_id]).request(metadata)
            with pytest.raises(ChannelClosed, match="due to invalid credentials"):
                await to.token("SCRAM-SHA-256", made).request(metadata)
        assert "planted" not in node.log.read_text()


def test_the_command_line_makes_a_token_that_a_client_logs_in_with_until_it_is_expired(
    sasl_node: SaslNode, tmp_path: Path
) -> None:
    cli = Cli(sasl_node.sasl)
    alice = login_file(tmp_path / "alice", "PLAIN", f'{PLAIN_LOGIN} username="alice" password="planted-alice";')
    (made,) = cli.rows("token", "create", "--renewer", "bob", "--config", alice)
    entry = f'{SCRAM_LOGIN} username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";'
    token = login_file(tmp_path / "token", "SCRAM-SHA-512", entry)
    assert cli("topic", "list", "--config", token).code == 0
    (listed,) = (row for row in cli.rows("token", "list", "--config", alice) if row["token_id"] == made["token_id"])
    assert (listed["owner"], listed["renewers"]) == ("User:alice", ["User:bob"])
    assert "expires at" in cli("token", "renew", str(made["hmac"]), "--hours", "1", "--config", alice).err
    assert cli("token", "expire", str(made["hmac"]), "--config", alice).err == "the token has ended\n"
    refused = cli("topic", "list", "--config", token)
    assert refused.code == FAILED and "invalid credentials" in refused.err
    assert str(made["hmac"]) not in refused.err + sasl_node.log.read_text()


def login_file(path: Path, mechanism: str, entry: str) -> str:
    """Write client properties; `entry` is the value of sasl.jaas.config."""
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={entry}\n")
    return str(path)
