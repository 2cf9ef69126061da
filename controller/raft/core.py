"""The Raft core of one replica: step(message, now_ms) and tick(now_ms) give Effects; no I/O, no clock, no randomness of its own.

KRaft is Raft turned round: followers pull with Fetch, and a fetch offset is the acknowledgement (KIP-595). The rest is
Raft with PreVote (KIP-996), check-quorum, snapshots (KIP-630) and voter sets in the log (KIP-853).

The caller's loop: execute the Effects of one step top to bottom, then step the next message; call tick no later than
`deadline_ms`. This file owns the state and its transitions. What is done with a message is in `elections.py`,
`replication.py` and `reconfiguration.py`, as functions on the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from controller.raft import agreement, elections, reconfiguration, replication
from controller.raft.config import RaftConfig
from controller.raft.effects import Effects, ElectionState, LeaderAndEpoch, Reply, Request
from controller.raft.leader import CHECK_QUORUM_FACTOR, Leader
from controller.raft.log_state import LogState, OffsetAndEpoch
from controller.raft.messages import (
    AddVoter,
    Answered,
    Batch,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    ControlRecords,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Failed,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Flushed,
    LeaderChange,
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
from controller.raft.peers import Peers
from controller.raft.quorum import check_transition
from controller.raft.roles import (
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Role,
    Unattached,
    Votes,
)
from controller.raft.voters import DYNAMIC_VOTERS, Endpoint, Endpoints, ReplicaKey, VoterHistory, VoterSet
from protocol.errors import ErrorCode

#: One step can pass through several roles (the only voter passes through four); more would be a loop.
ROLES_PER_STEP_MAX = 8


#: Voters elect anew within one fetch timeout and a few elections.
NAMESAKE_TIMEOUTS = 2


class NotLeader(Exception):
    """This replica cannot append: it does not lead the quorum, or does not any more."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"not the leader of the quorum (leader is {leader_id} in epoch {epoch})")
        self.leader_id = leader_id
        self.epoch = epoch


