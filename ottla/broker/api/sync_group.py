"""SyncGroup (14): the leader sends the assignment, each member gets its part; the others wait for the leader.

v3 group_instance_id (KIP-345) · v5 protocol type and name, both needed and compared (KIP-559).

Errors:
    INCONSISTENT_GROUP_PROTOCOL  no protocol type or name, from v5 on
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer


def handle(broker: BrokerComponents, request: SyncGroupRequest, context: RequestContext) -> Answer[SyncGroupResponse]:
    if context.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return broker.groups.sync(request)
