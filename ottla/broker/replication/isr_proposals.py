"""ISR proposals of a leader: when one is sent, and how the response changes the ISR. isr.py has the rules.

One proposal is under way at a time. From the moment it is made the high watermark waits for its members, too (invariant 6).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.broker.replication.isr import ReplicaProgress, may_join, out_of_sync
from ottla.broker.replication.partition_state import Candidates, PartitionState
from ottla.protocol.errors import ErrorCode

#: For a question about the broker, whichever of its processes has fetched.
ANY_EPOCH = -1
#: Answers to AlterPartition that say: there is newer metadata, or soon will be, and it settles the matter.
OVERTAKEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def joinable(partition: PartitionState, candidates: Candidates | None) -> Collection[int]:
    """Replicas outside of the maximal ISR that the controller would take in."""
    if candidates is None or len(partition.maximal_isr) == len(partition.replicas):
        return ()
    return [
        follower.broker_id
        for follower in partition.followers.values()
        if follower.broker_id not in partition.maximal_isr
        and follower.broker_epoch >= 0
        and candidates.may_be_in_sync(follower.broker_id, follower.broker_epoch)
    ]


def may_expand_by(partition: PartitionState, follower: ReplicaProgress, candidates: Candidates) -> bool:
    log = partition.leader_log
    if log is None or partition.proposed_isr is not None:
        return False
    eligible = candidates.may_be_in_sync(follower.broker_id, follower.broker_epoch)
    return may_join(follower, partition.maximal_isr, eligible, log.high_watermark, partition.epoch_start_offset)


def next_fetch_may_expand(partition: PartitionState, replica_id: int, candidates: Candidates) -> bool:
    """Returns False for a replica that cannot be proposed now, whatever it fetches: `Partition.note_followers` is called when that changes.

    It is idle until then. 3,333 partitions that were read by each fetch, because their follower's broker was fenced, took 150 ms.
    """
    if replica_id in partition.maximal_isr or partition.proposed_isr is not None:
        return False
    return candidates.may_be_in_sync(replica_id, ANY_EPOCH)


def lagging(partition: PartitionState, now_ms: int) -> list[int]:
    """Members of the ISR that are to leave it."""
    log = partition.leader_log
    if log is None or partition.alone or partition.proposed_isr is not None:
        return []
    return out_of_sync(partition.followers, partition.isr, log.log_end_offset, now_ms, partition.lag_time_ms_max)


def altered(partition: PartitionState, leader_epoch: int, partition_epoch: int, isr: Sequence[int]) -> bool:
    """The controller's answer; False if metadata has overtaken it."""
    if leader_epoch != partition.leader_epoch or partition_epoch < partition.partition_epoch or not partition.is_leader:
        return False
    partition.set_isr(partition_epoch, isr)
    return True


def ended_by(partition: PartitionState, error: ErrorCode) -> bool:
    """Returns True if the error ends the proposal, because the proposed ISR itself is invalid."""
    if error not in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
        return False
    partition.drop_proposal()
    return True
