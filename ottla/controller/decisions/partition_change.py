"""Change of one partition: from the requested change to one PartitionChangeRecord with ISR, leader, ELR and replicas.

Theory. The controller never moves data; it decides which replica may lead. A new leader must have every committed record:

- any member of the ISR has them (the leader waits for all of the ISR before the high watermark moves);
- while |ISR| < min.insync.replicas the high watermark does not move, so replicas that leave the ISR then still have
  everything committed. They are the ELR (KIP-966) and may lead when the ISR is empty. A replica whose broker came back
  from an unclean shutdown may have lost its tail: it leaves ISR and ELR for good;
- the last leader before the partition had none is kept in last_known_elr. It is elected if ISR and ELR are empty, which
  counts as an unclean election; it is not elected while its log directory is lost (directories.py);
- any other replica is elected only with unclean.leader.election.enable. An unclean leader starts as the whole ISR, RECOVERING.

Invariants of every result (asserted): ISR and ELR share no member; |ISR| >= min ISR means the ELR is empty; a leader is
in the ISR. A reassignment that the new ISR completes is completed in the same record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum

from ottla.controller.metadata.topics import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionRegistration,
)
from ottla.protocol.features import MV_DIRECTORIES
from ottla.protocol.internal_topics.metadata_records import PartitionChangeRecord
from ottla.protocol.slotted import mutable

# Below this metadata.version a shrunk ISR needs a new leader epoch: followers of that time had KAFKA-15021.
MV_NO_EPOCH_BUMP_ON_SHRINK = 12


class Election(Enum):
    PREFERRED = "the preferred replica if it may lead, else as ONLINE"
    ONLINE = "keep the leader if it may lead, else any replica that has all committed records"
    UNCLEAN = "as ONLINE, and if there is none, any replica that is alive"


@mutable
class PartitionChange:
    """Set the requested fields, then call `record()`, which returns None if nothing changes. A field of None stays unchanged."""

    partition: PartitionRegistration
    topic_id: bytes
    index: int
    may_lead: Callable[[int], bool]
    default_directory: Callable[[int], bytes]
    metadata_version: int
    min_isr: int
    elr_enabled: bool
    election: Election = Election.ONLINE
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    leader_recovery_state: int | None = None
    unclean_shutdown: frozenset[int] = frozenset()
    directories: dict[int, bytes] = field(default_factory=dict)
    _elr: tuple[int, ...] = ()

    def record(self) -> PartitionChangeRecord | None:
        before = self.partition
        self.isr = before.isr if self.isr is None else self.isr
        self.replicas = before.replicas if self.replicas is None else self.replicas
        self.removing = before.removing_replicas if self.removing is None else self.removing
        self.adding = before.adding_replicas if self.adding is None else self.adding
        done = completed(self.removing, self.adding, self.replicas, self.isr)
        if done is not None:
            self.replicas, self.isr = done
            self.removing = self.adding = ()

        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.index)
        self._populate_elr()
        self._elect(record)
        self._bump_epoch_of_removed_replicas(record)
        self._write_elr(record)
        if record.isr is None and self.isr != before.isr and (self.isr or self.elr_enabled):
            record.isr = list(self.isr)
        self._bump_epoch_of_old_shrink(record)
        self._write_last_known_leader(record)
        self._write_assignment(record)
        if self.leader_recovery_state not in (None, before.leader_recovery_state):
            record.leader_recovery_state = self.leader_recovery_state
        if record == PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.index):
            return None  # nothing changes
        self._check(before.merge(record))
        return record

    # The ELR is computed before the election, which may use it.
    def _populate_elr(self) -> None:
        if not self.elr_enabled:
            return
        assert self.isr is not None and self.replicas is not None
        if len(self.isr) >= self.min_isr:
            self._elr = ()
            return
        candidates = sorted({*self.partition.elr, *self.partition.isr})
        self._elr = tuple(
            replica
            for replica in candidates
            if replica not in self.isr and replica not in self.unclean_shutdown and replica in self.replicas
        )

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._elected()
        if leader == self.partition.leader:
            return
        record.leader = leader
        if unclean:
            # The other replicas may have records that this one lost: they must truncate before they rejoin the ISR.
            record.isr = [leader]
            if self.partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
        elif leader in self._elr:
            self.isr = (leader,)
            # With an ISR of min.insync.replicas the high watermark advances again, so that the ELR's replicas may lack committed records.
            keep = len(self.isr) < self.min_isr
            self._elr = tuple(replica for replica in self._elr if keep and replica != leader)

    def _elected(self) -> tuple[int, bool]:
        """Return (leader or NO_LEADER, True if the election was unclean)."""
        assert self.replicas is not None
        if self.election is Election.PREFERRED and self._may_lead_cleanly(self.replicas[0]):
            return self.replicas[0], False
        if self._may_lead_cleanly(self.partition.leader):
            return self.partition.leader, False
        for replica in self.replicas:
            if self._may_lead_cleanly(replica):
                return replica, False
        if self._may_elect_last_known_leader():
            return self.partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_lead_cleanly(self, replica: int) -> bool:
        assert self.isr is not None
        has_all_committed = replica in self.isr or (not self.isr and replica in self._elr)
        return has_all_committed and self.may_lead(replica)

    def _may_elect_last_known_leader(self) -> bool:
        return (
            self.elr_enabled
            and not self.isr
            and not self._elr
            and len(self.partition.last_known_elr) == 1
            and self.may_lead(self.partition.last_known_elr[0])
        )

    def _bump_epoch_of_removed_replicas(self, record: PartitionChangeRecord) -> None:
        """Begin a new leader epoch, to fence off removed replicas: setting the leader, even to the same one, bumps the epoch."""
        assert self.replicas is not None
        if record.leader == NO_LEADER_CHANGE and not set(self.partition.replicas) <= set(self.replicas):
            record.leader = self.partition.leader

    def _bump_epoch_of_old_shrink(self, record: PartitionChangeRecord) -> None:
        if self.metadata_version >= MV_NO_EPOCH_BUMP_ON_SHRINK or record.leader != NO_LEADER_CHANGE:
            return
        if record.isr is not None and not set(self.partition.isr) <= set(record.isr):
            record.leader = self.partition.leader

    def _write_elr(self, record: PartitionChangeRecord) -> None:
        unclean = record.isr is not None
        if unclean or not self.elr_enabled:
            self._elr = ()
        if self._elr != self.partition.elr:
            record.eligible_leader_replicas = list(self._elr)

    def _write_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self.elr_enabled:
            return
        before = self.partition
        last = before.leader
        if last == NO_LEADER and len(before.isr) == 1 and not before.last_known_elr:
            # The partition has had no leader since before the ELR was enabled: its last in-sync replica was the last leader. Without
            # it in last_known_elr no replica could ever be elected again.
            last = before.isr[0]
        keeps_leader = before.leader != NO_LEADER and record.leader != NO_LEADER
        if record.isr == [] and last != NO_LEADER and before.last_known_elr != (last,):
            record.last_known_elr = [last]
        elif (record.leader >= 0 or keeps_leader) and before.last_known_elr:
            record.last_known_elr = []

    def _write_assignment(self, record: PartitionChangeRecord) -> None:
        before = self.partition
        assert self.replicas is not None and self.removing is not None and self.adding is not None
        if self.metadata_version >= MV_DIRECTORIES:
            directories = tuple(self._directory(replica) for replica in self.replicas)
            if directories != before.directories:
                record.directories = list(directories)
        if self.replicas != before.replicas:
            record.replicas = list(self.replicas)
        if self.removing != before.removing_replicas:
            record.removing_replicas = list(self.removing)
        if self.adding != before.adding_replicas:
            record.adding_replicas = list(self.adding)

    def _directory(self, replica: int) -> bytes:
        wanted = self.directories.get(replica)
        if wanted is not None:
            return wanted
        if replica in self.partition.replicas and self.partition.directories:
            return self.partition.directory(replica)
        return self.default_directory(replica)

    def _check(self, after: PartitionRegistration) -> None:
        assert not set(after.isr) & set(after.elr), f"ISR and ELR overlap: {after}"
        assert not after.elr or len(after.isr) < self.min_isr, f"ELR beside an ISR of min.insync.replicas: {after}"
        assert after.leader == NO_LEADER or after.leader in after.isr, f"leader outside the ISR: {after}"


def completed(
    removing: tuple[int, ...], adding: tuple[int, ...], replicas: tuple[int, ...], isr: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (replicas, ISR) after the last step of a reassignment if the ISR allows it, else None."""
    if not removing and not adding:
        return None
    new_isr = tuple(replica for replica in isr if replica not in removing)
    new_replicas = tuple(replica for replica in replicas if replica not in removing)
    if not new_isr or not new_replicas or not set(new_replicas) <= set(new_isr):
        return None
    return new_replicas, new_isr
