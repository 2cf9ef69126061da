"""Validation shared by AlterConfigs and IncrementalAlterConfigs: which resources of a request may be changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.controller.decisions.configs import ConfigOp
from ottla.controller.handlers.authorization import allowed_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization.operations import ALTER_CONFIGS, GROUP, TOPIC
from ottla.server.network.context import RequestContext


class RejectedResource(NamedTuple):
    resource_type: int
    resource_name: str
    error: KafkaError


def sort_out(
    components: ControllerComponents, context: RequestContext, resources: Sequence[Any]
) -> tuple[list[Any], list[RejectedResource]]:
    """Splits the resources into valid ones, and errors for the others: unknown, named twice, not authorized."""
    seen: set[tuple[int, str]] = set()
    duplicate: set[tuple[int, str]] = set()
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        (duplicate if key in seen else seen).add(key)
    wanted: list[Any] = []
    rejected = [
        RejectedResource(*key, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource."))
        for key in sorted(duplicate)
    ]
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        if key in duplicate:
            continue
        error = _authorization_error(components, context, *key) or _senseless(resource.configs)
        if error is None:
            wanted.append(resource)
        else:
            rejected.append(RejectedResource(*key, error))
    return wanted, rejected


def _senseless(configs: Sequence[Any]) -> KafkaError | None:
    """Returns the error of a resource's changes that is independent of the resource, or None."""
    names = [config.name for config in configs]
    if len(set(names)) < len(names):
        return KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        config.name
        for config in configs
        if config.value is None and getattr(config, "config_operation", ConfigOp.SET) != ConfigOp.DELETE
    ]
    if nulls:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    return None


def _authorization_error(
    components: ControllerComponents, context: RequestContext, resource_type: int, name: str
) -> KafkaError | None:
    match resource_type:
        case ResourceType.BROKER | ResourceType.CLIENT_METRICS:
            if not allowed_on_cluster(components, context, ALTER_CONFIGS):
                return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        case ResourceType.TOPIC:
            if not components.authorizer.allows(context, ALTER_CONFIGS, TOPIC, name):
                return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        case ResourceType.GROUP:
            if not components.authorizer.allows(context, ALTER_CONFIGS, GROUP, name):
                return KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        case ResourceType.BROKER_LOGGER:
            # Loggers belong to the broker that the request names, and that broker responds.
            return KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER.")
        case _:
            return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    return None
