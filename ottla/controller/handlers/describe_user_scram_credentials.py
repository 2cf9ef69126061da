"""DescribeUserScramCredentials (50) on a controller's listener, for clients that bootstrap from controllers (KIP-919)."""

from __future__ import annotations

from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.describe_scram import describe_scram_credentials
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.server.authorization.operations import DESCRIBE
from ottla.server.network.context import RequestContext


def handle(
    components: ControllerComponents, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    require_on_cluster(components, context, DESCRIBE)
    return describe_scram_credentials(components.controller.loader.image.scram, request)
