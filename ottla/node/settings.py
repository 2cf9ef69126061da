"""Reads the settings of a node's components from its configuration: addresses, the quorum, quotas, the authorizer."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import replace

from ottla.controller.decisions.control_state import ControlSettings, DelegationTokenSettings
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.controller.raft.raft_config import NO_VOTERS, RaftConfig
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.server.authorization.authorizer import Authorizer, make_authorizer
from ottla.server.config.key import ConfigError
from ottla.server.config.listeners import Endpoint
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.settings import read
from ottla.server.listening import of_every_family
from ottla.server.principal import ANONYMOUS
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.quotas.rate import Windows
from ottla.server.sasl.delegation_tokens import KEY, OTHER_KEY
from ottla.server.transport import Detours, read_ways
from ottla.server.world import World

log = logging.getLogger(__name__)

#: org.apache.kafka.common.security.auth.SecurityProtocol.
SECURITY_PROTOCOL_IDS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
PEER_DETOURS = "ottla.peer.detours"
#: Where Ottla's default differs from Kafka's (`RaftConfig`), only explicit settings are used.
OWN_RAFT_DEFAULTS: Mapping[str, str] = {
    "append_linger_ms": "controller.quorum.append.linger.ms",
    "fetch_bytes_max": "controller.quorum.fetch.max.bytes",
    "snapshot_fetch_bytes_max": "controller.quorum.fetch.snapshot.max.bytes",
}


def registered_host(endpoint: Endpoint) -> str:
    """Return the advertised host of a listener without one: this machine's name, as in Kafka."""
    return endpoint.advertised_host or of_every_family(endpoint.host) or socket.gethostname()


def registered(endpoint: Endpoint, bound_port: int) -> RegisteredEndpoint:
    return RegisteredEndpoint(
        endpoint.name,
        registered_host(endpoint),
        endpoint.advertised_port or bound_port,
        SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
    )


def raft_config(config: NodeConfig, cluster_id: str, directory_id: bytes) -> RaftConfig:
    listener = config.controller_names[0]
    voters = NO_VOTERS
    if config.voters:
        voters = VoterSet.of(
            [Voter(ReplicaKey(v.id), (QuorumEndpoint(listener, v.host, v.port),)) for v in config.voters]
        )
    endpoints = tuple(QuorumEndpoint(e.name, registered_host(e), e.port) for e in config.controller_endpoints)
    if not config.voters and not config.bootstrap_servers:
        # A node without configured voters is a quorum of one.
        voters = VoterSet.of([Voter(ReplicaKey(config.node_id), endpoints[:1])])
    return read(
        RaftConfig,
        config.__getitem__,
        node_id=config.node_id,
        directory_id=directory_id,
        cluster_id=cluster_id,
        endpoints=endpoints,
        static_voters=voters,
        bootstrap_servers=tuple(QuorumEndpoint(listener, a.host, a.port) for a in config.bootstrap_servers),
        can_vote=config.is_controller,
        segment_bytes=config["internal.metadata.log.segment.bytes"] or config["metadata.log.segment.bytes"],
        **{field: config[name] for field, name in OWN_RAFT_DEFAULTS.items() if name in config.static},
    )


def control_settings(config: NodeConfig, cluster_id: str) -> ControlSettings:
    other = config[OTHER_KEY]
    tokens = read(
        DelegationTokenSettings,
        config.__getitem__,
        secret_key=config[KEY] or "",
        other_keys=(other,) if other else (),
    )
    return read(
        ControlSettings,
        config.__getitem__,
        node_id=config.node_id,
        cluster_id=cluster_id,
        advertised=config.advertised,
        delegation_tokens=tokens,
    )


def client_quotas(config: NodeConfig, world: World) -> ClientQuotas:
    return ClientQuotas(
        world.clock,
        Windows(config["quota.window.num"], config["quota.window.size.seconds"] * 1_000),
        Windows(config["controller.quota.window.num"], config["controller.quota.window.size.seconds"] * 1_000),
    )


def detoured(world: World, config: NodeConfig) -> World:
    """Return the world with the detours to other nodes of a local cluster, or unchanged if there are none."""
    text = config[PEER_DETOURS]
    if not text:
        return world
    try:
        ways = read_ways(text)
    except ValueError as error:
        raise ConfigError(
            PEER_DETOURS, text, str(error), f"{PEER_DETOURS} is for local clusters and tests: leave it out"
        ) from None
    log.warning("Connections to other nodes take detours (%s): this is a local cluster, or a test", PEER_DETOURS)
    return replace(world, network=Detours(world.network, ways))


def authorizer(config: NodeConfig) -> Authorizer:
    """Nodes ask each other for ClusterAction like everybody; without authentication they are all User:ANONYMOUS."""
    made = make_authorizer(config["authorizer.class.name"], config.static)
    open_names = [
        e.name
        for e in config.endpoints
        if e.security_protocol == "PLAINTEXT"
        or (
            e.security_protocol == "SSL"
            and {**config.values, **config.of_listener(e.name)}["ssl.client.auth"] != "required"
        )
    ]
    if len(config.voters) > 1 and open_names and not made.is_super_user(ANONYMOUS):
        log.warning(
            "Nodes that come by %s are User:ANONYMOUS, which is not among super.users: the quorum of %d will not be able to elect a leader",
            ", ".join(open_names),
            len(config.voters),
        )
    return made
