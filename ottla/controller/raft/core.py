"""The Raft core of one replica: step(message, now_ms) and tick(now_ms) give Effects; no I/O, no clock, no randomness of its own.

KRaft is Raft turned round: followers pull with Fetch, and a fetch offset is the acknowledgement (KIP-595). The rest is
Raft with PreVote (KIP-996), check-quorum, snapshots (KIP-630) and voter sets in the log (KIP-853).

The caller's loop: execute the Effects of one step top to bottom, then step the next message; call tick no later than
`deadline_ms`. The state is in `quorum_state.py`, its transitions in `transitions.py`. Messages are handled in `elections.py`,
`replication.py` and `reconfiguration.py`, by functions on the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ottla.controller.raft import agreement, elections, reconfiguration, replication, transitions
from ottla.controller.raft.effects import Effects, ElectionState
from ottla.controller.raft.leader import Leader
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import (
    AddVoter,
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
    Replied,
    ReplyBody,
    RequestBody,
    SnapshotReceived,
    SupportedVersionsReply,
    UpdateVoter,
    Vote,
    VoterChangeReply,
    VoteReply,
)
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.roles import (
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.controller.raft.voters import VoterHistory
from ottla.protocol.errors import ErrorCode

#: One step can pass through several roles (the only voter passes through four); more would be a loop.
ROLES_PER_STEP_MAX = 8


#: A new leader is elected within one fetch timeout, which all voters have alike, and a few elections.
DUPLICATE_ID_TIMEOUTS = 2


class NotLeader(Exception):
    """This replica cannot append, because it is not the leader of the quorum, or no longer is."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"not the leader of the quorum (leader is {leader_id} in epoch {epoch})")
        self.leader_id = leader_id
        self.epoch = epoch


