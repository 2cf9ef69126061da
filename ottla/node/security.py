"""TLS and SASL of a node's listeners and of its connections to other nodes: by its configuration, and the credentials of its metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.scram import ScramImage
from ottla.server.clock import TimerWheel
from ottla.server.config.key import ConfigError, require
from ottla.server.config.listeners import Endpoint
from ottla.server.config.node_config import NodeConfig
from ottla.server.extras import CRYPTOGRAPHY
from ottla.server.metrics import GAUGE, Family
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.listener import ServerTls
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.sasl.client_exchange import ClientExchange, OAuthBearerClient
from ottla.server.sasl.delegation_tokens import KEY, OTHER_KEY, hmac_of, principal_of
from ottla.server.sasl.login import Logins
from ottla.server.sasl.mechanisms import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    OAuthTokens,
    client_exchange,
    kerberos_client,
    login_rules,
    peer_tokens,
)
from ottla.server.sasl.peer_login import PeerLogin
from ottla.server.sasl.scram import NUMBERS, SALT_BYTES, ScramCredential, ScramUsers, TokenCredential, decoy
from ottla.server.world import World

if TYPE_CHECKING:
    from ottla.server.tls.node_tls import NodeTls


log = logging.getLogger("ottla.node")

NONCE_BITS = 130


class NodeUsers:
    """SCRAM users and delegation tokens, as the node's metadata has them now, and the keys for OAUTHBEARER's tokens."""

    def __init__(self, world: World, config: NodeConfig, image: Callable[[], MetadataImage]) -> None:
        """Take in `image` a function that returns the latest one."""
        self._world, self._config, self._image = world, config, image
        self._decoys_of: ScramImage | None = None
        #: The credential whose parameters decoys have, by mechanism.
        self._models: dict[str, ScramCredential | None] = {}
        #: The key of decoys while there are no users.
        self._decoy_key = world.rng.randbytes(SALT_BYTES)
        self.tokens = OAuthTokens(world)
        self.for_scram = ScramUsers(self._credential, self._token, self._decoy, self._nonce)

    def _credential(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._image().scram.credential(NUMBERS[mechanism], user)

    def _token(self, token_id: str) -> TokenCredential | None:
        token = self._image().delegation_tokens.tokens.get(token_id)
        keys = token_keys(self._config)
        if token is None or not keys or token.expiration_timestamp_ms <= self._world.clock.wall_ms():
            return None
        secrets = tuple(hmac_of(key, token_id) for key in keys)
        return TokenCredential(principal_of(token.owner), token.expiration_timestamp_ms, secrets)

    def _decoy(self, mechanism: str, user: str) -> ScramCredential:
        scram = self._image().scram
        if scram is not self._decoys_of:
            # Computed once for each image: a peer without a login may ask for many decoys, and finding the first user takes a
            # look at all users.
            self._decoys_of, self._models = scram, {name: scram.first(number) for name, number in NUMBERS.items()}
        return decoy(self._models[mechanism], self._decoy_key, user)

    def _nonce(self) -> str:
        return f"{self._world.rng.getrandbits(NONCE_BITS):x}"


def token_keys(config: NodeConfig) -> tuple[str, ...]:
    """Return the keys of delegation tokens, the one that makes secrets first; none without delegation.token.secret.key."""
    key, other = config[KEY], config[OTHER_KEY]
    return () if not key else (key, other) if other else (key,)


def peer_login(world: World, config: NodeConfig, listener: str, name: str) -> PeerLogin | None:
    """Return the login of this node at a listener of other nodes; None if the listener has no SASL.

    `name` is the property that says the mechanism.

    Raises:
        ConfigError: the mechanism or its credentials are not configured.
    """
    if not config.security_protocol(listener).startswith("SASL"):
        return None
    mechanism: str = config[name]
    if mechanism not in MECHANISMS:
        remedy = f"{name} with one of {', '.join(MECHANISMS)}"
        raise ConfigError(name, mechanism, "this version of Ottla does not have the mechanism", remedy)
    if mechanism == OAUTHBEARER:
        token = peer_tokens(config, listener, OAuthTokens(world))

        async def with_token(host: str) -> ClientExchange:
            return OAuthBearerClient(await token())

        return PeerLogin(mechanism, with_token, world.workers, world.clock)
    if mechanism == GSSAPI:
        # A KDC that does not answer holds a login for 16 s.
        own_thread = world.workers.apart("kerberos")
        return PeerLogin(mechanism, kerberos_client(config, listener, name), own_thread, world.clock)
    client_exchange(config, listener, mechanism, "")

    async def with_password(host: str) -> ClientExchange:
        # The configuration is read at each login: a dynamic one may have brought another password.
        return client_exchange(config, listener, mechanism, f"{world.rng.getrandbits(NONCE_BITS):x}")

    return PeerLogin(mechanism, with_password, world.workers, world.clock)


def logins_of(
    world: World, config: NodeConfig, users: NodeUsers, endpoint: Endpoint, requests: Dispatcher, wheel: TimerWheel
) -> Logins | None:
    """Return how clients log in at a listener, None if they do not. Dynamic configurations replace the rules."""
    if not endpoint.security_protocol.startswith("SASL"):
        return None
    logins = Logins(login_rules(config, endpoint.name, users.for_scram, users.tokens), requests, world, wheel)

    def update(config: NodeConfig, changed: frozenset[str]) -> None:
        try:
            logins.rules = login_rules(config, endpoint.name, users.for_scram, users.tokens)
        except ConfigError as error:
            log.error("Logins of listener %s go on by the rules that they had: %s", endpoint.name, error)

    config.watch(update)
    return logins


class NodeSecurity:
    """The security of a node, made before anything is opened: a key store that cannot be used ends the start. Raises ConfigError."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self.of_listeners: dict[str, ServerTls] = {}
        protocols = {endpoint.name: endpoint.security_protocol for endpoint in config.endpoints}
        controllers = config.controller_names[0]
        brokers = config.inter_broker_listener if config.is_broker else controllers
        for peers in (controllers, brokers):
            protocols.setdefault(peers, config.security_protocol(peers))
        logins = {
            peers: peer_login(world, config, peers, mechanism)
            # A node that is a controller only has one listener for both.
            for peers, mechanism in (
                (brokers, "sasl.mechanism.inter.broker.protocol"),
                (controllers, "sasl.mechanism.controller.protocol"),
            )
        }
        self._tls = _node_tls(world, config) if any(p.endswith("SSL") for p in protocols.values()) else None
        if self._tls is not None:
            self.of_listeners = {
                endpoint.name: self._tls.of_listener(endpoint.name, endpoint.security_protocol)
                for endpoint in config.endpoints
                if endpoint.security_protocol.endswith("SSL")
            }
        peers_of = {
            peers: PeerSecurity(
                self._tls.to_peers(peers) if self._tls is not None and protocols[peers].endswith("SSL") else None,
                login,
            )
            for peers, login in logins.items()
        }
        self.to_controllers, self.to_brokers = peers_of[controllers], peers_of[brokers]
        if self._tls is not None:
            self._tls.check_peers()

    def check_stores(self, configs: Mapping[str, str]) -> str | None:
        """Return why the stores of a dynamic configuration of this node cannot be used, or None."""
        return None if self._tls is None else self._tls.rejection(configs)

    def metrics(self) -> Iterator[Family]:
        samples = [] if self._tls is None else self._tls.certificate_samples()
        doc = "Seconds for which the certificate of a listener, or of connections to other nodes, is still valid"
        yield Family("ottla_certificate_valid_seconds", GAUGE, doc, samples)

    def stop(self) -> None:
        if self._tls is not None:
            self._tls.stop()


def _node_tls(world: World, config: NodeConfig) -> NodeTls:
    require(CRYPTOGRAPHY, "TLS", "listener.security.protocol.map", config["listener.security.protocol.map"])
    # Imported late: most nodes of developers have no TLS, and its libraries take 60 ms to import.
    from ottla.server.tls.node_tls import NodeTls

    return NodeTls(world, config)
