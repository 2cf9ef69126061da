"""The address of a leader, and the properties of this node that fetchers use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity


class LeaderAddress(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    node_id: int
    min_bytes: int
    wait_ms_max: int
    partition_bytes_max: int
    response_bytes_max: int
    backoff_ms: int
    timeout_ms: int
    security: PeerSecurity = PLAINTEXT