class RaftCore:
    """Dispatches messages, responses and deadlines to the functions that handle them, on the state of this replica."""

    def __init__(
        self,
        config: RaftConfig,
        log: LogState,
        voters: VoterHistory,
        election: ElectionState | None,
        rng: Random,
        now_ms: int,
    ) -> None:
        """Start from the durable state. Call `tick` once before anything else."""
        self.state = QuorumState(config, log, voters, election, rng)
        self.state.role = elections.initial_role(self.state, election or ElectionState(0), now_ms)

    # Events

    def step(self, message: Message, now_ms: int) -> Effects:
        self.state.begin_step(now_ms)
        match message:
            case Received(body, reply_to):
                self._on_request(body, reply_to, now_ms)
            case Replied(request_id, body):
                self._on_reply(request_id, body, now_ms)
            case Failed():
                self._on_failure(message, now_ms)
            case Flushed(generation, offset):
                replication.on_flushed(self.state, generation, offset, now_ms)
            case SnapshotReceived():
                replication.on_snapshot_received(self.state, message, now_ms)
        return self._finish(now_ms)

    def tick(self, now_ms: int) -> Effects:
        self.state.begin_step(now_ms)
        for request_id in self.state.peers.expired(now_ms):
            self._on_failure(Failed(request_id), now_ms)
        return self._finish(now_ms)

    def append(self, batches: Sequence[tuple[int, object]], now_ms: int) -> tuple[int, Effects]:
        """Append batches of (record count, data) as leader. Return the last offset."""
        state, role = self.state, self.state.role
        if not isinstance(role, Leader) or role.resign_requested:
            raise NotLeader(state.leader_id, state.epoch)
        state.begin_step(now_ms)
        for count, data in batches:
            transitions.append_batch(state, count, data)
        return state.log.end_offset - 1, self._finish(now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Resign, if this replica leads, and send the voters the preferred successors."""
        self.state.begin_step(now_ms)
        if isinstance(self.state.role, Leader):
            transitions.become_resigned(self.state, now_ms)
        return self._finish(now_ms)

    def abandon_download(self, now_ms: int) -> Effects:
        """Drop a downloaded snapshot that is unusable; the leader's response to the next Fetch names the snapshot to download."""
        self.state.begin_step(now_ms)
        replication.end_download(self.state, now_ms)
        return self._finish(now_ms)

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """Register a durable snapshot that this replica created."""
        state = self.state
        assert snapshot.offset <= state.high_watermark, (
            f"snapshot {snapshot} beyond the watermark {state.high_watermark}"
        )
        state.log.add_snapshot(snapshot)

    def start_log_at(self, snapshot: OffsetAndEpoch) -> None:
        """Move the log's start to this snapshot, before the driver deletes the log and the snapshots before it."""
        state = self.state
        state.log.start_at_snapshot(snapshot)
        state.voters.forget_before(state.log.start_offset)

    # Steps

    def _on_request(self, body: RequestBody, reply_to: object, now_ms: int) -> None:
        state = self.state
        match body:
            case Fetch():
                replication.on_fetch(state, body, reply_to, now_ms)
            case Vote():
                state.reply(reply_to, elections.on_vote(state, body, now_ms))
            case BeginQuorumEpoch():
                state.reply(reply_to, elections.on_begin_quorum_epoch(state, body, now_ms))
            case EndQuorumEpoch():
                state.reply(reply_to, elections.on_end_quorum_epoch(state, body, now_ms))
            case FetchSnapshot():
                state.reply(reply_to, replication.on_fetch_snapshot(state, body, now_ms))
            case AddVoter():
                reconfiguration.on_add_voter(state, body, reply_to, now_ms)
            case RemoveVoter():
                reconfiguration.on_remove_voter(state, body, reply_to, now_ms)
            case UpdateVoter():
                state.reply(reply_to, reconfiguration.on_update_voter(state, body, now_ms))
            case _:
                raise AssertionError(f"no replica is asked {body}")

    def _on_reply(self, request_id: int, reply: ReplyBody, now_ms: int) -> None:
        state = self.state
        # elections.accept compares the epochs first.
        found = state.peers.completed(request_id, now_ms, back_off=False)
        if found is None:
            return
        destination_id, request = found
        role = state.role
        self._check_agreement(destination_id, reply, now_ms)
        match request, reply:
            case Fetch(), FetchReply():
                handled = replication.on_fetch_reply(state, request, reply, now_ms)
            case Vote(), VoteReply():
                handled = elections.on_vote_reply(state, destination_id, request, reply, now_ms)
            case BeginQuorumEpoch(), BeginQuorumEpochReply():
                handled = elections.accept(state, reply, now_ms)
            case EndQuorumEpoch(), EndQuorumEpochReply():
                handled = elections.on_end_quorum_epoch_reply(state, destination_id, reply, now_ms)
            case FetchSnapshot(), FetchSnapshotReply():
                handled = replication.on_fetch_snapshot_reply(state, request, reply, now_ms)
            case UpdateVoter(), VoterChangeReply():
                handled = replication.on_update_reply(state, reply, now_ms)
            case AddVoter() | RemoveVoter(), VoterChangeReply():
                # This response has neither epoch nor leader. The log shows whether the voters changed.
                handled = reply.error is ErrorCode.NONE
            case _, SupportedVersionsReply():
                reconfiguration.on_supported_versions(state, request_id, reply, now_ms)
                handled = True
            case _:
                raise AssertionError(f"{reply} does not answer {request}")
        if not handled and state.role is role:
            state.peers.back_off(destination_id, now_ms)

    def _check_agreement(self, destination_id: int, reply: ReplyBody, now_ms: int) -> None:
        state = self.state
        rejections, config = state.rejections, state.config
        rejections.record(destination_id, reply.error)
        if not isinstance(reply, SupportedVersionsReply) and reply.leader_id >= 0:
            # Replies that name our own id as leader are expected for an epoch we led; only a later epoch proves a duplicate node.id.
            is_own_id = reply.leader_id == state.key.id != state.leader_id and reply.epoch > state.led_epoch
            rejections.record_leader(is_own_id, now_ms)
        if rejections.has_duplicate_node_id(DUPLICATE_ID_TIMEOUTS * config.fetch_timeout_ms):
            state.effects.disagreement = agreement.duplicate_node_id_message(state.key.id)
        else:
            state.effects.disagreement = rejections.verdict(
                state.key.id, config.cluster_id, state.voters.last, len(config.bootstrap_servers)
            )

    def _on_failure(self, failed: Failed, now_ms: int) -> None:
        state = self.state
        found = state.peers.completed(failed.request_id, now_ms, back_off=True)
        if found is None:
            return
        destination_id, request = found
        if isinstance(request, Vote) and request.pre_vote and failed.unsupported_version:
            # A voter from before KIP-996 does not support pre-votes; it counts as granting one.
            elections.record_vote(state, destination_id, request, True, now_ms)
        elif isinstance(request, Fetch | FetchSnapshot):
            replication.on_fetch_failure(state, destination_id, failed, now_ms)
        reconfiguration.on_probe_failure(state, failed.request_id)

    def _finish(self, now_ms: int) -> Effects:
        """Run the role's due actions until none is left; return the effects."""
        state = self.state
        for _ in range(ROLES_PER_STEP_MAX):
            role = state.role
            match role:
                case Leader():
                    reconfiguration.drive_leader(state, role, now_ms)
                    replication.drive_leader(state, role, now_ms)
                case Follower():
                    replication.drive_follower(state, role, now_ms)
                case Unattached():
                    elections.drive_unattached(state, role, now_ms)
                case Prospective():
                    elections.drive_prospective(state, role, now_ms)
                case Candidate():
                    elections.drive_candidate(state, role, now_ms)
                case Resigned():
                    elections.drive_resigned(state, role, now_ms)
            if state.role is role:
                break
        else:
            raise AssertionError(f"the role changes without end: {state.role}")
        return state.take_effects()