class RaftCore:
    def __init__(
        self,
        config: RaftConfig,
        log: LogState,
        voters: VoterHistory,
        election: ElectionState | None,
        rng: Random,
        now_ms: int,
    ) -> None:
        """Start from what the disk has. Call `tick` once before anything else."""
        self.config = config
        self.key = config.key
        self.log = log
        self.voters = voters
        self.rng = rng
        self.peers = Peers(config.request_timeout_ms, config.retry_backoff_ms)
        self.high_watermark = -1
        self.refusals = agreement.Refusals()
        self.elections_lost = 0
        #: All of a leader's snapshot has arrived, and the driver is making it durable.
        self.is_storing = False
        #: The last epoch that this node, or the process before on the same disk, was the leader of.
        self.led_epoch = election.epoch if election is not None and election.leader_id == config.key.id else -1
        self.effects = Effects()
        self._durable = election
        self._told: LeaderAndEpoch | None = None
        self.role: Role = elections.initial_role(self, election or ElectionState(0), now_ms)

    # What it is.

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.election.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        match self.role:
            case Leader() | Resigned():
                return self.config.endpoints
            case Follower(leader_endpoints=endpoints) | Prospective(leader_endpoints=endpoints):
                return endpoints
        return ()

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        """Whether this replica holds elections. One that a record removes goes on until that record is committed.

        Else nobody could: a leader of two that removed itself, and did not commit that, has the only log that can win.
        """
        voters = self.voters
        if not self.config.can_vote or voters.last.is_voter(self.key):
            return self.config.can_vote
        offset = voters.last_offset
        return offset is not None and offset >= self.high_watermark and voters.at(offset).is_voter(self.key)

    @property
    def is_only_voter(self) -> bool:
        return self.config.can_vote and self.voters.last.is_only_voter(self.key)

    @property
    def deadline_ms(self) -> int:
        """When `tick` has to be called at the latest; NEVER if nothing is to come."""
        return min(self.role.deadline_ms(self.is_voter), self.peers.next_deadline_ms(self._now_ms))

    # What happens to it.

    def step(self, message: Message, now_ms: int) -> Effects:
        self._now_ms = now_ms
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
        self._now_ms = now_ms
        for request_id in self.peers.expired(now_ms):
            self._on_failure(Failed(request_id), now_ms)
        return self._finish(now_ms)

    def append(self, batches: Sequence[tuple[int, Any]], now_ms: int) -> tuple[int, Effects]:
        """As leader, append batches of (record count, data). Returns the last offset."""
        role = self.role
        if not isinstance(role, Leader) or role.resign_requested:
            raise NotLeader(self.leader_id, self.epoch)
        self._now_ms = now_ms
        for count, data in batches:
            self.append_batch(count, data)
        return self.log.end_offset - 1, self._finish(now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Give up leadership, if it is ours, and tell the voters who should be next."""
        self._now_ms = now_ms
        if isinstance(self.role, Leader):
            self.become_resigned(now_ms)
        return self._finish(now_ms)

    def abandon_download(self, now_ms: int) -> Effects:
        """The snapshot that came from the leader cannot be used: fetch again, and be told which to take."""
        self._now_ms = now_ms
        replication.end_download(self, now_ms)
        return self._finish(now_ms)

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """A snapshot of our own is on the disk."""
        assert snapshot.offset <= self.high_watermark, f"snapshot {snapshot} beyond the watermark {self.high_watermark}"
        self.log.add_snapshot(snapshot)

    def start_log_at(self, snapshot: OffsetAndEpoch) -> None:
        """The log and the snapshots before this one are going to be deleted."""
        self.log.start_at_snapshot(snapshot)
        self.voters.forget_before(self.log.start_offset)

    # What its parts use.

    _now_ms = 0

    def note(self, text: str) -> None:
        self.effects.notes.append(text)

    def reply(self, reply_to: Any, body: ReplyBody) -> None:
        self.effects.replies.append(Reply(reply_to, body))

    def send(self, destination_id: int, endpoints: Endpoints, body: RequestBody, now_ms: int) -> int:
        """Send if the replica is ready for a request. Returns the request's id, or -1."""
        if not endpoints or not self.peers.is_ready(destination_id, now_ms):
            return -1
        request_id = self.peers.sent(destination_id, body, now_ms)
        timeout_ms = self.config.request_timeout_ms
        self.effects.requests.append(
            Request(request_id, destination_id, self.quorum_endpoint(endpoints), body, timeout_ms)
        )
        return request_id

    def quorum_endpoint(self, endpoints: Endpoints) -> Endpoint:
        """Replicas talk on the listener that this one's quorum talks on, or the first that the other has."""
        own = self.config.endpoints[0].name if self.config.endpoints else ""
        return next((endpoint for endpoint in endpoints if endpoint.name == own), endpoints[0])

    def is_foreign_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.config.cluster_id

    def random_election_timeout_ms(self) -> int:
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms) if timeout_ms > 0 else 0

    def append_batch(self, count: int, data: Any) -> int:
        """Append as leader; returns the last offset. Control records may change the voters, at once."""
        assert count > 0
        base_offset, epoch = self.log.end_offset, self.epoch
        last_offset = base_offset + count - 1
        voters = data.voters if isinstance(data, ControlRecords) else None
        kraft_version = data.kraft_version if isinstance(data, ControlRecords) else None
        self.log.append(base_offset, last_offset, epoch)
        self.effects.appends.append(Batch(base_offset, last_offset, epoch, data, voters, kraft_version))
        self.effects.flush = True
        self.voters.append(last_offset, voters, kraft_version)
        if voters is not None and isinstance(self.role, Leader):
            self.role.set_voters(voters)
            # The new majority gets its full time: the only voter, say, had nobody to wait for until now.
            self.role.check_quorum_deadline_ms = self._now_ms + self.role.check_quorum_ms
        return last_offset

    def advance_high_watermark(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        assert high_watermark <= self.log.end_offset
        self.high_watermark = self.effects.high_watermark = high_watermark
        if isinstance(self.role, Leader):
            self._tell_leader(LeaderAndEpoch(self.key.id, self.epoch))
            reconfiguration.on_high_watermark(self, self.role)

    # Transitions.

    def become_unattached(self, epoch: int, now_ms: int, voted: ReplicaKey | None = None, leader_id: int = -1) -> None:
        timeout_ms = self.random_election_timeout_ms()
        match self.role:
            case Unattached(election_deadline_ms=deadline_ms) | Candidate(election_deadline_ms=deadline_ms) if (
                not voted
            ):
                # A higher epoch alone is no reason to wait longer: else two candidates could keep a third from trying.
                pass
            case Prospective():
                deadline_ms = now_ms + self.election_backoff_ms()
            case _:
                deadline_ms = now_ms + timeout_ms
        self._set_role(Unattached(epoch, deadline_ms, voted, leader_id), now_ms)

    def become_prospective(self, now_ms: int) -> None:
        old = self.role
        election = old.election
        votes = Votes.among(self.voters.last.ids, self.key.id)
        deadline_ms = now_ms + self.random_election_timeout_ms()
        role = Prospective(old.epoch, votes, deadline_ms, now_ms, election.voted, election.leader_id)
        role.leader_endpoints = self.leader_endpoints
        self._set_role(role, now_ms)

    def become_candidate(self, now_ms: int) -> None:
        votes = Votes.among(self.voters.last.ids, self.key.id)
        deadline_ms = now_ms + self.random_election_timeout_ms()
        self._set_role(Candidate(self.epoch + 1, self.key, votes, deadline_ms), now_ms)

    def become_leader(self, now_ms: int) -> None:
        candidate = self.role
        assert isinstance(candidate, Candidate)
        voter_set = self.voters.last
        granting = tuple(voter.key for voter in voter_set if voter.id in candidate.votes.granted)
        config = self.config
        check_ms, begin_ms = int(config.fetch_timeout_ms * CHECK_QUORUM_FACTOR), config.fetch_timeout_ms // 2
        start_offset = self.log.end_offset
        self.led_epoch = candidate.epoch
        role = Leader(candidate.epoch, self.key, start_offset, granting, check_ms, now_ms + check_ms, begin_ms, now_ms)
        role.set_voters(voter_set)
        self._set_role(role, now_ms)
        self.elections_lost = 0
        voter_keys = tuple(voter.key for voter in voter_set)
        records = ControlRecords(LeaderChange(self.key, voter_keys, granting), *self._own_voter_records(voter_set))
        self.append_batch(records.count, records)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        voted = self.role.election.voted if epoch == self.epoch else None
        fetch_deadline_ms = now_ms + self.config.fetch_timeout_ms
        role = Follower(epoch, leader_id, endpoints, fetch_deadline_ms, voted)
        role.voter_change_ms = now_ms
        self._set_role(role, now_ms)
        self.elections_lost = 0

    def become_resigned(self, now_ms: int) -> None:
        leader = self.role
        assert isinstance(leader, Leader)
        successors = leader.successors()
        deadline_ms = now_ms + self.random_election_timeout_ms()
        unacknowledged = {successor.id for successor in successors}
        self._set_role(Resigned(leader.epoch, self.key.id, deadline_ms, successors, unacknowledged), now_ms)

    def election_backoff_ms(self) -> int:
        """Grows with the elections lost in a row, so that candidates that collide draw apart."""
        limit_ms = min(self.config.election_backoff_ms_max, 100 << min(self.elections_lost, 10))
        return 20 + self.rng.randrange(max(1, limit_ms))

    def _own_voter_records(self, voter_set: VoterSet) -> tuple[int | None, VoterSet | None]:
        """A dynamic leader writes the voter set when the log has none yet, or when its own entry is out of date."""
        if self.voters.kraft_version < DYNAMIC_VOTERS:
            return None, None
        own, known = self.config.own_voter, voter_set.get(self.key.id)
        written = self.voters.last_offset is not None and self.voters.last_offset >= 0
        if known is None or (written and known == own):
            return None, None
        return self.voters.kraft_version, voter_set.updated(own)

    def _set_role(self, role: Role, now_ms: int) -> None:
        old = self.role
        check_transition(old, role)
        self.role = role
        self.peers.reset()
        if isinstance(old, Leader):
            replication.release_parked(self, old)
            reconfiguration.abandon(self, old)
        if role.election != self._durable:
            self._durable = self.effects.election = role.election
        if type(role) is not type(old) or role.epoch != old.epoch:
            self.note(f"{type(old).__name__} -> {type(role).__name__} in epoch {role.epoch}, leader {self.leader_id}")
        if not isinstance(role, Leader):
            # Resigned: the role still is this epoch's leader for votes, but nobody may append to it.
            leader_id = -1 if isinstance(role, Resigned) else role.election.leader_id
            self._tell_leader(LeaderAndEpoch(leader_id, role.epoch))

    def _tell_leader(self, leader: LeaderAndEpoch) -> None:
        if leader != self._told:
            self._told = self.effects.leader_change = leader

    # One step.

    def _on_request(self, body: RequestBody, reply_to: Any, now_ms: int) -> None:
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
        # Where the epochs are told apart first: see elections.accept.
        found = self.peers.completed(request_id, now_ms, back_off=False)
        if found is None:
            return
        destination_id, request = found
        role = self.role
        self._hear_refusal(destination_id, reply, now_ms)
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
                handled = elections.accept(self, reply, now_ms)
            case AddVoter() | RemoveVoter(), VoterChangeReply():
                # It says neither epoch nor leader. Whether there was a change the log will tell.
                handled = reply.error is ErrorCode.NONE
            case _, SupportedVersionsReply():
                reconfiguration.on_supported_versions(self, request_id, reply, now_ms)
                handled = True
            case _:
                raise AssertionError(f"{reply} does not answer {request}")
        if not handled and self.role is role:
            self.peers.back_off(destination_id, now_ms)

    def _hear_refusal(self, destination_id: int, reply: ReplyBody, now_ms: int) -> None:
        refusals, config = self.refusals, self.config
        refusals.heard(destination_id, reply.error)
        if not isinstance(reply, SupportedVersionsReply) and reply.leader_id >= 0:
            # Of an epoch that it has led itself it hears for as long as the others elect nobody: no namesake is needed.
            is_own_id = reply.leader_id == self.key.id != self.leader_id and reply.epoch > self.led_epoch
            refusals.heard_leader(is_own_id, now_ms)
        if refusals.is_namesake(now_ms, NAMESAKE_TIMEOUTS * config.fetch_timeout_ms):
            self.effects.disagreement = agreement.namesake(self.key.id)
        else:
            self.effects.disagreement = refusals.verdict(
                self.key.id, config.cluster_id, self.voters.last, len(config.bootstrap_servers)
            )

    def _on_failure(self, failed: Failed, now_ms: int) -> None:
        found = self.peers.completed(failed.request_id, now_ms, back_off=True)
        if found is None:
            return
        destination_id, request = found
        if isinstance(request, Vote) and request.pre_vote and failed.unsupported_version:
            # A voter from before KIP-996 cannot be asked; it counts as agreeing, as it would without pre-votes.
            elections.record_vote(self, destination_id, request, True, now_ms)
        elif isinstance(request, Fetch | FetchSnapshot):
            replication.on_fetch_failure(self, destination_id, failed, now_ms)
        reconfiguration.on_probe_failure(self, failed.request_id)

    def _finish(self, now_ms: int) -> Effects:
        """Do what the role wants to do now, until it wants nothing more; hand over the effects."""
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
            raise AssertionError(f"the roles do not come to rest: {self.role}")
        effects, self.effects = self.effects, Effects()
        return effects
