"""LeaveGroup (13): members go. v0-2 one, its error at the top · v3 many, also by instance id (KIP-345) · v5 reasons."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then


def handle(broker: BrokerComponents, request: LeaveGroupRequest, context: RequestContext) -> Answer[LeaveGroupResponse]:
    if context.api_version >= 3:
        return broker.groups.leave(request)
    request.members = [MemberIdentity(request.member_id)]
    return then(broker.groups.leave(request), _of_one_member)


def _of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error = response.error_code or next((member.error_code for member in response.members), 0)
    return LeaveGroupResponse(error_code=error)
