"""Records of streams groups become groups: the only place where their hard state changes."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.records import StreamsKey
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.protocol.internal_topics.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)


def replay(groups: dict[str, StreamsGroup], key: StreamsKey, value: Any) -> None:
    """Any record makes the group, as compaction may have taken the ones before it; the group's own tombstone ends it."""
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return
        group = groups[key.group_id] = StreamsGroup(key.group_id)
    match key:
        case StreamsGroupMetadataKey() if value is None:
            del groups[key.group_id]
        case StreamsGroupMetadataKey():
            group.replay_group(value)
        case StreamsGroupTopologyKey():
            group.replay_topology(value)
        case StreamsGroupMemberMetadataKey():
            group.replay_member(key.member_id, value)
        case StreamsGroupTargetAssignmentMetadataKey():
            group.replay_assignment_epoch(value)
        case StreamsGroupTargetAssignmentMemberKey():
            group.replay_target(key.member_id, value)
        case StreamsGroupCurrentMemberAssignmentKey():
            group.replay_current_assignment(key.member_id, value)
