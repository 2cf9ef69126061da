"""From properties to the mechanisms of a listener: the meaning of Kafka's names, and the mistakes with which a node does not
start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.server.sasl.exchange import Authenticated, SaslFailure
from ottla.server.sasl.mechanisms import (
    JWKS_URL,
    UNSECURED_VALIDATOR,
    OAuthTokens,
    client_exchange,
    login_rules,
    peer_tokens,
)
from ottla.server.sasl.oauthbearer import Token, TokenRejected, UnsecuredTokens, json_object, unsecured_token
from ottla.server.sasl.scram import ScramCredential, ScramUsers
from ottla.server.world import RealWorld, World
from tests.manual_clock import ManualClock

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CLIENTS://:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": 'PlainLoginModule required username="u" password="p" user_u="planted";',
}
NO_USERS = ScramUsers(
    lambda mechanism, user: None, lambda token: None, lambda mechanism, user: ScramCredential(b""), lambda: "n"
)
NO_TOKENS = OAuthTokens(World(None, None, None, None, None, None))
JAAS = "listener.name.clients.plain.sasl.jaas.config"
OAUTH_JAAS = "listener.name.clients.oauthbearer.sasl.jaas.config"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


def rules(**changes: str) -> object:
    return login_rules(NodeConfig({**NODE, **changes}), "CLIENTS", NO_USERS, NO_TOKENS)


def test_a_listener_has_its_own_mechanisms_users_and_session() -> None:
    changes = {
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.enabled.mechanisms": "GSSAPI",
        "connections.max.reauth.ms": "10000",
        "listener.name.clients.plain.connections.max.reauth.ms": "5000",
        "sasl.server.max.receive.size": "1000",
        "connection.failed.authentication.delay.ms": "7",
    }
    made = login_rules(NodeConfig({**NODE, **changes}), "CLIENTS", NO_USERS, NO_TOKENS)
    assert list(made.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    assert made.session_ms_max == {"PLAIN": 5_000, "SCRAM-SHA-256": 10_000}
    assert (made.request_bytes_max, made.failed_delay_ms) == (1_000, 7)
    made.mechanisms["PLAIN"]().evaluate(b"\0u\0planted")
    with pytest.raises(SaslFailure):
        made.mechanisms["PLAIN"]().evaluate(b"\0u\0p")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "Listener CLIENTS: the SASL mechanism DIGEST-MD5 is not served"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "gssapi.sasl.jaas.config is not set: GSSAPI of listener CLIENTS has no login module"),
        ({"sasl.enabled.mechanisms": ""}, "No SASL mechanisms are enabled"),
        ({JAAS: 'PlainLoginModule required user_u="planted"'}, f"{JAAS} cannot be read: no ';'"),
        ({JAAS: 'ScramLoginModule required user_u="planted";'}, "has the login module ScramLoginModule, which does not serve PLAIN"),
        ({"sasl.server.callback.handler.class": "com.acme.Ldap"}, "com.acme.Ldap is not run, so PLAIN would be checked without it"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", OAUTH_JAAS: OAUTH}, "OAUTHBEARER has no keys to verify tokens with"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", OAUTH_JAAS: OAUTH, JWKS_URL: "file:///keys"},
            "sasl.oauthbearer.expected.issuer is not set, so tokens for any issuer would be accepted",
        ),
        ({"inter.broker.listener.name": "CLIENTS"}, "sasl.mechanism.inter.broker.protocol must be included in"),
    ],
)  # fmt: skip
def test_a_listener_that_could_not_authenticate_anybody_is_refused_at_start(changes: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules(**changes)
    assert said in str(refused.value) and refused.value.what_to_try
    assert "planted" not in str(refused.value) + refused.value.what_to_try


def test_plain_without_users_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"{JAAS} is not set"):
        login_rules(
            NodeConfig({name: text for name, text in NODE.items() if name != JAAS}), "CLIENTS", NO_USERS, NO_TOKENS
        )


def test_a_node_logs_in_at_others_with_user_and_password_of_the_listeners_entry() -> None:
    config = NodeConfig(NODE)
    assert client_exchange(config, "CLIENTS", "PLAIN", "n").answer(b"") == b"\0u\0p"
    config = NodeConfig({**NODE, JAAS: 'PlainLoginModule required user_u="planted";'})
    with pytest.raises(ConfigError, match="has no username, with which this node logs in at other nodes"):
        client_exchange(config, "CLIENTS", "PLAIN", "n")


@pytest.mark.parametrize(
    "changes",
    [
        {
            OAUTH_JAAS: OAUTH,
            "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": UNSECURED_VALIDATOR,
        },
        {OAUTH_JAAS: OAUTH.replace(";", ' unsecuredLoginStringClaim_sub="node";')},
    ],
)
async def test_unsigned_tokens_are_accepted_only_where_that_is_written(changes: dict[str, str]) -> None:
    real = RealWorld(asyncio.get_running_loop())
    config = NodeConfig({**NODE, "sasl.enabled.mechanisms": "OAUTHBEARER", **changes})
    made = login_rules(config, "CLIENTS", NO_USERS, OAuthTokens(real.world))
    token = unsecured_token({"unsecuredLoginStringClaim_sub": "alice"}, real.world.clock.wall_ms())
    outcome = made.mechanisms["OAUTHBEARER"]().evaluate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    assert isinstance(outcome, Authenticated) and outcome.principal.name == "alice"
    await real.close()


def tokens_of_a_node(options: str, world: World) -> Callable[[], Awaitable[str]]:
    config = NodeConfig(
        {**NODE, "sasl.enabled.mechanisms": "OAUTHBEARER", OAUTH_JAAS: OAUTH.replace(";", f" {options};")}
    )
    return peer_tokens(config, "CLIENTS", OAuthTokens(world))


async def test_a_node_makes_its_own_unsigned_token_for_each_login_from_the_options_of_the_listeners_entry() -> None:
    clock = ManualClock()
    options = """unsecuredLoginStringClaim_sub="node-1" unsecuredLoginLifetimeSeconds="60"
        unsecuredLoginNumberClaim_level="1.5" unsecuredLoginListClaim_scope="|read|write" """
    token = tokens_of_a_node(options, World(clock, None, None, None, None, None))
    accepts = UnsecuredTokens({"unsecuredValidatorRequiredScope": "write"}, clock.wall_ms)
    first = await token()
    assert accepts(first) == Token("node-1", clock.wall_ms() + 60_000)
    assert json_object(first.split(".")[1])["level"] == 1.5
    clock.advance(60_000)
    with pytest.raises(TokenRejected, match="expired"):
        accepts(first)
    assert accepts(await token()) == Token("node-1", clock.wall_ms() + 60_000)


@pytest.mark.parametrize("option", ["unsecuredLoginLifetimeSeconds", "unsecuredLoginNumberClaim_level"])
def test_an_unsigned_token_that_could_not_be_made_is_refused_at_start(option: str) -> None:
    with pytest.raises(
        ConfigError, match=r"an option of OAUTHBEARER's login module is no number: .*'an hour'"
    ) as refused:
        tokens_of_a_node(f'unsecuredLoginStringClaim_sub="node" {option}="an hour"', World(*[None] * 6))
    assert refused.value.name == OAUTH_JAAS
