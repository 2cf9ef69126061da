"""Describing and listing groups."""

from __future__ import annotations

from collections.abc import Sequence, Set

from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_states import DEAD, STABLE
from ottla.broker.groups.state.group import Group
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup


def describe(shard: GroupMetadataManager, group_ids: Sequence[str], error_since: bool) -> list[DescribedGroup]:
    """Describe groups; unknown ones are Dead, and since v6 (`error_since`) have an error, too (KIP-1043)."""
    return [
        DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if group_id in shard.unreadable
        else _describe_one(shard, group_id, error_since)
        for group_id in group_ids
    ]


def _describe_one(shard: GroupMetadataManager, group_id: str, error_since: bool) -> DescribedGroup:
    try:
        group = shard.group(ClassicGroup, group_id)
    except KafkaError as error:
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if error_since:
            described.error_code, described.error_message = error.code, error.message
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


def groups_of(shard: GroupMetadataManager, types: Set[str]) -> list[Group]:
    """Return the shard's groups of one of the types; an empty filter matches all."""
    return [group for group in shard.groups.values() if not types or group.type.value in types]


def listed(group: Group, states: Set[str]) -> ListedGroup | None:
    """Return None for a group in another state than these."""
    state = group.state.value
    if states and state.lower() not in states:
        return None
    return ListedGroup(group.group_id, group.protocol_type or "", state, group.type.value)
