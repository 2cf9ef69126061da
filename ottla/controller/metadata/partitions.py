"""One partition's registration in the metadata log. It is a value: every change makes a new one; decisions are made elsewhere."""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.internal_topics.metadata_records import PartitionChangeRecord, PartitionRecord

NO_LEADER = -1
# PartitionChangeRecord.leader: the leader does not change, nor does the leader epoch.
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

RECOVERED = 0
RECOVERING = 1

# Reserved directory ids of KIP-858; any other id below 100 is reserved too.
UNASSIGNED_DIR = bytes(16)
LOST_DIR = bytes(15) + b"\x01"
MIGRATING_DIR = bytes(15) + b"\x02"


class PartitionRegistration(NamedTuple):
    """It is a NamedTuple because one is created for each of 100k partitions at start, in a quarter of a dataclass's time."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_replica

    @property
    def reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, broker_id: int) -> bytes:
        """Returns the directory of the broker's replica; UNASSIGNED_DIR if it is unknown or there is no replica."""
        if not self.directories or broker_id not in self.replicas:
            return UNASSIGNED_DIR
        return self.directories[self.replicas.index(broker_id)]

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """Returns the partition after the change. Any change bumps the partition epoch; a leader in it bumps the leader epoch."""
        leader, leader_epoch = self.leader, self.leader_epoch
        if change.leader != NO_LEADER_CHANGE:
            leader, leader_epoch = change.leader, leader_epoch + 1
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        return PartitionRegistration(
            replicas=replicas,
            isr=self.isr if change.isr is None else tuple(change.isr),
            removing_replicas=(
                self.removing_replicas if change.removing_replicas is None else tuple(change.removing_replicas)
            ),
            adding_replicas=self.adding_replicas if change.adding_replicas is None else tuple(change.adding_replicas),
            elr=self.elr if change.eligible_leader_replicas is None else tuple(change.eligible_leader_replicas),
            last_known_elr=self.last_known_elr if change.last_known_elr is None else tuple(change.last_known_elr),
            leader=leader,
            leader_recovery_state=(
                self.leader_recovery_state
                if change.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
                else change.leader_recovery_state
            ),
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch + 1,
            directories=self._merged_directories(change, replicas),
        )

    def _merged_directories(self, change: PartitionChangeRecord, replicas: tuple[int, ...]) -> tuple[bytes, ...]:
        if change.directories is not None:
            return tuple(change.directories)
        if change.replicas is None or not self.directories:
            return self.directories
        # A record without directories (metadata.version < 17) changed the replicas: the known directories are kept.
        return tuple(self.directory(broker_id) for broker_id in replicas)

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        replicas = tuple(record.replicas)
        isr = tuple(record.isr)
        return cls(
            replicas,
            replicas if isr == replicas else isr,  # one tuple is shared in each healthy partition
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories) or (UNASSIGNED_DIR,) * len(replicas),
        )

    def to_record(self, topic_id: bytes, partition_id: int) -> PartitionRecord:
        """Returns a record with all fields; encoding.py drops those that metadata.version does not allow."""
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )
