"""DescribeCluster (60): the brokers, on a broker's listener. Asked for the controllers, it is the wrong endpoint (KIP-919).

v1 endpoint_type · v2 include_fenced_brokers (KIP-1073).

Errors:
    MISMATCHED_ENDPOINT_TYPE   the controllers are asked for
    UNSUPPORTED_ENDPOINT_TYPE  the endpoint type is unknown
"""

from __future__ import annotations

from ottla.broker.authorization.checks import operations_on_cluster
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.server.network.context import RequestContext

BROKERS, CONTROLLERS = 1, 2


def handle(
    broker: BrokerComponents, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
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
    response.controller_id = broker.node_id if broker.node_id in live else min(live, default=-1)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(broker, context)
    return response
