"""What a node hands to its broker, which imports no library of tables and stores: what works on tables, and the store of remote segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.config.node_config import NodeConfig
from ottla.server.config.remote_storage import tier_location, tier_options

if TYPE_CHECKING:  # only a broker with remote storage imports it
    from ottla.broker.tiers.objects import TierStore


def table_worker() -> object:
    """Make the object that works on topics' tables, in the process beside the node.

    A broker knows nothing of the libraries of tables, which cost 1.7 s of processor and 130 MB. The node, which puts everything together,
    hands it this function, whose name goes through the pipe: the import happens in that process alone.
    """
    from ottla.tables.worker import TableWorker

    return TableWorker()


def open_tier_store(config: NodeConfig) -> TierStore:
    """Open the store of remote segments, on a thread. Its library is imported by the first use, if the address needs one."""
    from ottla.tables.table_location import open_store

    return open_store(tier_location(config.own, config.static), tier_options(config.static))
