"""JoinGroup (11): become a member of a classic group; the response waits until all members have joined.

v0 has no rebalance timeout: the session timeout counts · v4 members come back with the id they are given (KIP-394)
v5 group_instance_id (KIP-345) · v7 protocol_type, null protocol_name · v8 reason · v9 skip_assignment (KIP-814).
"""

from __future__ import annotations

from ottla.broker.api._groups import client_of
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

NULL_PROTOCOL_SINCE = 7


def handle(broker: BrokerComponents, request: JoinGroupRequest, context: RequestContext) -> Answer[JoinGroupResponse]:
    if context.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    joined = broker.groups.join(request, client_of(broker, context))
    no_protocol = None if context.api_version >= NULL_PROTOCOL_SINCE else ""

    def shape(response: JoinGroupResponse) -> JoinGroupResponse:
        if not response.protocol_name:
            response.protocol_name = no_protocol
        return response

    return then(joined, shape)
