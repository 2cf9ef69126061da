"""What the handlers of a broker are given: the parts of one broker process, by name. `broker/node.py` fills it."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.all_topics import AllTopics
from broker.configs import BrokerConfigs
from broker.controller_channel import ControllerChannel
from broker.groups.service import GroupCoordinator
from broker.long_work import LongWork
from broker.lost_leaders import HeldAnswers
from broker.metadata_cache import MetadataCache
from broker.producer_ids import ProducerIds
from broker.replication.fetch_session import FetchSessionCache
from broker.replication.replicas import Replicas
from broker.topic_creation import TopicCreation
from broker.topic_names import INTERNAL_TOPICS
from broker.transactions.wiring import Transactions
from server.security.authorizer import AllowAll, Authorizer
from server.timer_wheel import TimerWheel
from server.world import World


@dataclass(slots=True)
class BrokerParts:
    world: World
    configs: BrokerConfigs
    node_id: int
    replicas: Replicas
    metadata: MetadataCache
    controller: ControllerChannel
    topic_creation: TopicCreation
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: Transactions
    fetch_sessions: FetchSessionCache
    wheel: TimerWheel
    #: fetch.max.bytes, looked at by every fetch.
    fetch_max_bytes: int
    held_answers: HeldAnswers
    long_work: LongWork
    all_topics: AllTopics
    authorizer: Authorizer = field(default_factory=AllowAll)
    internal_topics: frozenset[str] = field(default=INTERNAL_TOPICS)
