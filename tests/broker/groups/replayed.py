"""The state that a log of `__consumer_offsets` describes, made without a coordinator."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.group_config import GroupCoordinatorConfig
from ottla.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from ottla.broker.groups.group_metadata_manager import GroupCounts
from ottla.broker.groups.group_stories import GroupStories
from tests.broker.groups.cluster import cluster_of


def empty_shard() -> GroupCoordinatorShard:
    timers = Timers(lambda: 0, lambda deadline_ms: None)
    return GroupCoordinatorShard(
        timers,
        GroupCoordinatorConfig(),
        lambda: 0,
        lambda: "x",
        cluster_of(),
        GroupCounts(),
        lambda: 0,
        GroupStories("group", lambda: 0),
    )


def replayed(records: list[tuple[int, Any, Any]]) -> GroupCoordinatorShard:
    shard = empty_shard()
    for offset, key, value in records:
        shard.replay(offset, -1, key, value)
    return shard


def compacted(records: list[tuple[int, Any, Any]]) -> list[tuple[int, Any, Any]]:
    """Return the last record of every key, without tombstones."""
    last = {repr(key): offset for offset, key, _ in records}
    return [record for record in records if last[repr(record[1])] == record[0] and record[2] is not None]


def group_view(shard: GroupCoordinatorShard, group_id: str) -> dict[str, Any]:
    """Return the state of a group that the log has to determine."""
    group = shard.groups[group_id]
    return {
        "state": group.state,
        "generation": group.generation,
        "protocol": (group.protocol_type, group.protocol_name),
        "leader": group.leader,
        "static": dict(group.static_members),
        "topics": group.subscribed_topics,
        "members": [
            (
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.session_timeout_ms,
                m.assignment,
                m.metadata(group.protocol_name),
            )
            for m in group.members.values()
        ],
    }
