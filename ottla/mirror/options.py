"""The options of a mirror, and the connections of its workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.topics import BROKER_DEFAULT
from ottla.mirror.membership import SESSION_MS
from ottla.mirror.names import Policy, Selection


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    policy: Policy
    topics: Selection
    from_latest: bool = False
    exactly_once: bool = True
    bytes_per_s: float | None = None
    replication_factor: int = BROKER_DEFAULT
    copy_settings: bool = True
    copy_acls: bool = True
    refresh_s: float = 30.0
    #: The cluster with the topic of pairs of offsets: "source", "target" or "none".
    offset_syncs: str = "source"
    groups: Selection = field(default_factory=Selection)
    checkpoint_s: float = 60.0
    set_group_offsets: bool = False
    heartbeats: bool = True
    session_ms: int = SESSION_MS

    def shared(self, source_id: str) -> dict[str, object]:
        """Return the options that must be the same in all workers of the mirror, because any worker may get a partition.

        `source_id` is the source's cluster id.
        """
        return {
            "--topics": list(self.topics.included),
            "--exclude": list(self.topics.excluded),
            "--policy": self.policy.kind,
            "--delivery": "exactly-once" if self.exactly_once else "at-least-once",
            "--begin": "latest" if self.from_latest else "earliest",
            "--heartbeats": self.heartbeats,
            "the source cluster": source_id,
        }


class Clusters(NamedTuple):
    """The connections of a worker. Responses on one connection come in order, so requests that wait long have their own."""

    source: ClusterClient
    reading: ClusterClient
    target: ClusterClient
    positions: ClusterClient
    group: ClusterClient
