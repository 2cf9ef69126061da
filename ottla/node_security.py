"""How a node's connections to other nodes are secured."""

from __future__ import annotations

from ottla.node_logins import peer_login
from ottla.server.config.load import NodeConfig
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.world import World


class NodeSecurity:
    """Made before anything is opened. Raises ConfigError."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        controllers = config.controller_names[0]
        brokers = config.inter_broker_listener if config.is_broker else controllers
        to_controllers = peer_login(world, config, controllers, "sasl.mechanism.controller.protocol")
        to_brokers = peer_login(world, config, brokers, "sasl.mechanism.inter.broker.protocol")
        self.to_controllers = PeerSecurity(login=to_controllers)
        self.to_brokers = PeerSecurity(login=to_brokers)
