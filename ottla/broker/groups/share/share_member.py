"""One member of a share group: its subscription, and what it was assigned. All of it is hard state."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.broker.groups.modern.assignment import NOTHING, Assignment
from ottla.broker.groups.modern.member_state import Progress
from ottla.protocol.internal_topics.share_group_records import ShareGroupMemberMetadataValue

EMPTY_METADATA = ShareGroupMemberMetadataValue(rack_id=None)


@dataclass(frozen=True, slots=True)
class CurrentAssignment(Progress):
    """The member has its target at once: there is no state between, as in the other kinds."""

    assigned: Assignment = field(default_factory=lambda: NOTHING)


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    metadata: ShareGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    current: CurrentAssignment = CurrentAssignment()
