"""The Raft core of one replica: step(message, now_ms) and tick(now_ms) give Effects; no I/O, no clock, no randomness of its own.

KRaft is Raft turned round: followers pull with Fetch, and a fetch offset is the acknowledgement (KIP-595). The rest is
Raft with PreVote (KIP-996), check-quorum, snapshots (KIP-630) and voter sets in the log (KIP-853).

The caller's loop: execute the Effects of one step top to bottom, then step the next message; call tick no later than
`deadline_ms`. The state is in `state.py`, its transitions in `transitions.py`. Messages are handled in `elections.py`,
`replication.py` and `reconfiguration.py`, by functions on the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ottla.controller.raft import agreement, elections, reconfiguration, replication, transitions
from ottla.controller.raft.config import RaftConfig
from ottla.controller.raft.effects import Effects, ElectionState
from ottla.controller.raft.leader import Leader
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import (
    AddVoter,
    Answered,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Failed,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Flushed,
    Message,
    Received,
    RemoveVoter,
    ReplyBody,
    RequestBody,
    SnapshotReceived,
    SupportedVersionsReply,
    UpdateVoter,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from ottla.controller.raft.roles import (
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.controller.raft.state import RaftState
from ottla.controller.raft.voters import VoterHistory
from ottla.protocol.errors import ErrorCode

#: One step can pass through several roles (the only voter passes through four); more would be a loop.
ROLES_PER_STEP_MAX = 8


#: A new leader is elected within one fetch timeout and a few elections.
DUPLICATE_ID_TIMEOUTS = 2


class NotLeader(Exception):
    """This replica cannot append, because it is not the leader of the quorum, or no longer is."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"not the leader of the quorum (leader is {leader_id} in epoch {epoch})")
        self.leader_id = leader_id
        self.epoch = epoch


