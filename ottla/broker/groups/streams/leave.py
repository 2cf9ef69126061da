"""A member leaves by a last heartbeat, at epoch -1. Its tasks go to others with the group's next epoch."""

from __future__ import annotations

import logging

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.modern import sessions
from ottla.broker.groups.streams.answer import StreamsAnswer
from ottla.broker.groups.streams.streams_group import StreamsGroup
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

log = logging.getLogger(__name__)


def leave(shard: GroupMetadataManager, request: StreamsGroupHeartbeatRequest) -> Outcome[StreamsAnswer]:
    group_id, member_id = request.group_id, request.member_id
    group = shard.group(StreamsGroup, group_id)
    if request.shutdown_application and group.members:
        # Also of a member whose session has ended meanwhile. A group without members has no application to shut down.
        group.request_shutdown(member_id)
    group.member(member_id)
    log.info("[GroupId %s] Member %s left the streams group.", group_id, member_id)

    response = StreamsGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    return sessions.removal(shard, group, [member_id], StreamsAnswer(response))
