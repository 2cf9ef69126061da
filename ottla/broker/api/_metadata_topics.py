"""The topics of a Metadata response, as the permissions, a version and a listener of the client let it see them.

Errors:
    UNKNOWN_TOPIC_OR_PARTITION  no topic has the name
    UNKNOWN_TOPIC_ID            no topic has the id, or neither name nor id is given
    INVALID_TOPIC_EXCEPTION     no topic may have the name
    LEADER_NOT_AVAILABLE        of a partition: it has no leader that is alive
    LISTENER_NOT_FOUND          of a partition: its leader has no such listener; before v6 LEADER_NOT_AVAILABLE
    REPLICA_NOT_AVAILABLE       of a partition, in v0: a replica cannot be reached
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from ottla.broker.components import BrokerComponents
from ottla.broker.encoded_metadata import PARTITIONS_PER_TURN, EncodedMetadata, Metadata
from ottla.broker.metadata_cache import NO_LEADER
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.controller.metadata.topics import PartitionRegistration, TopicImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, CREATE, DESCRIBE, TOPIC
from ottla.server.network.context import RequestContext


def take_out_denied(
    broker: BrokerComponents, request: MetadataRequest, context: RequestContext
) -> list[MetadataResponseTopic]:
    """Remove the topics from the request that the client may not know of, or not create, and return their errors."""
    may_create = request.allow_auto_topic_creation and broker.configs["auto.create.topics.enable"]
    denied: dict[str | bytes, MetadataResponseTopic] = {}
    kept = []
    for topic in request.topics or ():
        error = _denied(broker, context, topic, may_create)
        if error is None:
            kept.append(topic)
        else:
            denied[error.name or error.topic_id] = error
    request.topics = kept
    return list(denied.values())


def _denied(
    broker: BrokerComponents, context: RequestContext, topic: MetadataRequestTopic, may_create: bool
) -> MetadataResponseTopic | None:
    allows, topics = broker.authorizer.allows, broker.metadata.image.topics
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic.topic_id != ZERO_UUID:
        image = topics.by_id(topic.topic_id)
        if image is None or allows(context, DESCRIBE, TOPIC, image.name):
            return None
        return MetadataResponseTopic(error_code=error, name=None, topic_id=topic.topic_id)
    name = topic.name
    if name is None:
        return None
    if not allows(context, DESCRIBE, TOPIC, name):
        return MetadataResponseTopic(error_code=error, name=name)
    if (
        may_create
        and name not in topics
        and not allows(context, CREATE, CLUSTER, CLUSTER_NAME)
        and not allows(context, CREATE, TOPIC, name)
    ):
        return MetadataResponseTopic(error_code=error, name=name, is_internal=name in broker.internal_topics)
    return None


def with_denied(denied: list[MetadataResponseTopic], api_version: int, response: Metadata) -> Metadata:
    if isinstance(response, EncodedMetadata):
        return response.plus(denied, api_version)
    response.topics.extend(denied)
    return response


class TopicsOfMetadata:
    """The topics of one response."""

    def __init__(self, broker: BrokerComponents, version: int, listener: str) -> None:
        self._broker = broker
        self._version = version
        self._listener = listener
        self._live = broker.metadata.live(listener)

    def asked(self, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
        topics, has_id = self._broker.metadata.image.topics, topic_id != ZERO_UUID
        image = topics.by_id(topic_id) if has_id else topics.by_name(name or "")
        if image is not None:
            return self.topic(image)
        if has_id or name is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        is_valid = is_valid_topic_name(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
        return MetadataResponseTopic(error_code=error, name=name, is_internal=name in self._broker.internal_topics)

    def topic(self, image: TopicImage) -> MetadataResponseTopic:
        topic = self.head(image)
        topic.partitions = [self._partition(index, partition) for index, partition in image.sorted_partitions()]
        return topic

    def head(self, image: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=image.name, topic_id=image.id, is_internal=image.name in self._broker.internal_topics
        )

    def partitions_in_pieces(self, image: TopicImage) -> Iterator[list[MetadataResponsePartition]]:
        partitions = iter(image.sorted_partitions())
        while piece := list(islice(partitions, PARTITIONS_PER_TURN)):
            yield [self._partition(index, partition) for index, partition in piece]

    def _partition(self, index: int, partition: PartitionRegistration) -> MetadataResponsePartition:
        leader, error = partition.leader, ErrorCode.NONE
        replicas, isr = list(partition.replicas), list(partition.isr)
        if leader not in self._live:
            alive = self._broker.metadata.is_alive(leader)
            error = ErrorCode.LISTENER_NOT_FOUND if alive and self._version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        if self._version == 0:
            # The first clients took every id in these lists for a broker that they can reach.
            replicas = [r for r in replicas if r in self._live]
            isr = [r for r in isr if r in self._live]
            if not error and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self._broker.metadata.offline_replicas(partition, self._listener),
        )


def controller_id(broker: BrokerComponents, live: Collection[int]) -> int:
    """Return the broker that clients are to take for the controller; -1 if none is alive.

    Any broker forwards to the active controller, so this broker names itself if it is not fenced. With ZooKeeper all brokers
    named the same controller.
    """
    if broker.node_id in live and not broker.configs.advertised.release.has_zookeeper:
        return broker.node_id
    return min(live, default=-1)
