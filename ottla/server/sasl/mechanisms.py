"""Reads the SASL mechanisms of a listener from the node's configuration, with Kafka's property names.

sasl.enabled.mechanisms                                     the mechanisms, also under the listener's prefix
listener.name.<listener>.<mechanism>.sasl.jaas.config       the login module of one: PLAIN's users, the node's own login
listener.name.<listener>.<mechanism>.connections.max.reauth.ms

PLAIN is in this file, too, and so are the sources for OAUTHBEARER: the keys that validate clients' tokens, and the node's own
tokens.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.server.config.key import ConfigError, Values, require
from ottla.server.config.node_config import NodeConfig
from ottla.server.extras import CRYPTOGRAPHY
from ottla.server.sasl import gssapi
from ottla.server.sasl.client_exchange import ClientExchange, PlainClient, ScramClient
from ottla.server.sasl.exchange import Authenticated, Mechanism, SaslFailure, user
from ottla.server.sasl.jaas import JaasError, LoginModule, read_module
from ottla.server.sasl.login import LoginRules
from ottla.server.sasl.oauthbearer import (
    ENDPOINT,
    MS_PER_S,
    UNSECURED,
    OAuthBearerExchange,
    UnsecuredTokens,
    Validator,
    unsecured_token,
)
from ottla.server.sasl.peer_login import Exchanges
from ottla.server.sasl.scram import HASHES, ScramExchange, ScramUsers
from ottla.server.world import World

if TYPE_CHECKING:
    from ottla.server.sasl.signed_tokens import KeySet

PLAIN, OAUTHBEARER, GSSAPI = "PLAIN", "OAUTHBEARER", "GSSAPI"
MECHANISMS = (PLAIN, *HASHES, OAUTHBEARER, GSSAPI)
HANDLER = "sasl.server.callback.handler.class"
USER_OPTION = "user_"
MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    **dict.fromkeys(HASHES, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
#: Options of a login module, for the remedy if the module is missing.
OPTIONS = {GSSAPI: 'useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM"'}
PASSWORD_OPTIONS = 'username="..." password="..."'


def login_rules(config: NodeConfig, listener: str, users: ScramUsers, tokens: OAuthTokens) -> LoginRules:
    """Return the rules of a SASL listener. Raises ConfigError: a mechanism is unknown, or lacks its configuration."""
    values = {**config.values, **config.of_listener(listener)}
    enabled = values["sasl.enabled.mechanisms"]
    if not enabled:
        raise _wrong(listener, "No SASL mechanisms are enabled", f"sasl.enabled.mechanisms={','.join(MECHANISMS[:2])}")
    inter_broker = values["sasl.mechanism.inter.broker.protocol"]
    if listener == config.inter_broker_listener and inter_broker not in enabled:
        raise _wrong(
            listener,
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication",
            f"add {inter_broker} to sasl.enabled.mechanisms, or set sasl.mechanism.inter.broker.protocol",
        )
    mechanisms = {name: _mechanism(config, listener, name, values, users, tokens) for name in enabled}
    session_ms = values["connections.max.reauth.ms"]
    return LoginRules(
        mechanisms,
        values["sasl.server.max.receive.size"],
        values["connection.failed.authentication.delay.ms"],
        {name: config.of_listener(listener, name).get("connections.max.reauth.ms", session_ms) for name in enabled},
    )


def _mechanism(
    config: NodeConfig, listener: str, name: str, values: Values, users: ScramUsers, tokens: OAuthTokens
) -> Mechanism:
    if name not in MECHANISMS:
        raise _wrong(
            listener,
            f"the SASL mechanism {name} is not served by this version of Ottla",
            f"sasl.enabled.mechanisms with some of {', '.join(MECHANISMS)}",
        )
    handler = config.of_listener(listener, name).get(HANDLER, values[HANDLER])
    if handler is not None and (name != OAUTHBEARER or handler not in VALIDATORS):
        message = f"{handler} is not run, so {name} would be checked without it"
        raise _wrong(listener, message, "leave it out", HANDLER, handler)
    if name in HASHES:
        return partial(ScramExchange, name, users)
    module = jaas(config, listener, name)
    if name == PLAIN:
        return partial(PlainExchange, passwords(module))
    if name == GSSAPI:
        return gssapi.mechanism(jaas_name(listener, name), module.values, values)
    return partial(OAuthBearerExchange, tokens.validator(listener, values, module.values, handler))


def peer_tokens(config: NodeConfig, listener: str, tokens: OAuthTokens) -> Callable[[], Awaitable[str]]:
    """Return the source of this node's tokens for a login by OAUTHBEARER at a listener of other nodes.

    Raises:
        ConfigError: their source is not configured.
    """
    values = {**config.values, **config.of_listener(listener)}
    name = "sasl.login.callback.handler.class"
    handler = config.of_listener(listener, OAUTHBEARER).get(name, values[name])
    if handler is not None and not handler.startswith("org.apache.kafka.common.security.oauthbearer."):
        message = f"{handler} is not run, so this node would log in without it"
        raise _wrong(listener, message, "leave it out", name, handler)
    return tokens.source(listener, values, jaas(config, listener, OAUTHBEARER).values)


def kerberos_client(config: NodeConfig, listener: str, enabled_by: str) -> Exchanges:
    """Return this node's logins by GSSAPI at a listener of other nodes. The property `enabled_by` selects the mechanism.

    Raises:
        ConfigError: the library, the key table or the service's name is missing.
    """
    values = {**config.values, **config.of_listener(listener)}
    return gssapi.client(enabled_by, jaas_name(listener, GSSAPI), jaas(config, listener, GSSAPI).values, values)


def client_exchange(config: NodeConfig, listener: str, mechanism: str, nonce: str) -> ClientExchange:
    """Return a login of this node, by a mechanism with a password, at a listener of other nodes.

    Raises:
        ConfigError: the listener's JAAS entry has no user and password.
    """
    options = jaas(config, listener, mechanism).values
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        missing = "username" if user is None else "password"
        message = f"{jaas_name(listener, mechanism)} has no {missing}, with which this node logs in at other nodes"
        raise ConfigError(jaas_name(listener, mechanism), None, "", f'add {missing}="..."', message=message)
    if mechanism == PLAIN:
        return PlainClient(user, password)
    token = options.get("tokenauth", "").lower() == "true"
    return ScramClient(mechanism, user, password, nonce, token=token)


def passwords(module: LoginModule) -> Mapping[str, str]:
    """Return the users of PLAIN: options `user_<name>="<password>"`."""
    return {
        option.removeprefix(USER_OPTION): text
        for option, text in module.values.items()
        if option.startswith(USER_OPTION)
    }


def jaas(config: NodeConfig, listener: str, mechanism: str) -> LoginModule:
    """Return the listener's login module of a mechanism. Raises ConfigError: there is none, or it is malformed."""
    text = config.of_listener(listener, mechanism).get("sasl.jaas.config")
    name = jaas_name(listener, mechanism)
    remedy = login_module(name, mechanism)
    if text is None:
        if mechanism == GSSAPI:
            remedy += " or sasl.enabled.mechanisms with others: its default is GSSAPI"
        raise ConfigError(
            name, None, "", remedy, message=f"{name} is not set: {mechanism} of listener {listener} has no login module"
        )
    try:
        module = read_module(text)
    except JaasError as error:
        raise ConfigError(name, None, "", remedy, message=f"{name} cannot be read: {error}") from None
    if mechanism.lower() not in module.mechanisms:
        message = f"{name} has the login module {module.class_name}, which does not serve {mechanism}"
        raise ConfigError(name, None, "", remedy, message=message)
    return module


