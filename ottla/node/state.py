"""The components of a node while it starts and runs. `Node` fills it; the checks of the admin listener read it."""

from __future__ import annotations

from ottla.broker.node import BrokerNode
from ottla.controller.node import ControllerNode, MetadataNode
from ottla.server.config.load import NodeConfig
from ottla.server.metrics import Registry
from ottla.server.world import World
from ottla.storage.directories.logs import Logs


class NodeState:
    """The components that a node has started so far."""

    def __init__(self, config: NodeConfig, world: World) -> None:
        self.config = config
        self.world = world
        self.metrics = Registry()
        self.logs: Logs | None = None
        self._metadata: MetadataNode | None = None
        #: True once the metadata log is open and its replica runs.
        self.started_metadata = False
        self.controller: ControllerNode | None = None
        self.broker: BrokerNode | None = None

    @property
    def metadata(self) -> MetadataNode:
        assert self._metadata is not None, "a node has no metadata before its start"
        return self._metadata
