"""AlterConfigs and IncrementalAlterConfigs for this broker: what it alone can check is checked before the request is forwarded.

Key and trust stores are files of this machine, which the active controller cannot read. Clients send the changes of a broker to that
broker. A store that cannot be used is INVALID_REQUEST, as in Kafka, and the controller gets the other resources only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.cluster.forwarding import forward
from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.api import ApiKey
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.headers import decode_request_header
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.server.config.broker import base_name
from ottla.server.network.context import RequestContext
from ottla.server.security.operations import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME

#: AlterConfigOp.OpType.
SET, DELETE = 0, 1
#: Of one API, and the class of its request, of its response, and of a resource's result.
_CLASSES: Mapping[int, tuple[Any, Any, Any]] = {
    ApiKey.ALTER_CONFIGS: (
        alter_configs.AlterConfigsRequest,
        alter_configs.AlterConfigsResponse,
        alter_configs.AlterConfigsResourceResponse,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        incremental_alter_configs.AlterConfigsResourceResponse,
    ),
}


async def forward_checked(broker: BrokerComponents, frame: bytes, context: RequestContext) -> memoryview:
    """Forwards what this broker does not refuse; returns the body of the response."""
    version = context.api_version
    request_class, response_class, result_class = _CLASSES[context.api_key]
    try:
        *_, body = decode_request_header(frame, 0, len(frame))
        request = decode(request_class, frame[body:], version)
    except MalformedMessage:
        return await forward(broker.controller, frame, context)
    refused, kept = [], []
    for resource in request.resources:
        why = _refusal(broker, resource, context)
        if why is None:
            kept.append(resource)
            continue
        refused.append(
            result_class(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=why,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    if not refused:
        return await forward(broker.controller, frame, context)
    response = response_class(responses=[])
    if kept:
        request.resources = kept
        answer = await forward(broker.controller, frame[:body] + encode(request, version), context)
        response = decode(response_class, bytes(answer), version)
    response.responses += refused
    return memoryview(encode(response, version))


def _refusal(broker: BrokerComponents, resource: Any, context: RequestContext) -> str | None:
    """Why this broker could not use its configuration after the change, or None."""
    if resource.resource_type != ResourceType.BROKER or resource.resource_name != str(broker.node_id):
        return None
    before = broker.configs.levels.broker
    if not any(base_name(name).startswith("ssl.") for name in [*before, *(each.name for each in resource.configs)]):
        return None
    if not broker.authorizer.allows(context, ALTER_CONFIGS, CLUSTER, CLUSTER_NAME):
        return None  # the controller refuses it, and the client does not find out which files there are
    return broker.check_stores(_resulting(before, resource.configs))


def _resulting(before: Mapping[str, str], configs: list[Any]) -> dict[str, str]:
    """The dynamic configuration of this broker after the change. Appended elements of lists are left to the controller's own checks."""
    if configs and not hasattr(configs[0], "config_operation"):
        return {each.name: each.value for each in configs if each.value is not None}
    after = dict(before)
    for each in configs:
        if each.config_operation == SET and each.value is not None:
            after[each.name] = each.value
        elif each.config_operation == DELETE:
            after.pop(each.name, None)
    return after
