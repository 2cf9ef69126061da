"""How a node's listeners and its connections to other nodes are secured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.config.load import NodeConfig
from ottla.server.network.listener import ServerTls
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.world import World

if TYPE_CHECKING:
    from ottla.server.security.tls.node_tls import NodeTls


class NodeSecurity:
    """Made before anything is opened: a key store that cannot be used ends the start. Raises ConfigError."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self.of_listeners: dict[str, ServerTls] = {}
        self.to_brokers = self.to_controllers = PLAINTEXT
        self._tls: NodeTls | None = None
        protocols = {endpoint.name: endpoint.security_protocol for endpoint in config.endpoints}
        controllers = config.controller_names[0]
        brokers = config.inter_broker_listener if config.is_broker else controllers
        for peers in (controllers, brokers):
            protocols.setdefault(peers, config.security_protocol(peers))
        if not any(protocol.endswith("SSL") for protocol in protocols.values()):
            return
        # Not at the top: most nodes of developers have no TLS, and its libraries take 60 ms to import.
        from ottla.server.security.tls.node_tls import NodeTls

        tls = self._tls = NodeTls(world, config)
        self.of_listeners = {
            endpoint.name: tls.of_listener(endpoint.name, endpoint.security_protocol)
            for endpoint in config.endpoints
            if endpoint.security_protocol.endswith("SSL")
        }
        peers_of = {
            peers: PeerSecurity(tls.to_peers(peers))
            for peers in dict.fromkeys((controllers, brokers))
            if protocols[peers].endswith("SSL")
        }
        self.to_controllers = peers_of.get(controllers, PLAINTEXT)
        self.to_brokers = peers_of.get(brokers, PLAINTEXT)
        tls.check_peers()

    def stop(self) -> None:
        if self._tls is not None:
            self._tls.stop()
