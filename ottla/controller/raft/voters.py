"""The voter set and its history by offset of the log.

A change of the set takes effect when it is appended, not when it is committed (KIP-853). That makes one change at a time
safe, because the majorities of two consecutive sets always overlap. A truncation of the record undoes the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import NamedTuple

from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.slotted import frozen, mutable

#: kraft.version: with 0 the voters are configured, with 1 they are in VotersRecords in the log (KIP-853).
STATIC_VOTERS = 0
DYNAMIC_VOTERS = 1


class ReplicaKey(NamedTuple):
    """A replica's node id and the directory id of its log: a node with a wiped disk is another replica."""

    id: int
    directory_id: bytes = ZERO_UUID

    @property
    def knows_directory(self) -> bool:
        return self.directory_id != ZERO_UUID

    def __str__(self) -> str:
        return f"{self.id}" if not self.knows_directory else f"{self.id}/{self.directory_id.hex()[:8]}"


class QuorumEndpoint(NamedTuple):
    """The address of a replica's listener, and the listener's name."""

    name: str
    host: str
    port: int


QuorumEndpoints = tuple[QuorumEndpoint, ...]


@frozen
class Voter:
    """One voter with its endpoints and the kraft.version levels it supports."""

    key: ReplicaKey
    endpoints: QuorumEndpoints = ()
    kraft_version_min: int = STATIC_VOTERS
    kraft_version_max: int = DYNAMIC_VOTERS

    @property
    def id(self) -> int:
        return self.key.id

    def is_replica(self, replica: ReplicaKey) -> bool:
        """Return whether this voter is the replica. A static voter has no directory id, so that its node id alone decides."""
        return self.key.id == replica.id and (not self.key.knows_directory or self.key == replica)


@frozen
class VoterSet:
    """The voters, ordered by node id; a node id occurs once."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        ordered = tuple(sorted(voters, key=lambda voter: voter.id))
        assert len({voter.id for voter in ordered}) == len(ordered), f"a node id is there twice: {ordered}"
        return cls(ordered)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.id for voter in self.voters)

    def get(self, node_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def endpoints(self, node_id: int) -> QuorumEndpoints:
        voter = self.get(node_id)
        return voter.endpoints if voter else ()

    def is_voter(self, replica: ReplicaKey) -> bool:
        voter = self.get(replica.id)
        return voter is not None and voter.is_replica(replica)

    def is_only_voter(self, replica: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.is_voter(replica)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def with_voter(self, voter: Voter) -> VoterSet | None:
        """Return the set with one voter more; None if its node id is a voter already."""
        if self.get(voter.id) is not None:
            return None
        return VoterSet.of((*self.voters, voter))

    def without(self, replica: ReplicaKey) -> VoterSet | None:
        """Return the set with one voter less; None if it is not in the set, or is the last voter."""
        if not self.is_voter(replica) or len(self.voters) == 1:
            return None
        return VoterSet(tuple(voter for voter in self.voters if voter.id != replica.id))

    def updated(self, voter: Voter) -> VoterSet | None:
        """Return the set with new endpoints or versions of one of its voters; None if that replica is not in it."""
        if not self.is_voter(voter.key):
            return None
        return VoterSet(tuple(voter if known.id == voter.id else known for known in self.voters))


@mutable
class VoterHistory:
    """Every voter set and kraft.version since the oldest snapshot, by the offset of its record."""

    static: VoterSet
    _sets: list[tuple[int, VoterSet]] = field(default_factory=list)
    _versions: list[tuple[int, int]] = field(default_factory=list)

    @property
    def last(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self.static

    @property
    def last_offset(self) -> int | None:
        """The offset of the last set's record; None if the set is configured."""
        return self._sets[-1][0] if self._sets else None

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else STATIC_VOTERS

    def at(self, offset: int) -> VoterSet:
        """Return the set of a log that ends at `offset`: records below it count."""
        return next((voters for start, voters in reversed(self._sets) if start < offset), self.static)

    def kraft_version_at(self, offset: int) -> int:
        return next((version for start, version in reversed(self._versions) if start < offset), STATIC_VOTERS)

    def append(self, offset: int, voters: VoterSet | None, kraft_version: int | None) -> None:
        if kraft_version is not None:
            self._versions.append((offset, kraft_version))
        if voters is not None:
            assert not self._sets or self._sets[-1][0] < offset, "voter sets are added in the log's order"
            self._sets.append((offset, voters))

    def merge(self, offset: int, voters: VoterSet | None, kraft_version: int | None) -> None:
        """Add a record of the log at start. A snapshot may already have the same set, or a later one."""
        if voters is not None:
            self._sets = sorted({**dict(self._sets), offset: voters}.items(), key=lambda entry: entry[0])
        if kraft_version is not None:
            self._versions = sorted({**dict(self._versions), offset: kraft_version}.items())

    def truncate_to(self, end_offset: int) -> None:
        """Drop the sets whose records a truncation of the log removed."""
        while self._sets and self._sets[-1][0] >= end_offset:
            self._sets.pop()
        while self._versions and self._versions[-1][0] >= end_offset:
            self._versions.pop()

    def reset_to_snapshot(self, end_offset: int, voters: VoterSet | None, kraft_version: int | None) -> None:
        """Replace the history by the set in a snapshot, which replaces the log."""
        self._sets.clear()
        self._versions.clear()
        self.append(end_offset - 1, voters, kraft_version)

    def forget_before(self, start_offset: int) -> None:
        """Drop the entries before a new log start, except the last one below that offset, which is still in effect."""
        for entries in (self._sets, self._versions):
            while len(entries) > 1 and entries[1][0] < start_offset:
                del entries[0]
