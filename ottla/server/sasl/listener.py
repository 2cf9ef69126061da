"""Reads the SASL mechanisms of a listener from the node's configuration, with Kafka's property names.

sasl.enabled.mechanisms                                     the mechanisms, also under the listener's prefix
listener.name.<listener>.<mechanism>.sasl.jaas.config       the login module of one: PLAIN's users, the node's own login
listener.name.<listener>.<mechanism>.connections.max.reauth.ms
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from ottla.server.config.errors import ConfigError
from ottla.server.config.key import Values
from ottla.server.config.node_config import NodeConfig
from ottla.server.sasl import gssapi_listener
from ottla.server.sasl.client import ClientExchange, PlainClient, ScramClient
from ottla.server.sasl.exchange import Mechanism
from ottla.server.sasl.jaas import JaasError, LoginModule, read_module
from ottla.server.sasl.login import LoginRules
from ottla.server.sasl.oauth_listener import VALIDATORS, OAuthTokens
from ottla.server.sasl.oauthbearer import OAuthBearerExchange
from ottla.server.sasl.plain import PlainExchange
from ottla.server.sasl.scram import ScramExchange, ScramUsers
from ottla.server.sasl.scram_messages import HASHES

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
#: Options of a login module, for the remedy where it is missing.
OPTIONS = {GSSAPI: 'useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM"'}
PASSWORD_OPTIONS = 'username="..." password="..."'


def login_rules(config: NodeConfig, listener: str, users: ScramUsers, tokens: OAuthTokens) -> LoginRules:
    """Returns the rules of a SASL listener.

    Raises:
        ConfigError: a mechanism is unknown, or lacks its configuration.
    """
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
        message = f"Listener {listener}: {handler} is not run, so {name} would be checked without it"
        raise ConfigError(HANDLER, handler, "", "leave it out", message=message)
    if name in HASHES:
        return partial(ScramExchange, name, users)
    module = jaas(config, listener, name)
    if name == PLAIN:
        return partial(PlainExchange, passwords(module))
    if name == GSSAPI:
        return gssapi_listener.mechanism(jaas_name(listener, name), module.values, values)
    return partial(OAuthBearerExchange, tokens.validator(listener, values, module.values, handler))


def peer_tokens(config: NodeConfig, listener: str, tokens: OAuthTokens) -> Callable[[], Awaitable[str]]:
    """Returns the source of the tokens with which this node logs in at a listener of other nodes by OAUTHBEARER.

    Raises:
        ConfigError: their source is not configured.
    """
    values = {**config.values, **config.of_listener(listener)}
    name = "sasl.login.callback.handler.class"
    handler = config.of_listener(listener, OAUTHBEARER).get(name, values[name])
    if handler is not None and not handler.startswith("org.apache.kafka.common.security.oauthbearer."):
        message = f"Listener {listener}: {handler} is not run, so this node would log in without it"
        raise ConfigError(name, handler, "", "leave it out", message=message)
    return tokens.source(listener, values, jaas(config, listener, OAUTHBEARER).values)


def kerberos_client(config: NodeConfig, listener: str, enabled_by: str) -> gssapi_listener.ClientOf:
    """Returns this node's logins at a listener of other nodes by GSSAPI; the property `enabled_by` says the mechanism.

    Raises:
        ConfigError: the library, the key table or the service's name is missing.
    """
    values = {**config.values, **config.of_listener(listener)}
    return gssapi_listener.client(
        enabled_by, jaas_name(listener, GSSAPI), jaas(config, listener, GSSAPI).values, values
    )


def client_exchange(config: NodeConfig, listener: str, mechanism: str, nonce: str) -> ClientExchange:
    """Returns a login of this node at a listener of other nodes, by a mechanism with a password.

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
    """Returns the users of PLAIN: options `user_<name>="<password>"`."""
    return {
        option.removeprefix(USER_OPTION): text
        for option, text in module.values.items()
        if option.startswith(USER_OPTION)
    }


def jaas(config: NodeConfig, listener: str, mechanism: str) -> LoginModule:
    """Returns the listener's login module of a mechanism.

    Raises:
        ConfigError: there is none, or it is malformed.
    """
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
    """Returns an example of a JAAS entry."""
    return f"{name}={MODULES[mechanism]} required {OPTIONS.get(mechanism, PASSWORD_OPTIONS)};"


def jaas_name(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _wrong(listener: str, message: str, remedy: str) -> ConfigError:
    return ConfigError("sasl.enabled.mechanisms", None, "", remedy, message=f"Listener {listener}: {message}")
