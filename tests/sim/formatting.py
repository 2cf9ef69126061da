"""An operator formats once with `kafka-storage format`: a voter of several does not format its directories by itself."""

from __future__ import annotations

import random
from collections.abc import Mapping

from ottla.node.formatting import prepare
from ottla.server.config.node_config import NodeConfig
from tests.sim.disk import SimDisk


def format_node(disk: SimDisk, properties: Mapping[str, str], seed: int) -> str:
    """Format the empty directories of a node, and return the cluster id."""
    config = NodeConfig({**properties, "ottla.format.empty.directories": "true"})
    return prepare(disk, config, random.Random(seed), 0)