class RaftCore(RaftState):
    def __init__(
        self,
        config: RaftConfig,
        log: LogState,
        voters: VoterHistory,
        election: ElectionState | None,
        rng: Random,
        now_ms: int,
    ) -> None:
        """Starts from the durable state. Call `tick` once before anything else."""
        super().__init__(config, log, voters, election, rng)
        self.role = elections.initial_role(self, election or ElectionState(0), now_ms)

    # Events

    def step(self, message: Message, now_ms: int) -> Effects:
        self.now_ms = now_ms
        match message:
            case Received(body, reply_to):
                self._on_request(body, reply_to, now_ms)
            case Answered(request_id, body):
                self._on_reply(request_id, body, now_ms)
            case Failed():
                self._on_failure(message, now_ms)
            case Flushed(generation, offset):
                replication.on_flushed(self, generation, offset, now_ms)
            case SnapshotReceived():
                replication.on_snapshot_received(self, message, now_ms)
        return self._finish(now_ms)

    def tick(self, now_ms: int) -> Effects:
        self.now_ms = now_ms
        for request_id in self.peers.expired(now_ms):
            self._on_failure(Failed(request_id), now_ms)
        return self._finish(now_ms)

    def append(self, batches: Sequence[tuple[int, object]], now_ms: int) -> tuple[int, Effects]:
        """Appends batches of (record count, data) as leader. Returns the last offset."""
        role = self.role
        if not isinstance(role, Leader) or role.resign_requested:
            raise NotLeader(self.leader_id, self.epoch)
        self.now_ms = now_ms
        for count, data in batches:
            transitions.append_batch(self, count, data)
        return self.log.end_offset - 1, self._finish(now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Resigns, if this replica leads, and sends the voters the preferred successors."""
        self.now_ms = now_ms
        if isinstance(self.role, Leader):
            transitions.become_resigned(self, now_ms)
        return self._finish(now_ms)

    def abandon_download(self, now_ms: int) -> Effects:
        """Drops a downloaded snapshot that is unusable; the leader's response to the next Fetch names the snapshot to download."""
        self.now_ms = now_ms
        replication.end_download(self, now_ms)
        return self._finish(now_ms)

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """Registers a durable snapshot that this replica created."""
        assert snapshot.offset <= self.high_watermark, f"snapshot {snapshot} beyond the watermark {self.high_watermark}"
        self.log.add_snapshot(snapshot)

    def start_log_at(self, snapshot: OffsetAndEpoch) -> None:
        """Moves the log's start to this snapshot, before the driver deletes the log and the snapshots before it."""
        self.log.start_at_snapshot(snapshot)
        self.voters.forget_before(self.log.start_offset)

    # Steps

    def _on_request(self, body: RequestBody, reply_to: object, now_ms: int) -> None:
        match body:
            case Fetch():
                replication.on_fetch(self, body, reply_to, now_ms)
            case Vote():
                self.reply(reply_to, elections.on_vote(self, body, now_ms))
            case BeginQuorumEpoch():
                self.reply(reply_to, elections.on_begin_quorum_epoch(self, body, now_ms))
            case EndQuorumEpoch():
                self.reply(reply_to, elections.on_end_quorum_epoch(self, body, now_ms))
            case FetchSnapshot():
                self.reply(reply_to, replication.on_fetch_snapshot(self, body, now_ms))
            case AddVoter():
                reconfiguration.on_add_voter(self, body, reply_to, now_ms)
            case RemoveVoter():
                reconfiguration.on_remove_voter(self, body, reply_to, now_ms)
            case UpdateVoter():
                self.reply(reply_to, reconfiguration.on_update_voter(self, body, now_ms))
            case _:
                raise AssertionError(f"no replica is asked {body}")

    def _on_reply(self, request_id: int, reply: ReplyBody, now_ms: int) -> None:
        # elections.accept compares the epochs first.
        found = self.peers.completed(request_id, now_ms, back_off=False)
        if found is None:
            return
        destination_id, request = found
        role = self.role
        self._check_agreement(destination_id, reply, now_ms)
        match request, reply:
            case Fetch(), FetchReply():
                handled = replication.on_fetch_reply(self, request, reply, now_ms)
            case Vote(), VoteReply():
                handled = elections.on_vote_reply(self, destination_id, request, reply, now_ms)
            case BeginQuorumEpoch(), BeginQuorumEpochReply():
                handled = elections.accept(self, reply, now_ms)
            case EndQuorumEpoch(), EndQuorumEpochReply():
                handled = elections.on_end_quorum_epoch_reply(self, destination_id, reply, now_ms)
            case FetchSnapshot(), FetchSnapshotReply():
                handled = replication.on_fetch_snapshot_reply(self, request, reply, now_ms)
            case UpdateVoter(), VoterChangeReply():
                handled = replication.on_update_reply(self, reply, now_ms)
            case AddVoter() | RemoveVoter(), VoterChangeReply():
                # This response has neither epoch nor leader. Whether the voters changed follows from the log.
                handled = reply.error is ErrorCode.NONE
            case _, SupportedVersionsReply():
                reconfiguration.on_supported_versions(self, request_id, reply, now_ms)
                handled = True
            case _:
                raise AssertionError(f"{reply} does not answer {request}")
        if not handled and self.role is role:
            self.peers.back_off(destination_id, now_ms)

    def _check_agreement(self, destination_id: int, reply: ReplyBody, now_ms: int) -> None:
        rejections, config = self.rejections, self.config
        rejections.record(destination_id, reply.error)
        if not isinstance(reply, SupportedVersionsReply) and reply.leader_id >= 0:
            # Replies that name our own id as leader are expected for an epoch we led; only a later epoch proves a duplicate node.id.
            is_own_id = reply.leader_id == self.key.id != self.leader_id and reply.epoch > self.led_epoch
            rejections.record_leader(is_own_id, now_ms)
        if rejections.has_duplicate_node_id(now_ms, DUPLICATE_ID_TIMEOUTS * config.fetch_timeout_ms):
            self.effects.disagreement = agreement.duplicate_node_id_message(self.key.id)
        else:
            self.effects.disagreement = rejections.verdict(
                self.key.id, config.cluster_id, self.voters.last, len(config.bootstrap_servers)
            )

    def _on_failure(self, failed: Failed, now_ms: int) -> None:
        found = self.peers.completed(failed.request_id, now_ms, back_off=True)
        if found is None:
            return
        destination_id, request = found
        if isinstance(request, Vote) and request.pre_vote and failed.unsupported_version:
            # A voter from before KIP-996 does not support pre-votes; it counts as granting one.
            elections.record_vote(self, destination_id, request, True, now_ms)
        elif isinstance(request, Fetch | FetchSnapshot):
            replication.on_fetch_failure(self, destination_id, failed, now_ms)
        reconfiguration.on_probe_failure(self, failed.request_id)

    def _finish(self, now_ms: int) -> Effects:
        """Runs the role's due actions until none is left; returns the effects."""
        for _ in range(ROLES_PER_STEP_MAX):
            role = self.role
            match role:
                case Leader():
                    reconfiguration.drive_leader(self, role, now_ms)
                    replication.drive_leader(self, role, now_ms)
                case Follower():
                    replication.drive_follower(self, role, now_ms)
                case Unattached():
                    elections.drive_unattached(self, role, now_ms)
                case Prospective():
                    elections.drive_prospective(self, role, now_ms)
                case Candidate():
                    elections.drive_candidate(self, role, now_ms)
                case Resigned():
                    elections.drive_resigned(self, role, now_ms)
            if self.role is role:
                break
        else:
            raise AssertionError(f"the role changes without end: {self.role}")
        effects, self.effects = self.effects, Effects()
        return effects
