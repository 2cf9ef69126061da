"""AlterConfigs and IncrementalAlterConfigs for this broker: the checks that only this broker can make come before the request
is forwarded.

Key and trust stores are files of this machine, which the active controller cannot read. Clients send the changes of a broker to that
broker. A store that cannot be used is INVALID_REQUEST, as in Kafka, and the controller gets the other resources only. A value
that contradicts other values of this broker (`check_changes`) is INVALID_REQUEST, too, because the controller does not know
this broker's file. The levels of loggers (KIP-412) are those of this process, and no controller is asked.

Errors:
    INVALID_REQUEST  a store cannot be used, or a pool of threads changes too much
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.broker.cluster.channels import forward
from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.api import ApiKey, decode_request_header
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.shared_structs import AlterConfigsResourceResponse
from ottla.server import log_setup
from ottla.server.authorization.operations import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME
from ottla.server.config.broker import base_name
from ottla.server.config.dynamic import POOL_NAMES, TOPIC_DEFAULTS, broker_values, check_changes
from ottla.server.config.key import ConfigError
from ottla.server.network.context import RequestContext

#: AlterConfigOp.OpType.
SET, DELETE = 0, 1
#: For each API the class of its request and of its response.
_CLASSES: Mapping[int, tuple[Any, Any]] = {
    ApiKey.ALTER_CONFIGS: (alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
}


async def forward_checked(broker: BrokerComponents, frame: bytes, context: RequestContext) -> memoryview:
    """Forward the configs that this broker does not reject itself. Return the body of the response."""
    version = context.api_version
    request_class, response_class = _CLASSES[context.api_key]
    try:
        *_, body = decode_request_header(frame, 0, len(frame))
        request = decode(request_class, frame[body:], version)
    except MalformedMessage:
        return await forward(broker.controller, frame, context)
    own, kept = [], []
    for resource in request.resources:
        try:
            if not _is_answered_here(broker, resource, context, validate_only=request.validate_only):
                kept.append(resource)
                continue
            code, message = ErrorCode.NONE, None
        except KafkaError as error:
            code, message = error.code, error.own_words
        own.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    if not own:
        return await forward(broker.controller, frame, context)
    response = response_class(responses=[])
    if kept:
        request.resources = kept
        answer = await forward(broker.controller, frame[:body] + encode(request, version), context)
        response = decode(response_class, bytes(answer), version)
    response.responses += own
    return memoryview(encode(response, version))


def _is_answered_here(broker: BrokerComponents, resource: Any, context: RequestContext, *, validate_only: bool) -> bool:
    """Return True if the controller need not see the resource: the levels of loggers are changed here. Raises KafkaError if it is refused."""
    allowed = broker.authorizer.allows(context, ALTER_CONFIGS, CLUSTER, CLUSTER_NAME)
    if resource.resource_type == ResourceType.BROKER_LOGGER and context.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
        if not allowed:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        _change_levels(broker, resource, validate_only=validate_only)
        return True
    if allowed:  # the controller rejects all other clients, which must not find out which files exist
        why = _unusable_stores(broker, resource)
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        _check_values(broker, resource)
    return False


def _check_values(broker: BrokerComponents, resource: Any) -> None:
    """Check the values that this broker would have after the change, which may be a change of its own values or of all brokers'
    defaults.
    """
    levels = broker.configs.levels
    if resource.resource_type != ResourceType.BROKER or resource.resource_name not in ("", str(broker.node_id)):
        return
    before = levels.broker if resource.resource_name else levels.default
    after = _resulting(before, resource.configs)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if changed.isdisjoint(POOL_NAMES | TOPIC_DEFAULTS):
        return
    levels = levels._replace(broker=after) if resource.resource_name else levels._replace(default=after)
    try:
        check_changes(changed, broker.configs.values, broker_values(levels, []))
    except ConfigError as error:
        raise error.as_reply() from None


def _change_levels(broker: BrokerComponents, resource: Any, *, validate_only: bool) -> None:
    """Change all levels that the resource names, or none."""
    if not resource.resource_name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource.resource_name}")
    if resource.resource_name != str(broker.node_id):
        message = f"Unexpected node id. Expected {broker.node_id}, but received {resource.resource_name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    names = [each.name for each in resource.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for only_checked in (True,) if validate_only else (True, False):
        for each in resource.configs:
            log_setup.change_level(each.name, each.config_operation, each.value, validate_only=only_checked)


def _unusable_stores(broker: BrokerComponents, resource: Any) -> str | None:
    """Return why this broker could not use its configuration after the change, or None."""
    if resource.resource_type != ResourceType.BROKER or resource.resource_name != str(broker.node_id):
        return None
    before = broker.configs.levels.broker
    if not any(base_name(name).startswith("ssl.") for name in [*before, *(each.name for each in resource.configs)]):
        return None
    return broker.check_stores(_resulting(before, resource.configs))


def _resulting(before: Mapping[str, str], configs: list[Any]) -> dict[str, str]:
    """Return the dynamic configuration of this broker after the change. Appended elements of lists are left to the controller's own checks."""
    if configs and not hasattr(configs[0], "config_operation"):
        return {each.name: each.value for each in configs if each.value is not None}
    after = dict(before)
    for each in configs:
        if each.config_operation == SET and each.value is not None:
            after[each.name] = each.value
        elif each.config_operation == DELETE:
            after.pop(each.name, None)
    return after
