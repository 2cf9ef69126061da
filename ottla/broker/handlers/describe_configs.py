"""DescribeConfigs (32) on a broker's listener: with the broker's own configuration and metadata."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.describe_configs import describe_configs
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.server.network.context import RequestContext


def handle(
    broker: BrokerComponents, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    return describe_configs(broker.metadata.image, broker.configs, request)
