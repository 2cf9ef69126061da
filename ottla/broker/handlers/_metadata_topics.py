"""The topics of a Metadata response, as a version and a listener of the client see them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ottla.broker.all_topics import PARTITIONS_PER_TURN
from ottla.broker.components import BrokerComponents
from ottla.broker.topic_names import is_valid_topic_name
from ottla.controller.metadata.partitions import PartitionRegistration
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import ZERO_UUID

NO_LEADER = -1


class TopicsOfMetadata:
    """The topics of one response."""

    def __init__(self, broker: BrokerComponents, version: int, listener: str, live: set[int]) -> None:
        self._broker = broker
        self._version = version
        self._listener = listener
        self._live = live

    def asked(self, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
        topics = self._broker.metadata.image.topics
        if topic_id != ZERO_UUID:
            image = topics.by_id(topic_id)
            if image is None:
                return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            return self.topic(image)
        if name is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None)
        image = topics.by_name(name)
        if image is not None:
            return self.topic(image)
        if not is_valid_topic_name(name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
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
