"""Sessions of streams members begin again when their coordinator is loaded, some in each turn of the event loop."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.sweep import sweep
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.sessions import keep_alive

SWEEP_KEY = "streams-sessions-after-load"
#: To begin a session schedules a timer, which takes as long as this many looks of a sweep.
SESSION_LOOKS = 4


def begin_sessions(shard: GroupShard) -> None:
    def members() -> Iterator[tuple[StreamsGroup, str]]:
        for group in shard.groups_of(StreamsGroup):
            if group.group_id not in shard.unreadable:
                for member_id in list(group.members):
                    yield group, member_id

    def begin(of: tuple[StreamsGroup, str], records: list[CoordinatorRecord]) -> int:
        """Other requests are served between the turns: a member that has left meanwhile gets no session."""
        group, member_id = of
        if shard.groups.get(group.group_id) is group and member_id in group.members:
            keep_alive(shard, group, group.members[member_id])
        return SESSION_LOOKS

    sweep(shard.timers, SWEEP_KEY, members(), begin)
