"""DescribeConfigs (32): what a topic, node, group or client-metrics subscription is configured with, and from where.

    topic           described by any node, with its own values as defaults
    broker          its id: the values of this node, static ones among them, so only the node itself can describe them; "": what is set for all
    broker logger   the loggers of the node with their levels (server/log_setup.py)
    group, client metrics

v1 sources and synonyms (KIP-226) · v3 types and documentation (KIP-569) · v4 flexible. Secrets are never returned.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topic_names import name_fault
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import Advertised
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.server import log_setup
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, GROUP, TOPIC
from ottla.server.config.dynamic import (
    ConfigSource,
    Levels,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.server.config.key import Values


class NodeConfigs(Protocol):
    """The configuration of a node: the values of each level, and those that result."""

    @property
    def node_id(self) -> int: ...
    @property
    def levels(self) -> Levels: ...
    @property
    def values(self) -> Values: ...
    @property
    def advertised(self) -> Advertised: ...


def guard_of(resource: DescribeConfigsResource) -> tuple[int, str] | None:
    """Return type and name of the resource on which DESCRIBE_CONFIGS is needed: configs of brokers and of client metrics subscriptions
    belong to the cluster. None for a resource type that does not exist."""
    match resource.resource_type:
        case ResourceType.TOPIC:
            return TOPIC, resource.resource_name
        case ResourceType.GROUP:
            return GROUP, resource.resource_name
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            return CLUSTER, CLUSTER_NAME
    return None


def describe_configs(
    image: MetadataImage, node: NodeConfigs, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe the resources of a request; the error of one does not concern the others."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        try:
            asked = None if not resource.configuration_keys else set(resource.configuration_keys)
            result = result_of(resource)
            result.configs = [
                _as_asked(row, request)
                for row in _describe(image, node, resource)
                if asked is None or row.name in asked
            ]
        except KafkaError as error:
            result = result_of(resource, error)
        response.results.append(result)
    return response


def result_of(resource: DescribeConfigsResource, error: KafkaError | None = None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message="" if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _describe(
    image: MetadataImage, node: NodeConfigs, resource: DescribeConfigsResource
) -> Collection[DescribeConfigsResourceResult]:
    configs, name = image.configs, resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if name_fault(name):
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            own = configs.for_topic(name)
            return _known(node, describe_topic(own, node.levels, node.values, resource.configuration_keys or ()), own)
        case ResourceType.BROKER if not name:
            return describe_broker_defaults(node.levels)
        case ResourceType.BROKER:
            _check_is_this_node(node, name, " or empty string,")
            return _known(node, describe_broker(node.levels, node.values), frozenset().union(*node.levels))
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_is_this_node(node, name, "")
            return _loggers()
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(configs.for_client_metrics(name))
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            own = configs.for_group(name)
            return _known(node, describe_group(own, node.levels, node.values), own)
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {unknown}")


def _known(
    node: NodeConfigs, rows: list[DescribeConfigsResourceResult], own: Collection[str]
) -> list[DescribeConfigsResourceResult]:
    """Return the configurations that the advertised release has, and those that are set all the same, as they have an effect."""
    lacks = node.advertised.release.lacks_configs
    return [row for row in rows if row.name not in lacks or row.name in own]


def _check_is_this_node(node: NodeConfigs, name: str, otherwise: str) -> None:
    if not name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node.node_id:
        message = f"Unexpected broker id, expected {node.node_id}{otherwise} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _loggers() -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(name, level, config_source=ConfigSource.DYNAMIC_BROKER_LOGGER, documentation=None)
        for name, level in log_setup.levels()
    ]


def _as_asked(row: DescribeConfigsResourceResult, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    if not request.include_synonyms:
        row.synonyms = []
    if not request.include_documentation:
        row.documentation = None
    return row
