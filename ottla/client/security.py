"""Security of connections, by the properties of Kafka's own clients (`security.protocol`, `ssl.*`, `sasl.*`) or of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.errors import ClusterError
from ottla.client.failures import Kind, did_you_mean
from ottla.server.config.key import ConfigError, Values
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.tables.security import SASL, SSL
from ottla.server.network.peer_security import PLAINTEXT, ClientTls, PeerSecurity
from ottla.server.sasl.client_exchange import ClientExchange, OAuthBearerClient, PlainClient, ScramClient
from ottla.server.sasl.gssapi import command
from ottla.server.sasl.jaas import JaasError, read_module
from ottla.server.sasl.mechanisms import GSSAPI, MECHANISMS, OAUTHBEARER, PLAIN, login_module
from ottla.server.sasl.peer_login import PeerLogin
from ottla.server.world import World

PROTOCOL, MECHANISM, JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: A client's file usually has these names too.
OTHERS = ("bootstrap.servers", "client.id", "group.id", "acks")
#: A name that is at least this similar to a known one counts as misspelt.
NEAR = 0.85
NONCE_BITS = 130


def check_names(properties: Mapping[str, str], path: str) -> None:
    """Reject a misspelt name. Other unknown names are ignored: clients of all kinds share a file.

    Raises:
        ClusterError: a name is similar to a property of connections, or the file has no property of a client.
    """
    known = {PROTOCOL, MECHANISM, JAAS, *OTHERS, *SSL, *SASL}
    unknown = sorted(properties.keys() - known)
    for name in unknown:
        if near := did_you_mean(name, known, cutoff=NEAR):
            raise _wrong(path, f"there is no property {name}", near)
    if unknown and len(unknown) == len(properties):
        raise _wrong(
            path, f"{unknown[0]} is no property of a connection", "a file of client properties has security.protocol"
        )


def peer_security(world: World, properties: Mapping[str, str], path: str) -> PeerSecurity:
    """Return the security that the properties describe. Error messages name `path`.

    Raises:
        ClusterError: a property is missing, wrong or not served. The message never has the value of a secret.
    """
    protocol = properties.get(PROTOCOL, "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise _wrong(path, f"{PROTOCOL}={protocol} is unknown", f"one of {', '.join(PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    try:
        values = {name: key.parse(properties.get(name, _text(key.default))) for name, key in {**SSL, **SASL}.items()}
        return PeerSecurity(
            _tls(world, values) if protocol.endswith("SSL") else None,
            _login(world, values, properties, path) if protocol.startswith("SASL") else None,
        )
    except ConfigError as error:
        raise _wrong(path, str(error), error.what_to_try or None) from None


def _text(default: Any) -> str | None:
    return ",".join(default) if isinstance(default, list) else None if default is None else str(default)


def _tls(world: World, values: Values) -> ClientTls:
    # Imported late: the libraries take 60 ms, which a plaintext command does not need.
    from ottla.server.tls.contexts import client_context
    from ottla.server.tls.stores import TlsProperties

    return ClientTls(client_context(TlsProperties(values, world.files.read)).context)


def _login(world: World, values: Values, properties: Mapping[str, str], path: str) -> PeerLogin:
    mechanism = properties.get(MECHANISM, "GSSAPI")
    if mechanism not in MECHANISMS:
        raise _wrong(path, f"{MECHANISM}={mechanism} is not served", f"{MECHANISM} with one of {', '.join(MECHANISMS)}")
    remedy = login_module(JAAS, mechanism)
    if JAAS not in properties:
        raise _wrong(path, f"{JAAS} is missing", remedy)
    try:
        module = read_module(properties[JAAS])
    except JaasError as error:
        raise _wrong(path, f"{JAAS} cannot be read: {error}", remedy) from None
    if mechanism.lower() not in module.mechanisms:
        raise _wrong(path, f"{JAAS} has {module.class_name}, which does not serve {mechanism}", remedy)
    options = module.values
    if mechanism == OAUTHBEARER:
        from ottla.server.sasl.mechanisms import OAuthTokens

        token = OAuthTokens(world).source("client", values, options)

        async def with_token(host: str) -> ClientExchange:
            return OAuthBearerClient(await token())

        return PeerLogin(mechanism, with_token, world.workers, world.clock)
    if mechanism == GSSAPI:
        return PeerLogin(mechanism, command(JAAS, options, values), world.workers, world.clock)
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise _wrong(path, f"{JAAS} has no {'username' if user is None else 'password'}", remedy)

    async def with_password(host: str) -> ClientExchange:
        if mechanism == PLAIN:
            return PlainClient(user, password)
        nonce = f"{world.rng.getrandbits(NONCE_BITS):x}"
        return ScramClient(mechanism, user, password, nonce, token=options.get("tokenauth", "").lower() == "true")

    return PeerLogin(mechanism, with_password, world.workers, world.clock)


def _wrong(path: str, what: str, hint: str | None) -> ClusterError:
    return ClusterError(f"{path}: {what}", hint, Kind.WRONG)


def client_properties(server_properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the properties of a client that connects to the node's inter-broker listener, with bootstrap.servers; None for a
    node that is no broker.

    Raises:
        ConfigError: the node would not start with these properties.
    """
    config = NodeConfig(dict(server_properties))
    if not config.is_broker:
        return None
    listener = config.inter_broker_listener
    endpoint = next(each for each in config.broker_endpoints if each.name == listener)
    host, port = endpoint.advertised_host or endpoint.host, endpoint.advertised_port or endpoint.port
    mechanism = config["sasl.mechanism.inter.broker.protocol"]
    prefix = f"listener.name.{listener.lower()}."
    found = {name: value for name, value in server_properties.items() if name.startswith("ssl.") or name == JAAS}
    for name, value in server_properties.items():
        own = name.removeprefix(prefix)
        if own != name and own.startswith("ssl."):
            found[own] = value
        elif own == f"{mechanism.lower()}.{JAAS}":
            found[JAAS] = value
    return found | {
        "bootstrap.servers": f"{host or 'localhost'}:{port}",
        "security.protocol": endpoint.security_protocol,
        "sasl.mechanism": mechanism,
    }
