"""The static configs of decisions, with Kafka's defaults; node.py fills it from the node's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.protocol.features import DEFAULT
from ottla.protocol.releases import Advertised


@dataclass(frozen=True, slots=True)
class DelegationTokenSettings:
    """The settings of delegation tokens. Without a secret key there are no tokens."""

    secret_key: str = field(default="", repr=False)
    other_keys: tuple[str, ...] = field(default=(), repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_ms: int = 86_400_000
    check_interval_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class ControlSettings:
    node_id: int
    cluster_id: str
    default_replication_factor: int = 1
    num_partitions: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_leader_election_interval_ms: int = 300_000
    broker_session_timeout_ms: int = 9_000
    metadata_max_idle_interval_ms: int = 500
    advertised: Advertised = DEFAULT
    # A broken connection suggests that the broker has failed, but it may also just reconnect.
    lost_connection_grace_ms: int = 100
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)
    # Every property of the operator, by name: config responses and synonyms need all of them.
    properties: Mapping[str, str] = field(default_factory=dict)
