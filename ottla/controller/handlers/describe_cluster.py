"""DescribeCluster on a controller's listener: the controllers, for clients that bootstrap from them (KIP-919)."""

from __future__ import annotations

from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_CONTROLLER_REGISTRATION
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext

ENDPOINT_CONTROLLER = 2


def handle(
    components: ControllerComponents, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Responds from the committed image, on any controller."""
    controller = components.controller
    image = controller.loader.image
    if image.features.metadata_version < MV_CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    components.require_on_cluster(context, ALTER)
    if request.endpoint_type != ENDPOINT_CONTROLLER:
        # Clients of version 0 do not know the other error.
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if context.api_version else ErrorCode.INVALID_REQUEST
        raise KafkaError(
            code, "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        )
    nodes = []
    for controller_id, registration in sorted(image.cluster.controllers.items()):
        endpoint = registration.endpoints.get(context.connection.listener_name)
        if endpoint is not None:
            nodes.append(DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port))
    return DescribeClusterResponse(
        endpoint_type=ENDPOINT_CONTROLLER,
        cluster_id=controller.settings.cluster_id,
        controller_id=controller.leader_id,
        brokers=nodes,
    )
