"""DescribeUserScramCredentials (50) on a broker's listener, from the broker's metadata."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.describe_scram import describe_scram_credentials
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.server.network.context import RequestContext


def handle(
    broker: BrokerComponents, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    return describe_scram_credentials(broker.metadata.image.scram, request)
