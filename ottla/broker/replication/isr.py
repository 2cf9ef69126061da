"""The in-sync replica rules, as pure functions over plain values.

Who is in the ISR is decided by the controller (AlterPartition); this file only says what a leader may propose and how far
its high watermark may go. Three sets matter and must not be mixed up:

    isr           the last set the controller committed
    maximal isr   the union of the committed set and a proposed expansion that is still in flight. The high watermark waits
                  for all of it, because the controller may already have made any of its members a candidate (invariant 6)
    caught up     followers outside of the ISR whose fetches have reached the log end: the watermark waits for them too when
                  they may join, or they would never see the watermark stand still long enough to get in
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ottla.protocol.errors import ErrorCode

#: Before all times, and monotonic clocks begin anywhere.
NEVER_MS = -(1 << 62)
#: For a question about the broker, whichever of its processes has fetched.
ANY_EPOCH = -1
#: Errors of AlterPartition that say: there is newer metadata, or soon will be, and it settles the matter.
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

Proposer = TypeVar("Proposer", contravariant=True)


class Candidates(Protocol):
    """The brokers that the controller would accept in an ISR."""

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool: ...


class IsrProposals(Candidates, Protocol[Proposer]):
    """Sends ISR proposals to the controller (to_controller/alter_partition.py)."""

    def submit(self, partition: Proposer) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class ReplicaProgress:
    """The progress of one follower, which the leader knows from its fetches only. Times are monotonic: a wall clock that is set right would
    make all followers late at once, or none for as long as it was ahead."""

    broker_id: int
    log_end_offset: int = -1
    log_start_offset: int = -1
    #: The last time at which the follower held everything that the leader held.
    last_caught_up_ms: int = NEVER_MS
    #: Time of the last fetch and the leader's end offset at that time: a fetch that reaches that end proves that the
    #: follower was caught up *then*, though the leader has moved on since.
    last_fetch_ms: int = 0
    last_fetch_leader_end_offset: int = -1
    broker_epoch: int = -1

    def record_fetch(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int, broker_epoch: int
    ) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end_offset >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        if broker_epoch >= 0:
            self.broker_epoch = max(self.broker_epoch, broker_epoch)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_ms_max: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_ms_max


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Return the effective min.insync.replicas: above the replication factor it means all replicas."""
    return min(min_insync_replicas, replica_count)


def next_high_watermark(
    leader_end_offset: int,
    followers: Iterable[ReplicaProgress],
    maximal_isr: Collection[int],
    joinable: Collection[int],
    now_ms: int,
    lag_time_ms_max: int,
) -> int:
    """Return the smallest end offset of the replicas that the high watermark has to wait for. The caller has checked |ISR| >= min ISR."""
    high_watermark = leader_end_offset
    for follower in followers:
        if follower.log_end_offset >= high_watermark:
            continue
        waits = follower.broker_id in maximal_isr or (
            follower.broker_id in joinable and follower.is_caught_up(leader_end_offset, now_ms, lag_time_ms_max)
        )
        if waits:
            high_watermark = follower.log_end_offset
    return high_watermark


def joinable(
    followers: Collection[ReplicaProgress], maximal_isr: Collection[int], candidates: Candidates | None
) -> Collection[int]:
    """Replicas outside of the maximal ISR that the controller would take in."""
    if candidates is None or len(maximal_isr) == len(followers) + 1:
        return ()
    return [
        follower.broker_id
        for follower in followers
        if follower.broker_id not in maximal_isr
        and follower.broker_epoch >= 0
        and candidates.may_be_in_sync(follower.broker_id, follower.broker_epoch)
    ]


def may_join(
    follower: ReplicaProgress,
    maximal_isr: Collection[int],
    eligible: bool,
    high_watermark: int,
    epoch_start_offset: int,
) -> bool:
    """Returns True if a replica may join the ISR (KIP-966): it is live, not proposed yet, and its log reaches the high watermark and the leader epoch."""
    return (
        follower.broker_id not in maximal_isr
        and eligible
        and follower.log_end_offset >= high_watermark
        and follower.log_end_offset >= epoch_start_offset
    )


def out_of_sync(
    followers: Mapping[int, ReplicaProgress],
    isr: Collection[int],
    leader_end_offset: int,
    now_ms: int,
    lag_time_ms_max: int,
) -> list[int]:
    """ISR members that have not held the whole log at any time in the last replica.lag.time.max.ms."""
    return [
        broker_id
        for broker_id in isr
        if (follower := followers.get(broker_id)) is not None
        and not follower.is_caught_up(leader_end_offset, now_ms, lag_time_ms_max)
    ]
