"""The dependencies of a broker's handlers, by name: the components of one broker process. `broker/broker_node.py` fills it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ottla.broker.cluster.channels import ControllerChannel
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.cluster.topic_creation import StreamsTopics, TopicCreation
from ottla.broker.configs import BrokerConfigs
from ottla.broker.encoded_metadata import AllTopics
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.groups.deletion import GroupDeletion
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.share_group_coordinator import ShareGroupCoordinator
from ottla.broker.long_work import LongWork
from ottla.broker.lost_leaders import DelayedMetadata
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.coordinator.share_coordinator import ShareCoordinator
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.telemetry.client_telemetry import Telemetry
from ottla.broker.transactions.transaction_wiring import Transactions
from ottla.controller.metadata.topic_names import INTERNAL_TOPICS
from ottla.protocol.slotted import mutable
from ottla.server.authorization.authorizer import AllowAll, Authorizer
from ottla.server.clock import TimerWheel
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.world import World

if TYPE_CHECKING:  # only a broker with remote storage imports it
    from ottla.broker.fetch.remote_fetch import RemoteFetches


@mutable
class BrokerComponents:
    world: World
    configs: BrokerConfigs
    node_id: int
    replicas: Replicas
    metadata: MetadataCache
    controller: ControllerChannel
    topic_creation: TopicCreation
    streams_topics: StreamsTopics
    producer_ids: ProducerIds
    groups: GroupCoordinatorService
    transactions: Transactions
    share_leaders: ShareLeaders
    share_coordinator: ShareCoordinator
    share_groups: ShareGroupCoordinator
    group_deletion: GroupDeletion
    fetch_sessions: FetchSessionCache
    wheel: TimerWheel
    #: fetch.max.bytes, which every fetch reads.
    fetch_max_bytes: int
    delayed_metadata: DelayedMetadata
    long_work: LongWork
    all_topics: AllTopics
    quotas: ClientQuotas
    telemetry: Telemetry
    authorizer: Authorizer = field(default_factory=AllowAll)
    #: Reads of remote storage; None where remote.log.storage.system.enable is false.
    tiers: RemoteFetches | None = None
    #: Says why the key or trust stores of a dynamic configuration of this broker cannot be used.
    check_stores: Callable[[Mapping[str, str]], str | None] = lambda configs: None
    internal_topics: frozenset[str] = field(default=INTERNAL_TOPICS)
