"""DescribeConfigs (32): the configuration of a topic, node, group or client-metrics subscription, and the source of each value.

    topic           described by any node, with its own values as defaults
    broker          its id: the values of this node, static ones among them, so only the node itself can describe them; "": what is set for all
    broker logger   the loggers of the node with their levels (server/log_setup.py)
    group, client metrics

v0 whether a value is the default · v1 sources and synonyms (KIP-226) · v3 types and documentation (KIP-569) · v4 flexible. Secrets are never returned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from ottla.controller.metadata.configs import ResourceType, has_configs
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topic_names import check_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsSynonym as Synonym,
)
from ottla.protocol.releases import Advertised, Release
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
from ottla.server.config.key import Type, Values

#: The configurations of tables, which no release of Kafka has.
OWN_PREFIX = "ottla."
#: The type of a configuration that Kafka has no definition of.
NO_TYPE = 0


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
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                result.error_message = ""  # as in Kafka, whose tools print it so
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
    if not has_configs(node.advertised.release, resource.resource_type):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_name(name)
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            own = configs.for_topic(name)
            rows = describe_topic(own, node.levels, node.values, resource.configuration_keys or ())
            return _known(node, "topic", rows, own)
        case ResourceType.BROKER if not name:
            return describe_broker_defaults(node.levels)
        case ResourceType.BROKER:
            _check_is_this_node(node, name, " or empty string,")
            return _known(node, "broker", describe_broker(node.levels, node.values), node.levels.names)
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
            return _known(node, "group", describe_group(own, node.levels, node.values), own)
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {unknown}")


def _known(
    node: NodeConfigs, kind: str, rows: list[DescribeConfigsResourceResult], own: Collection[str]
) -> list[DescribeConfigsResourceResult]:
    """Return the configurations that the advertised release has, and all others that are set, because they have an
    effect, too.
    """
    release = node.advertised.release
    lacks = release.lacks_configs(kind)
    # A broker of a cluster with ZooKeeper describes nothing of the quorum, which this node is set up with.
    shown = [row for row in rows if row.name not in lacks or (row.name in own and not release.has_zookeeper)]
    if release.is_newest:
        return shown
    kafkas = [row for row in shown if not row.name.startswith(OWN_PREFIX) or (row.name in own and kind == "topic")]
    return _of_release(kafkas, kind, release, own)


def _of_release(
    rows: list[DescribeConfigsResourceResult], kind: str, release: Release, own: Collection[str]
) -> list[DescribeConfigsResourceResult]:
    """Give the rows a release's types and defaults, and add what only the release has: it is described, and has no effect here."""
    differing = dict(release.own_configs(kind))
    lacks = release.lacks_configs(kind)
    for row in rows:
        if kind == "broker":
            if row.name in lacks or row.config_type == NO_TYPE:
                _hide(row)
            elif row.name in release.dynamic_configs | release.static_configs:
                row.read_only = row.name in release.static_configs
        config = differing.pop(row.name, None)
        if config is not None:
            row.config_type = Type[config.type]
            if row.config_source == ConfigSource.DEFAULT:
                row.value = config.default
                row.synonyms = (
                    [] if config.default is None else [Synonym(row.name, config.default, ConfigSource.DEFAULT)]
                )
    added = [
        DescribeConfigsResourceResult(
            name,
            None if config.type == Type.PASSWORD.name else config.default,
            read_only=kind == "broker" and name not in release.dynamic_configs,
            is_sensitive=config.type == Type.PASSWORD.name,
            config_source=ConfigSource.DEFAULT,
            synonyms=[] if config.default is None else [Synonym(name, config.default, ConfigSource.DEFAULT)],
            config_type=Type[config.type],
            documentation=None,
        )
        for name, config in differing.items()
    ]
    for row in added:
        if isinstance(own, Mapping) and row.name in own:
            row.value, row.config_source = own[row.name], ConfigSource.DYNAMIC_TOPIC
            row.synonyms.insert(0, Synonym(row.name, row.value, row.config_source))
    return sorted(rows + added, key=lambda row: row.name)


def _hide(row: DescribeConfigsResourceResult) -> None:
    """Show a configuration as a broker does that does not know it: it has no type, and may be a secret. Those of the authorizer are
    such, too, which an Ottla node that advertises no other release shows.
    """
    row.value, row.config_type, row.is_sensitive, row.read_only = None, NO_TYPE, True, True
    for synonym in row.synonyms:
        synonym.value = None


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
    row.is_default = row.config_source == ConfigSource.DEFAULT
    return row
