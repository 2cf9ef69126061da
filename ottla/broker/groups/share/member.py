"""One member of a share group: its subscription, and what it was assigned. All of it is hard state."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.broker.groups.modern.assignment import NOTHING, Assignment
from ottla.protocol.internal_topics.share_group_records import ShareGroupMemberMetadataValue

EMPTY_METADATA = ShareGroupMemberMetadataValue(rack_id=None)


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The member has its target at once: there is no state between, as in the other kinds."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=lambda: NOTHING)


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    metadata: ShareGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    current: CurrentAssignment = CurrentAssignment()
