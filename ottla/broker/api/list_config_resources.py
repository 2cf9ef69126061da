"""ListConfigResources (74): which resources have configs. v0 lists client metrics only (KIP-1000), v1 all types (KIP-1142).

Errors:
    UNSUPPORTED_VERSION  the resource type is unknown
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.server.network.context import RequestContext

ALL_TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(
    broker: BrokerComponents, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.api_version == 0:
        types = {int(ResourceType.CLIENT_METRICS)}
    else:
        types = set(request.resource_types) or {int(t) for t in ALL_TYPES}
        if not types <= {int(t) for t in ALL_TYPES}:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "there is no config resource of that type")
    image = broker.metadata.image
    names: dict[int, list[str]] = {
        ResourceType.TOPIC: sorted(image.topics.names),
        ResourceType.BROKER: [str(broker_id) for broker_id in sorted(image.cluster.brokers)],
        ResourceType.BROKER_LOGGER: [str(broker_id) for broker_id in sorted(image.cluster.brokers)],
        ResourceType.CLIENT_METRICS: image.configs.names(ResourceType.CLIENT_METRICS),
        ResourceType.GROUP: image.configs.names(ResourceType.GROUP),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in sorted(types)
            for name in names[resource_type]
        ]
    )
