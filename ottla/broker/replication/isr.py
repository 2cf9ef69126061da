"""The in-sync replicas of a partition: the progress of each, and the rules of who joins, who leaves and how far the high watermark goes.

Who is in the ISR is decided by the controller (AlterPartition); this file only says what a leader may propose and how far
its high watermark may go. Three sets matter and must not be mixed up:

    isr           the last set the controller committed
    maximal isr   the union of the committed set and a proposed expansion that is still in flight. The high watermark waits
                  for all of it, because the controller may already have made any of its members a candidate (invariant 6)
    caught up     followers outside of the ISR whose fetches have reached the log end: the watermark waits for them too when
                  they may join, or they would never see the watermark stand still long enough to get in
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.broker.replication.state_changes import METADATA, ids, must, story
from ottla.protocol.errors import ErrorCode
from ottla.server.clock import Clock
from ottla.server.story import because
from ottla.storage.log.log import Log

#: Why the story of a partition says that its ISR changes.
CAUGHT_UP, LAGGING = because("a follower's fetch"), because("replica.lag.time.max.ms")
ALTER_PARTITION = because("AlterPartition")
#: A time before all others, because monotonic clocks begin anywhere.
NEVER_MS = -(1 << 62)
#: The broker epoch for a question about a broker whose present process is not known: any process of it counts.
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


class IsrProposals(Protocol):
    """Sends ISR proposals to the controller (to_controller.py)."""

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool:
        """Return True if the controller would accept the broker in an ISR."""

    def submit(self, partition: Any) -> None: ...

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
            if now_ms > self.last_caught_up_ms:
                self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end_offset >= 0 and self.last_fetch_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        if broker_epoch > self.broker_epoch:
            self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_ms_max: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_ms_max


class InSyncReplicas:
    """The ISR of one partition at its leader, and what the leader proposes: one proposal is under way at a time."""

    __slots__ = (
        "_lag_time_ms_max", "_partition", "_proposals", "followers", "has_all", "is_under_min", "maximal", "members", "min_size",
        "partition_epoch", "proposed",
    )  # fmt: skip

    def __init__(self, partition: Any, lag_time_ms_max: int, proposals: IsrProposals | None) -> None:
        self._partition = partition
        self._lag_time_ms_max = lag_time_ms_max
        self._proposals = proposals
        #: The set that the controller has committed, and in which partition epoch.
        self.members: frozenset[int] = frozenset()
        self.partition_epoch = -1
        self.maximal = self.members
        #: The proposal that the controller has not answered yet.
        self.proposed: frozenset[int] | None = None
        self.min_size = 1
        #: Fewer than min.insync.replicas are in sync: each append looks at it.
        self.is_under_min = True
        #: The progress of the other replicas.
        self.followers: dict[int, ReplicaProgress] = {}
        #: There are followers, and the maximal ISR has them all: none can join, and only a fetch of one can move the high watermark.
        self.has_all = False

    def require(self, min_insync_replicas: int, replica_count: int) -> None:
        """Set the topic's min.insync.replicas; one above the replication factor means all replicas."""
        self.min_size = min(min_insync_replicas, max(1, replica_count))
        self.is_under_min = len(self.members) < self.min_size

    def commit(self, partition_epoch: int, members: Iterable[int], replicas: Iterable[int] = ()) -> None:
        """The controller has made this the ISR. A proposal that is based on an older partition epoch is over: it has failed, or
        is this ISR.

        A proposal stays valid if it is based on this very ISR: AlterPartition's response had it, and the metadata with its
        `replicas` comes later. The controller may commit the proposal at any moment, so the high watermark goes on waiting for
        all of its members.
        """
        stands = (
            self.proposed is not None
            and partition_epoch == self.partition_epoch
            and self.members == frozenset(members)
            # Otherwise the controller rejects it as invalid, and no later metadata would end the proposal.
            and self.proposed.issubset(replicas)
        )
        self.partition_epoch = partition_epoch
        self.members = frozenset(members)
        if not stands:
            self._wait_for(None, self.members)
        self.is_under_min = len(self.members) < self.min_size

    def follow(self, replicas: Collection[int], now_ms: int) -> None:
        """Replace the followers. A follower that was there before keeps its progress."""
        known = self.followers.copy()
        self.followers.clear()
        for replica in replicas:
            caught_up_ms = now_ms if replica in self.members else NEVER_MS
            self.followers[replica] = known.get(replica) or ReplicaProgress(replica, last_caught_up_ms=caught_up_ms)
        self._wait_for(self.proposed, self.maximal)

    def _wait_for(self, proposed: frozenset[int] | None, maximal: frozenset[int]) -> None:
        self.proposed, self.maximal = proposed, maximal
        self.has_all = 0 < len(self.followers) < len(maximal)

    def _propose(self, members: frozenset[int]) -> None:
        """Propose an ISR. From now on the high watermark waits for the members of the proposal, too."""
        assert self._proposals is not None
        must(self._partition, self._partition.node_id in members, "a leader proposes an ISR without itself")
        self._wait_for(members, self.members | members)
        self._proposals.submit(self._partition)

    def rejected(self, error: ErrorCode) -> bool:
        """Take the controller's rejection of the proposal. Return True if that ends it, because the proposed ISR itself is invalid."""
        story(self._partition, ALTER_PARTITION).info(
            "Failed to alter ISR to %s in %s: the controller answered %s",
            ids(self.proposed or ()),
            self._partition,
            error.name,
        )
        if error not in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            return False
        self._wait_for(None, self.members)
        return True

    def log_update(self) -> None:
        under_min = " (under-min-isr)" if self.is_under_min else ""
        story(self._partition, METADATA).info(
            "ISR updated to %s%s and version updated to %d in %s",
            ids(self.members),
            under_min,
            self.partition_epoch,
            self._partition,
        )

    def next_high_watermark(self, end_offset: int, clock: Clock) -> int:
        """Return the smallest end offset of the replicas that the high watermark has to wait for. The caller has checked `is_under_min`."""
        high_watermark = end_offset
        if self.has_all:
            for follower in self.followers.values():
                if follower.log_end_offset < high_watermark:
                    high_watermark = follower.log_end_offset
            return high_watermark
        joinable = self._joinable()
        now_ms = clock.mono_ms() if joinable else 0
        for follower in self.followers.values():
            if follower.log_end_offset >= high_watermark:
                continue
            waits = follower.broker_id in self.maximal or (
                follower.broker_id in joinable and follower.is_caught_up(end_offset, now_ms, self._lag_time_ms_max)
            )
            if waits:
                high_watermark = follower.log_end_offset
        return high_watermark

    def _joinable(self) -> Collection[int]:
        """Replicas outside of the maximal ISR that the controller would take in."""
        proposals = self._proposals
        if proposals is None:
            return ()
        return [
            follower.broker_id
            for follower in self.followers.values()
            if follower.broker_id not in self.maximal
            and follower.broker_epoch >= 0
            and proposals.may_be_in_sync(follower.broker_id, follower.broker_epoch)
        ]

    def maybe_expand(self, follower: ReplicaProgress, local_log: Log, epoch_start_offset: int) -> None:
        if self.proposed is None and self.may_join(follower, local_log.high_watermark, epoch_start_offset):
            members = self.members | {follower.broker_id}
            story(self._partition, CAUGHT_UP).info(
                "Expanding ISR from %s to %s in %s. Leader: (highWatermark: %d, endOffset: %d). Replica %d is at endOffset %d",
                ids(self.members),
                ids(members),
                self._partition,
                local_log.high_watermark,
                local_log.log_end_offset,
                follower.broker_id,
                follower.log_end_offset,
            )
            self._propose(members)

    def may_join(self, follower: ReplicaProgress, high_watermark: int, epoch_start_offset: int) -> bool:
        """Return True if a replica may join the ISR (KIP-966): it is live, not proposed yet, and its log reaches the high watermark and the leader epoch."""
        return (
            self._proposals is not None
            and follower.broker_id not in self.maximal
            and self._proposals.may_be_in_sync(follower.broker_id, follower.broker_epoch)
            and follower.log_end_offset >= high_watermark
            and follower.log_end_offset >= epoch_start_offset
        )

    def next_fetch_may_expand(self, replica_id: int) -> bool:
        """Return False for a replica that cannot be proposed now, whatever it fetches: `Partition.note_followers` is called when that changes.

        It is idle until then. 3,333 partitions that were read by each fetch, because their follower's broker was fenced, took 150 ms.
        """
        if self._proposals is None or replica_id in self.maximal or self.proposed is not None:
            return False
        return self._proposals.may_be_in_sync(replica_id, ANY_EPOCH)

    def maybe_shrink(self, local_log: Log, now_ms: int) -> None:
        """Propose the ISR without replicas that have not caught up for replica.lag.time.max.ms."""
        if self.proposed is None and (late := self.out_of_sync(local_log.log_end_offset, now_ms)):
            members = self.members.difference(follower.broker_id for follower in late)
            story(self._partition, LAGGING).info(
                "Shrinking ISR from %s to %s in %s. Leader: (highWatermark: %d, endOffset: %d). Out of sync replicas: %s",
                ids(self.members),
                ids(members),
                self._partition,
                local_log.high_watermark,
                local_log.log_end_offset,
                " ".join(_progress(follower, now_ms) for follower in late),
            )
            self._propose(members)

    def out_of_sync(self, end_offset: int, now_ms: int) -> list[ReplicaProgress]:
        """ISR members that have not held the whole log at any time in the last replica.lag.time.max.ms."""
        return [
            follower
            for broker_id in self.members
            if (follower := self.followers.get(broker_id)) is not None
            and not follower.is_caught_up(end_offset, now_ms, self._lag_time_ms_max)
        ]


def _progress(follower: ReplicaProgress, now_ms: int) -> str:
    caught_up = "never" if follower.last_caught_up_ms == NEVER_MS else f"{now_ms - follower.last_caught_up_ms} ms ago"
    return f"(brokerId: {follower.broker_id}, endOffset: {follower.log_end_offset}, lastCaughtUp: {caught_up})"
