"""How clients log in at the SASL listeners of a node: the rules of its configuration, and the credentials of its metadata."""

from __future__ import annotations

import hashlib
import hmac
import logging
from functools import partial

from ottla.controller.metadata.image import MetadataImage
from ottla.node_state import NodeState
from ottla.server.config.errors import ConfigError
from ottla.server.config.load import NodeConfig
from ottla.server.network.connection import Requests
from ottla.server.network.listener import Endpoint
from ottla.server.network.login import Logins
from ottla.server.network.peer_login import PeerLogin
from ottla.server.security.sasl.client import ClientExchange
from ottla.server.security.sasl.listener import client_exchange, login_rules
from ottla.server.security.sasl.scram import Credential, ScramUsers, TokenCredential
from ottla.server.security.sasl.scram_messages import NUMBERS
from ottla.server.timer_wheel import TimerWheel
from ottla.server.world import World

log = logging.getLogger("ottla.node")

SALT_BYTES = 16
NONCE_BITS = 130


def is_sasl(endpoint: Endpoint) -> bool:
    return endpoint.security_protocol.startswith("SASL")


class MetadataUsers:
    """SCRAM users and delegation tokens, as the node's metadata has them now."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._decoy_key = node.world.rng.randbytes(SALT_BYTES)
        self.for_scram = ScramUsers(self._credential, self._token, self._decoy_salt, self._nonce)

    @property
    def _image(self) -> MetadataImage:
        return self._node.metadata.loader.image

    def _credential(self, mechanism: str, user: str) -> Credential | None:
        return self._image.scram.credential(NUMBERS[mechanism], user)

    def _token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return None

    def _decoy_salt(self, user: str) -> bytes:
        return hmac.digest(self._decoy_key, user.encode("utf-8", "replace"), hashlib.sha256)[:SALT_BYTES]

    def _nonce(self) -> str:
        return f"{self._node.world.rng.getrandbits(NONCE_BITS):x}"


def peer_login(world: World, config: NodeConfig, listener: str, mechanism_property: str) -> PeerLogin | None:
    """Returns how this node logs in at a listener of other nodes, None if that has no SASL.

    Raises:
        ConfigError: the mechanism is not there, or the listener's JAAS entry has no user and password.
    """
    if not config.security_protocol(listener).startswith("SASL"):
        return None
    mechanism: str = config[mechanism_property]
    check = partial(client_exchange, config, listener, mechanism, mechanism_property)
    check("")

    async def exchange() -> ClientExchange:
        # Read at each login: a dynamic configuration may have brought another password.
        return check(f"{world.rng.getrandbits(NONCE_BITS):x}")

    return PeerLogin(mechanism, exchange, world.workers, world.clock)


def logins_of(
    node: NodeState, users: MetadataUsers, endpoint: Endpoint, requests: Requests, wheel: TimerWheel
) -> Logins | None:
    """Returns how clients log in at a listener, None if they do not. Dynamic configurations replace the rules."""
    if not is_sasl(endpoint):
        return None
    logins = Logins(login_rules(node.config, endpoint.name, users.for_scram), requests, node.world.clock, wheel)

    def update(config: NodeConfig, changed: frozenset[str]) -> None:
        try:
            logins.rules = login_rules(config, endpoint.name, users.for_scram)
        except ConfigError as error:
            log.error("Logins of listener %s go on by the rules that they had: %s", endpoint.name, error)

    node.config.watch(update)
    return logins
