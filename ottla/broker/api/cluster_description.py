"""Descriptions of the cluster from the metadata image: its brokers, topics page by page, resources with configs."""

from __future__ import annotations

from ottla.broker.api._metadata_topics import controller_id
from ottla.broker.authorization import operations_on_cluster, split
from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.server.authorization.operations import DESCRIBE, TOPIC
from ottla.server.network.context import RequestContext

BROKERS, CONTROLLERS = 1, 2


def describe_cluster(
    broker: BrokerComponents, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """DescribeCluster (60): the brokers, on a broker's listener. A request for the controllers has come to the wrong endpoint
    (KIP-919).

    v1 endpoint_type · v2 include_fenced_brokers (KIP-1073).

    Errors:
        MISMATCHED_ENDPOINT_TYPE   the controllers are asked for
        UNSUPPORTED_ENDPOINT_TYPE  the endpoint type is unknown
    """
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    metadata = broker.metadata
    response = DescribeClusterResponse(cluster_id=metadata.cluster_id)
    for node_id, registration in sorted(metadata.image.cluster.brokers.items()):
        if registration.fenced and not request.include_fenced_brokers:
            continue
        address = metadata.address(registration, context)
        if address is not None:
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=node_id,
                    host=address.host,
                    port=address.port,
                    rack=address.rack,
                    is_fenced=registration.fenced,
                )
            )
    live = [b.broker_id for b in response.brokers if not b.is_fenced]
    response.controller_id = controller_id(broker, live)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(broker, context)
    return response


def describe_topic_partitions(
    broker: BrokerComponents, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """DescribeTopicPartitions (75): topics page by page, with ELR (KIP-966).

    A request for all topics gets those that the client may DESCRIBE.
    Topics come in order of their names. The page ends after min(response_partition_limit, max.request.partition.size.limit)
    partitions; next_cursor says where the next page starts, and cursor repeats that.

    Errors:
        INVALID_REQUEST             the cursor has a negative partition
        UNKNOWN_TOPIC_OR_PARTITION  no topic has the name
        INVALID_TOPIC_EXCEPTION     no topic may have the name
        LEADER_NOT_AVAILABLE        of a partition: it has no leader that is alive
        LISTENER_NOT_FOUND          of a partition: its leader has no such listener
    """
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor's partition index is negative")
    topics = broker.metadata.image.topics
    asked = {topic.name for topic in request.topics}
    first_name = "" if cursor is None else cursor.topic_name
    names = sorted(name for name in asked or topics.names if name >= first_name)
    names, denied = split(broker, context, DESCRIBE, TOPIC, names, str)
    room = max(1, min(request.response_partition_limit, broker.configs["max.request.partition.size.limit"]))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        image = topics.by_name(name)
        if image is None:
            # A topic that was deleted between two pages is absent from the next one, unless it was requested by name.
            if asked:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not is_valid_topic_name(name):
                    error = ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=error, name=name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        partitions = [(index, p) for index, p in image.sorted_partitions() if index >= first]
        if room <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        page = partitions[:room]
        room -= len(page)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=image.id,
                is_internal=name in broker.internal_topics,
                partitions=[_partition(broker, index, p, context) for index, p in page],
            )
        )
        if len(page) < len(partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=partitions[len(page)][0])
            break
    for topic in response.topics:
        assert topic.name is not None
        topic.topic_authorized_operations = broker.authorizer.authorized_operations(context, TOPIC, topic.name)
    if asked:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics += [DescribeTopicPartitionsResponseTopic(error_code=error, name=name) for name in denied]
    return response


def _partition(
    broker: BrokerComponents, index: int, partition: PartitionRegistration, context: RequestContext
) -> DescribeTopicPartitionsResponsePartition:
    metadata = broker.metadata
    leader, error = partition.leader, ErrorCode.NONE
    if metadata.endpoint(leader, context) is None:
        error = ErrorCode.LISTENER_NOT_FOUND if metadata.is_alive(leader) else ErrorCode.LEADER_NOT_AVAILABLE
        leader = -1
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=metadata.offline_replicas(partition, context.connection.listener_name),
    )


def list_config_resources(
    broker: BrokerComponents, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """ListConfigResources (74): which resources have configs. v0 lists client metrics only (KIP-1000), v1 all types (KIP-1142).

    Errors:
        UNSUPPORTED_VERSION  the resource type is unknown
    """
    image = broker.metadata.image
    broker_ids = [str(broker_id) for broker_id in sorted(image.cluster.brokers)]
    names: dict[int, list[str]] = {
        ResourceType.TOPIC: sorted(image.topics.names),
        ResourceType.BROKER: broker_ids,
        ResourceType.BROKER_LOGGER: broker_ids,
        ResourceType.CLIENT_METRICS: image.configs.names(ResourceType.CLIENT_METRICS),
        ResourceType.GROUP: image.configs.names(ResourceType.GROUP),
    }
    asked = [ResourceType.CLIENT_METRICS] if context.api_version == 0 else request.resource_types
    types = set(asked or names)
    if not types <= names.keys():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "there is no config resource of that type")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in sorted(types)
            for name in names[resource_type]
        ]
    )
