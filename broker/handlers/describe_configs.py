"""DescribeConfigs (32): what a topic, broker, group or client-metrics subscription is configured with, and from where.

    topic           answered by any broker, with its own broker's values as defaults
    broker          its id: this broker's values, static ones among them, so only this broker can say; "": what all brokers have set
    broker logger   the root logger and those of the packages, with their levels
    group, client metrics

v1 sources and synonyms (KIP-226) · v3 types and documentation (KIP-569) · v4 flexible. Secrets are never returned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.broker.components import BrokerComponents
from ottla.broker.topic_names import is_valid_topic_name
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.server.config.dynamic import (
    Described,
    Source,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.server.config.key import Type
from ottla.server.network.context import RequestContext

#: Python's level names are Kafka's but for these two.
LOG_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
PACKAGES = ("protocol", "storage", "server", "controller", "broker", "ottla")


def handle(
    broker: BrokerComponents, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            asked = None if not resource.configuration_keys else set(resource.configuration_keys)
            result.configs = [
                _row(row, request) for row in _describe(broker, resource) if asked is None or row.name in asked
            ]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        response.results.append(result)
    return response


def _describe(broker: BrokerComponents, resource: DescribeConfigsResource) -> Collection[Described]:
    configs, name = broker.metadata.image.configs, resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            if not is_valid_topic_name(name):
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            if name not in broker.metadata.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(configs.for_topic(name), broker.configs.levels, broker.configs.values)
        case ResourceType.BROKER if not name:
            return describe_broker_defaults(broker.configs.levels)
        case ResourceType.BROKER:
            _check_is_this_broker(broker, name)
            return describe_broker(broker.configs.levels, broker.configs.values)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_is_this_broker(broker, name)
            return _loggers()
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(configs.for_client_metrics(name))
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return describe_group(configs.for_group(name), broker.configs.levels, broker.configs.values)
        case unknown:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {unknown}")


def _check_is_this_broker(broker: BrokerComponents, name: str) -> None:
    if not name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
        )


def _loggers() -> list[Described]:
    rows = []
    for name in ("root", *PACKAGES):
        level = logging.getLevelName(logging.getLogger(None if name == "root" else name).getEffectiveLevel())
        level = LOG_LEVELS.get(level, level)
        rows.append(Described(name, level, False, Source.DYNAMIC_BROKER_LOGGER, False, [], Type.STRING, None))
    return rows


def _row(row: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.sensitive,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in row.synonyms]
        if request.include_synonyms
        else [],
        config_type=row.type,
        documentation=row.doc if request.include_documentation else None,
    )
