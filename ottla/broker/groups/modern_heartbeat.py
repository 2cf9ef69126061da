"""What the heartbeats of consumer, share and streams groups have in common: checks of the request and the epoch, and the next epoch.

A heartbeat is checked for its form, the group's size, and the member's epoch. Then it is up to four decisions, each appended and replayed
before the next: the member's metadata and the group's epoch; the target of that epoch; the member's next step.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.group import GroupType
from ottla.broker.groups.state.modern_group import AnyModernGroup
from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)


def check(is_right: object, message: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_ids(request: Any, *, has_member_id: bool = True) -> None:
    """The ids that a request gives are not blank."""
    if has_member_id:
        check(request.member_id.strip(), "MemberId can't be empty.")
    check(request.group_id.strip(), "GroupId can't be empty.")
    instance_id = getattr(request, "instance_id", None)
    check(instance_id is None or instance_id.strip(), "InstanceId can't be empty.")
    check(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")


def check_size(group: AnyModernGroup, member_id: str, size_max: int) -> None:
    if member_id not in group.members and len(group.members) >= size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {group.type.value} group has reached its maximum capacity of {size_max} members.",
        )


def fenced(kind: GroupType, epoch: int, current_epoch: int, also: str = "") -> KafkaError:
    """The error for a member in another epoch than the one that the coordinator knows."""
    word = "greater" if epoch > current_epoch else "smaller"
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind.value} group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({current_epoch}){also}. The member must abandon all its partitions and rejoin.",
    )


def bump_epoch(shard: GroupMetadataManager, group: AnyModernGroup, record: CoordinatorRecord) -> CoordinatorRecord:
    """Count and log the group's next epoch, whose record this is."""
    shard.counts.rebalances[group.type] += 1
    log.info("[GroupId %s] Bumped group epoch to %d.", group.group_id, group.epoch + 1)
    return record
