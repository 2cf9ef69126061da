"""Describing, listing and deleting groups."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups import offsets
from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.classic.state import DEAD, STABLE
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.records import group_tombstones
from ottla.broker.groups.records import group_metadata_record
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.group import ShareGroup
from ottla.broker.groups.share.records import group_tombstones as share_group_tombstones
from ottla.broker.groups.streams import records as streams_records
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup

log = logging.getLogger(__name__)

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"


def describe(shard: GroupShard, group_ids: Sequence[str], error_since: bool) -> list[DescribedGroup]:
    """Describe groups; unknown ones are Dead, and since v6 (`error_since`) have an error, too (KIP-1043)."""
    return [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if group_id in shard.unreadable
        else _describe_one(shard.any_group(group_id), group_id, error_since, group_id in shard.share_groups)
        for group_id in group_ids
    ]


def _describe_one(
    group: ClassicGroup | ConsumerGroup | StreamsGroup | None, group_id: str, error_since: bool, is_share_group: bool
) -> DescribedGroup:
    if not isinstance(group, ClassicGroup):
        is_known = is_share_group or group is not None
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if error_since:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            why = "is not a classic group" if is_known else "not found"
            described.error_message = f"Group {group_id} {why}."
        return described
    stable = group.state is STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup

KINDS: dict[type[AnyGroup], str] = {
    ClassicGroup: CLASSIC,
    ConsumerGroup: CONSUMER,
    ShareGroup: SHARE,
    StreamsGroup: STREAMS,
}


def groups_of(shard: GroupShard, types: Set[str]) -> list[AnyGroup]:
    """Return the shard's groups of one of the types; an empty filter matches all."""
    kinds: tuple[tuple[str, Mapping[str, AnyGroup]], ...] = (
        (CLASSIC, shard.groups),
        (CONSUMER, shard.consumer_groups),
        (SHARE, shard.share_groups),
        (STREAMS, shard.streams_groups),
    )
    return [group for kind, groups in kinds if not types or kind in types for group in groups.values()]


def listed(group: AnyGroup, states: Set[str]) -> ListedGroup | None:
    """Return None for a group in another state than these."""
    state, kind = group.state.value, KINDS[type(group)]
    if states and state.lower() not in states:
        return None
    protocol = (group.protocol_type or "") if isinstance(group, ClassicGroup) else kind
    return ListedGroup(group.group_id, protocol, state, kind)


def tombstones(group_id: str, group: AnyGroup | None) -> Iterable[CoordinatorRecord]:
    """The group's own: its offsets' come first."""
    if isinstance(group, ShareGroup):
        return share_group_tombstones(group)
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    if isinstance(group, StreamsGroup):
        return streams_records.group_tombstones(group)
    return [group_metadata_record(group_id, None)]


def delete(shard: GroupShard, now_ms: int, group_ids: Sequence[str]) -> Outcome[list[DeletableGroupResult]]:
    """Write tombstones for the groups without members, and for their offsets: in as many batches as they need, a group's own last.

    The response is a list of results. All of it is one turn, because a group that gets a member in between keeps its offsets.

    A group with a record that could not be replayed is deleted in every state, because it serves no member.
    """
    records: list[CoordinatorRecord] = []
    results = []
    for group_id in group_ids:
        result = DeletableGroupResult(group_id=group_id)
        try:
            unreadable = shard.unreadable.get(group_id, {})
            group = shard.any_group(group_id) or shard.share_groups.get(group_id)
            if group is None and not unreadable:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if group is not None and not unreadable:
                group.validate_delete()
            records.extend((key, None) for key in unreadable.values())
            records.extend(offsets.tombstones(shard, group_id))
            records.extend(tombstones(group_id, group))
        except KafkaError as error:
            result.error_code = error.code
        results.append(result)

    def deleted() -> Unasked:
        names = ", ".join(result.group_id for result in results if result.error_code == ErrorCode.NONE)
        log.info("The following groups were deleted: %s", names)
        return Outcome()

    return Outcome(records, results, then=deleted if records else None, atomic=False)
