"""The static configs of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.protocol.features import DEFAULT
from ottla.protocol.releases import Advertised
from ottla.server.config.settings import setting


@dataclass(frozen=True, slots=True)
class DelegationTokenSettings:
    """The settings of delegation tokens. Without a secret key there are no tokens."""

    secret_key: str = field(default="", repr=False)
    other_keys: tuple[str, ...] = field(default=(), repr=False)
    max_lifetime_ms: int = setting("delegation.token.max.lifetime.ms")
    expiry_ms: int = setting("delegation.token.expiry.time.ms")
    check_interval_ms: int = setting("delegation.token.expiry.check.interval.ms")


@dataclass(frozen=True, slots=True)
class ControlSettings:
    node_id: int
    cluster_id: str
    default_replication_factor: int = setting("default.replication.factor")
    num_partitions: int = setting("num.partitions")
    min_insync_replicas: int = setting("min.insync.replicas")
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable")
    delete_topic_enable: bool = setting("delete.topic.enable")
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_ms: int = setting(
        "leader.imbalance.check.interval.seconds", lambda seconds: seconds * 1_000
    )
    unclean_leader_election_interval_ms: int = setting("unclean.leader.election.interval.ms")
    broker_session_timeout_ms: int = setting("broker.session.timeout.ms")
    metadata_max_idle_interval_ms: int = setting("metadata.max.idle.interval.ms")
    advertised: Advertised = DEFAULT
    # A broken connection suggests that the broker has failed, but it may also just reconnect.
    lost_connection_grace_ms: int = setting("ottla.lost.connection.grace.ms")
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)
    # Every property of the operator, by name: config responses and synonyms need all of them.
    properties: Mapping[str, str] = field(default_factory=dict)
