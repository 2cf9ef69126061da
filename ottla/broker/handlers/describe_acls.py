"""DescribeAcls (29) on a broker's listener: the entries that its authorizer has."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.server.authorization.describe_acls import describe_acls
from ottla.server.network.context import RequestContext


def handle(broker: BrokerComponents, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return describe_acls(broker.authorizer, request)
