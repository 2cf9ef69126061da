"""Dynamic configurations. AlterConfigs: replace the whole dynamic configuration of resources. IncrementalAlterConfigs: set, delete, append to, subtract
from single configs (KIP-339). Resources that the client may not change, or that are named twice, get errors; the others are decided.
DescribeConfigs: also the configuration of a controller itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.controller.decisions.configs import Alter, AlterResult, Change, ConfigOp, alter_in_turns
from ottla.controller.decisions.control_state import ControlSettings, ControlState
from ottla.controller.decisions.outcome import Decision, Outcome, in_turns
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.describe_configs import describe_configs, guard_of, result_of
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.shared_structs import AlterConfigsResourceResponse
from ottla.server.authorization.operations import ALTER_CONFIGS, AUTHORIZATION_ERRORS, DESCRIBE_CONFIGS, GROUP, TOPIC
from ottla.server.config.dynamic import Levels, broker_values, release_defaults
from ottla.server.config.key import Values
from ottla.server.network.context import Reply, RequestContext

T = TypeVar("T")


def handle_alter(
    components: ControllerComponents, request: AlterConfigsRequest, context: RequestContext
) -> Reply[AlterConfigsResponse]:
    wanted, rejected = _sort_out(components, context, request.resources)
    changes = [
        (each.resource_type, each.resource_name, {config.name: config.value for config in each.configs})
        for each in wanted
    ]
    alter = partial(components.configs.legacy_alter, validate_only=request.validate_only)
    return _written(components, changes, alter, rejected, AlterConfigsResponse)


def handle_alter_incrementally(
    components: ControllerComponents, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Reply[IncrementalAlterConfigsResponse]:
    wanted, rejected = _sort_out(components, context, request.resources)
    changes = [
        (
            each.resource_type,
            each.resource_name,
            {config.name: (config.config_operation, config.value) for config in each.configs},
        )
        for each in wanted
    ]
    alter = partial(components.configs.incremental_alter, validate_only=request.validate_only)
    return _written(components, changes, alter, rejected, IncrementalAlterConfigsResponse)


def _written(
    components: ControllerComponents,
    changes: Sequence[Change],
    alter: Alter,
    rejected: Sequence[AlterResult],
    response: Callable[..., T],
) -> Reply[T]:
    def decide(state: ControlState) -> Decision[T]:
        records, results = yield from alter_in_turns(state, changes, alter)
        return Outcome(records, response(responses=_responses([*rejected, *results])))

    return components.controller.write_in_turns(in_turns(decide))


def _responses(results: Iterable[AlterResult]) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else error.own_words,
            resource_type=resource_type,
            resource_name=resource,
        )
        for resource_type, resource, error in results
    ]


def _sort_out(
    components: ControllerComponents, context: RequestContext, resources: Sequence[Any]
) -> tuple[list[Any], list[AlterResult]]:
    """Split the resources into valid ones, and errors for the others: unknown, named twice, not authorized."""
    seen: set[tuple[int, str]] = set()
    duplicate: set[tuple[int, str]] = set()
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        (duplicate if key in seen else seen).add(key)
    wanted: list[Any] = []
    rejected = [
        AlterResult(*key, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")) for key in sorted(duplicate)
    ]
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        if key in duplicate:
            continue
        error = _authorization_error(components, context, *key) or _senseless(resource.configs)
        if error is None:
            wanted.append(resource)
        else:
            rejected.append(AlterResult(*key, error))
    return wanted, rejected


def _senseless(configs: Sequence[Any]) -> KafkaError | None:
    """Return the error of a resource's changes that is independent of the resource, or None."""
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
            if not components.allows_on_cluster(context, ALTER_CONFIGS):
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


class ControllerConfigs:
    """The configuration of a controller: its properties file, below what the metadata has for its node id and for all nodes."""

    def __init__(self, settings: ControlSettings, static: Mapping[str, str], image: MetadataImage) -> None:
        self.node_id = node_id = settings.node_id
        self.advertised = settings.advertised
        self.levels = Levels(
            dict(image.configs.for_broker(node_id)),
            dict(image.configs.for_broker("")),
            static,
            release_defaults(settings.advertised.release),
        )

    @property
    def values(self) -> Values:
        return broker_values(self.levels, [])


def handle_describe(
    components: ControllerComponents, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """DescribeConfigs on a controller's listener, for clients that bootstrap from controllers (KIP-919)."""
    image = components.controller.loader.image
    configs = ControllerConfigs(components.controller.settings, components.static_configs, image)
    rejected = []
    allowed = []
    for resource in request.resources:
        guard = guard_of(resource)
        if guard is None or components.authorizer.allows(context, DESCRIBE_CONFIGS, *guard):
            allowed.append(resource)
        else:
            code = AUTHORIZATION_ERRORS[guard[0]]
            rejected.append(result_of(resource, KafkaError(code, code.message)))
    request.resources = allowed
    response = describe_configs(image, configs, request)
    response.results += rejected
    return response
