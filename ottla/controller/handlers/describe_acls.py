"""DescribeAcls (29) on a controller's listener, for clients that bootstrap from controllers (KIP-919)."""

from __future__ import annotations

from ottla.controller.handlers.authorization import require_on_cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.server.authorization.describe_acls import describe_acls
from ottla.server.authorization.operations import DESCRIBE
from ottla.server.network.context import RequestContext


def handle(
    components: ControllerComponents, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    require_on_cluster(components, context, DESCRIBE)
    return describe_acls(components.authorizer, request)
