"""What a mirror is to do, and the connections of a worker of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.topics import BROKER_DEFAULT
from ottla.mirror.membership import SESSION_MS
from ottla.mirror.names import Policy, Selection


@dataclass(frozen=True, slots=True)
class Options:
    policy: Policy
    topics: Selection
    from_latest: bool = False
    exactly_once: bool = True
    bytes_per_s: float | None = None
    replication_factor: int = BROKER_DEFAULT
    copy_settings: bool = True
    copy_acls: bool = True
    refresh_s: float = 30.0
    #: Where the pairs of offsets are: "source", "target" or "none".
    offset_syncs: str = "source"
    groups: Selection = field(default_factory=Selection)
    checkpoint_s: float = 60.0
    set_group_offsets: bool = False
    heartbeats: bool = True
    session_ms: int = SESSION_MS


class Clusters(NamedTuple):
    """The connections of a worker. Responses of one come in order, so what waits for long has its own."""

    source: ClusterClient
    reading: ClusterClient
    target: ClusterClient
    positions: ClusterClient
    group: ClusterClient
