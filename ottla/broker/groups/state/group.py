"""The interface that a group has to its shard, to offsets and to administrators, as Kafka's `Group`: no caller asks for the kind.

Code of one kind looks its groups up by their class (`GroupMetadataManager.find` and `GroupMetadataManager.group`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.state.commits import Commit
from ottla.broker.groups.state.committed import CommittedOffset


class GroupType(Enum):
    """Values are the names on the wire."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


#: Returns the time from which the retention of a committed offset counts; None if the group's offsets do not expire at present.
OffsetExpiration: TypeAlias = Callable[[CommittedOffset], int] | None


class Group(Protocol):
    """A group of any kind."""

    type: ClassVar[GroupType]
    #: Whether the group ends when it has neither members nor offsets.
    should_expire: ClassVar[bool]

    @property
    def group_id(self) -> str: ...
    @property
    def members(self) -> Mapping[str, Any]: ...
    @property
    def state(self) -> Enum: ...
    @property
    def generation(self) -> int:
        """The epoch of a group of the new protocols."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The name that the members' clients gave, or the kind; None for a group that has had no members."""
        ...

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the offsets of the topic are in use: they are neither deleted nor expire."""
        ...

    def validate_offset_commit(self, commit: Commit) -> None: ...
    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None: ...
    def validate_offset_delete(self) -> None: ...
    def validate_delete(self) -> None: ...

    def tombstones(self) -> Iterable[CoordinatorRecord]:
        """The tombstones of the group itself: those of its offsets come first."""
        ...

    def offset_expiration(self) -> OffsetExpiration: ...


def commit_time(offset: CommittedOffset) -> int:
    """The condition of groups whose offsets expire some time after their commit."""
    return offset.commit_timestamp_ms