def login_module(name: str, mechanism: str) -> str:
    """Return an example of a JAAS entry."""
    return f"{name}={MODULES[mechanism]} required {OPTIONS.get(mechanism, PASSWORD_OPTIONS)};"


def jaas_name(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _wrong(
    listener: str, message: str, remedy: str, name: str = "sasl.enabled.mechanisms", value: str | None = None
) -> ConfigError:
    return ConfigError(name, value, "", remedy, message=f"Listener {listener}: {message}")


JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
#: Kafka's own classes, whose work this node does itself. Other classes are not run.
SIGNED_VALIDATORS = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_VALIDATOR = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
#: The property that selects the source of a node's or client's tokens. The default is client credentials.
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
JWT_BEARER = f"{_PACKAGE}.JwtBearerJwtRetriever"
RETRIEVERS = (f"{_PACKAGE}.DefaultJwtRetriever", f"{_PACKAGE}.ClientCredentialsJwtRetriever", JWT_BEARER)
VALIDATORS = (*SIGNED_VALIDATORS, UNSECURED_VALIDATOR)


#: Properties that restrict the accepted tokens, and the option that allows leaving them out.
EXPECTED = (
    ("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer"),
    ("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.audience"),
)


class OAuthTokens:
    """The key sets of a node's listeners, by their URL and times. So they survive a change of another property."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._key_sets: dict[tuple[object, ...], KeySet] = {}

    def validator(self, listener: str, values: Values, options: Mapping[str, str], handler: str | None) -> Validator:
        """Return the validator. `options` are those of the JAAS entry, and `handler` is sasl.server.callback.handler.class.

        Raises:
            ConfigError: no issuer of valid tokens is configured.
        """
        if values[JWKS_URL] is None:
            # Kafka accepts unsigned tokens if no class is set. Here the configuration must allow them explicitly.
            if handler == UNSECURED_VALIDATOR or any(name.startswith("unsecured") for name in options):
                return UnsecuredTokens(options, self._world.clock.wall_ms)
            remedy = (
                f"{JWKS_URL}=https://..., or for development sasl.server.callback.handler.class={UNSECURED_VALIDATOR}"
            )
            raise _wrong(listener, "OAUTHBEARER has no keys to verify tokens with", remedy, JWKS_URL)
        return self._signed(listener, values)

    def _signed(self, listener: str, values: Values) -> Validator:
        # An audience or issuer must be configured, because the provider also signs tokens for other services.
        for name, allow in EXPECTED:
            if not values[name] and not values[allow]:
                why = f"{name} is not set, so tokens for any {name.rpartition('.')[2]} would be accepted"
                raise _wrong(listener, why, f"{name}=..., or {allow}=true", name)
        require(CRYPTOGRAPHY, "checking the signatures of OAUTHBEARER's tokens", JWKS_URL, values[JWKS_URL])
        # Imported late: PyJWT and cryptography take 60 ms to import.
        from ottla.server.sasl.signed_tokens import Expected, KeySet, SignedTokens

        source = (
            values[JWKS_URL],
            values["sasl.oauthbearer.jwks.endpoint.refresh.ms"],
            values["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"],
            values["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"],
        )
        key_set = self._key_sets.get(source)
        if key_set is None:
            key_set = self._key_sets[source] = KeySet(self._world, *source)
        expected = Expected(
            values["sasl.oauthbearer.expected.issuer"],
            values["sasl.oauthbearer.expected.audience"],
            values["sasl.oauthbearer.clock.skew.seconds"] * MS_PER_S,
            values["sasl.oauthbearer.sub.claim.name"],
        )
        return SignedTokens(lambda: key_set.keys, key_set.missing, expected, self._world.clock.wall_ms)

    def source(self, listener: str, values: Values, options: Mapping[str, str]) -> Callable[[], Awaitable[str]]:
        """Return the source of this node's own tokens. Raises ConfigError if it is not configured."""
        retriever = values[RETRIEVER]
        if retriever not in RETRIEVERS:
            raise ConfigError(RETRIEVER, retriever, "Java classes are not run", f"one of {', '.join(RETRIEVERS)}")
        if values[ENDPOINT] is not None:
            if retriever == JWT_BEARER:
                require(CRYPTOGRAPHY, "signing assertions", RETRIEVER, retriever)
            # Imported late: urllib takes 20 ms to import.
            from ottla.server.sasl.identity_provider import ClientCredentials, JwtBearer

            kind = JwtBearer if retriever == JWT_BEARER else ClientCredentials
            return kind(self._world, values, options).token
        if not any(name.startswith(UNSECURED) for name in options):
            remedy = f"{ENDPOINT}=https://..., with the client's id and secret"
            why = "it is not said where this node gets its tokens for OAUTHBEARER"
            raise _wrong(listener, why, remedy, ENDPOINT)
        try:
            unsecured_token(options, 0)
        except ValueError as error:
            why = f"an option of OAUTHBEARER's login module is no number: {error}"
            raise _wrong(listener, why, "a number", jaas_name(listener, OAUTHBEARER)) from None

        async def token() -> str:
            return unsecured_token(options, self._world.clock.wall_ms())

        return token


TOKEN_PARTS = 3
FAILED = "Authentication failed: "


class PlainExchange:
    """PLAIN (RFC 4616): the client sends its name and password, so it is for TLS listeners or a trusted network.

    expecting the one token of the client     authorization id NUL name NUL password
    -> Authenticated                           the password is that of `user_<name>` in the listener's JAAS entry
    -> SaslFailure                             anything else
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes) -> Authenticated:
        # Java replaces malformed UTF-8 in the same way. With more than three parts Kafka reports four.
        parts = token.decode("utf-8", "replace").split("\0", TOKEN_PARTS)
        if len(parts) != TOKEN_PARTS:
            raise _failure(f"Invalid SASL/PLAIN response: expected {TOKEN_PARTS} tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise _failure(f"{FAILED}username not specified")
        if not password:
            raise _failure(f"{FAILED}password not specified")
        expected = self._passwords.get(name)
        # The comparison is made for unknown users, too, and takes the same time wherever the texts differ.
        equal = hmac.compare_digest(password.encode("utf-8", "replace"), (expected or "").encode("utf-8", "replace"))
        if expected is None or not equal:
            raise _failure(f"{FAILED}Invalid username or password")
        if authorization_id and authorization_id != name:
            raise _failure(f"{FAILED}Client requested an authorization id that is different from username")
        return Authenticated(user(name))


def _failure(message: str) -> SaslFailure:
    return SaslFailure(message, message)
