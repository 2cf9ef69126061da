"""Changes of a replica's role, appends of a leader, the high watermark, and the leader's pending responses: delayed fetches, and
the change of the voters that waits for its commit. Functions on the state.

Every change of the role is checked against the table in `quorum.py`.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.effects import LeaderAndEpoch
from ottla.controller.raft.leader import CHECK_QUORUM_FACTOR, Leader
from ottla.controller.raft.messages import Batch, ControlRecords, FetchReply, LeaderChange, VoterChangeReply
from ottla.controller.raft.quorum import check_transition
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached, Votes
from ottla.controller.raft.voters import DYNAMIC_VOTERS, QuorumEndpoints, ReplicaKey, VoterSet
from ottla.protocol.errors import ErrorCode


def fetch_reply(state: QuorumState, error: ErrorCode, **rest: Any) -> FetchReply:
    high_watermark = state.role.high_watermark if isinstance(state.role, Leader) else -1
    return state.answer(
        FetchReply, error, high_watermark=high_watermark, log_start_offset=state.log.start_offset, **rest
    )


def voter_change_reply(state: QuorumState, error: ErrorCode, message: str | None = None) -> VoterChangeReply:
    return state.answer(VoterChangeReply, error, message=message)


def finish_change(state: QuorumState, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
    change, leader.change = leader.change, None
    if change is not None and change.reply_to is not None:
        state.reply(change.reply_to, voter_change_reply(state, error, message))


def _on_high_watermark(state: QuorumState, leader: Leader) -> None:
    change = leader.change
    if change is not None and 0 <= change.offset < leader.high_watermark:
        finish_change(state, leader, ErrorCode.NONE)
    last_offset = state.voters.last_offset
    if not leader.is_counted(state.key) and last_offset is not None and last_offset < leader.high_watermark:
        # The removed leader led, without a vote of its own, until the set without it was committed.
        leader.resign_requested = True


def _on_leadership_lost(state: QuorumState, leader: Leader) -> None:
    """Complete all pending responses: followers look for the new leader at once, and that leader decides about the change of
    the voters.
    """
    for parked in leader.parked:
        state.reply(parked.reply_to, fetch_reply(state, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.parked.clear()
    if leader.change is not None:
        finish_change(state, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# The role.


def become_unattached(
    state: QuorumState, epoch: int, now_ms: int, voted: ReplicaKey | None = None, leader_id: int = -1
) -> None:
    timeout_ms = state.random_election_timeout_ms()
    match state.role:
        case Unattached(election_deadline_ms=deadline_ms) | Candidate(election_deadline_ms=deadline_ms) if not voted:
            # A higher epoch alone does not extend the deadline: otherwise two candidates could prevent a third from starting an election.
            pass
        case Prospective():
            deadline_ms = now_ms + state.election_backoff_ms()
        case _:
            deadline_ms = now_ms + timeout_ms
    _set_role(state, Unattached(epoch, deadline_ms, voted, leader_id))


def become_prospective(state: QuorumState, now_ms: int) -> None:
    old = state.role
    election = old.election
    votes = Votes.among(state.voters.last.ids, state.key.id)
    deadline_ms = now_ms + state.random_election_timeout_ms()
    role = Prospective(old.epoch, votes, deadline_ms, now_ms, election.voted, election.leader_id)
    role.leader_endpoints = state.leader_endpoints
    _set_role(state, role)


def become_candidate(state: QuorumState, now_ms: int) -> None:
    votes = Votes.among(state.voters.last.ids, state.key.id)
    deadline_ms = now_ms + state.random_election_timeout_ms()
    _set_role(state, Candidate(state.epoch + 1, state.key, votes, deadline_ms))


def become_leader(state: QuorumState, now_ms: int) -> None:
    candidate = state.role
    assert isinstance(candidate, Candidate)
    voter_set = state.voters.last
    granting = tuple(voter.key for voter in voter_set if voter.id in candidate.votes.granted)
    config = state.config
    check_ms, begin_ms = int(config.fetch_timeout_ms * CHECK_QUORUM_FACTOR), config.fetch_timeout_ms // 2
    start_offset = state.log.end_offset
    state.led_epoch = candidate.epoch
    role = Leader(candidate.epoch, state.key, start_offset, granting, check_ms, now_ms + check_ms, begin_ms, now_ms)
    role.set_voters(voter_set)
    _set_role(state, role)
    state.elections_lost = 0
    voter_keys = tuple(voter.key for voter in voter_set)
    records = ControlRecords(LeaderChange(state.key, voter_keys, granting), *_own_voter_records(state, voter_set))
    append_batch(state, records.count, records)


def become_follower(state: QuorumState, epoch: int, leader_id: int, endpoints: QuorumEndpoints, now_ms: int) -> None:
    voted = state.role.election.voted if epoch == state.epoch else None
    fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    role = Follower(epoch, leader_id, endpoints, fetch_deadline_ms, voted)
    role.voter_change_ms = now_ms
    _set_role(state, role)
    state.elections_lost = 0


def become_resigned(state: QuorumState, now_ms: int) -> None:
    leader = state.role
    assert isinstance(leader, Leader)
    successors = leader.successors()
    deadline_ms = now_ms + state.random_election_timeout_ms()
    unacknowledged = {successor.id for successor in successors}
    _set_role(state, Resigned(leader.epoch, state.key.id, deadline_ms, successors, unacknowledged))


def _own_voter_records(state: QuorumState, voter_set: VoterSet) -> tuple[int | None, VoterSet | None]:
    """Return the records of the voter set that a leader of dynamic voters writes if the log has none, or its own entry is out of date."""
    if state.voters.kraft_version < DYNAMIC_VOTERS:
        return None, None
    own, known = state.config.own_voter, voter_set.get(state.key.id)
    written = state.voters.last_offset is not None and state.voters.last_offset >= 0
    if known is None or (written and known == own):
        return None, None
    return state.voters.kraft_version, voter_set.updated(own)


def _set_role(state: QuorumState, role: Role) -> None:
    old = state.role
    check_transition(old, role)
    state.role = role
    state.peers.reset()
    if isinstance(old, Leader):
        _on_leadership_lost(state, old)
    if role.election != state.durable_election:
        state.durable_election = state.effects.election = role.election
    if type(role) is not type(old) or role.epoch != old.epoch:
        state.note(f"{type(old).__name__} -> {type(role).__name__} in epoch {role.epoch}, leader {state.leader_id}")
    if not isinstance(role, Leader):
        # Resigned: for votes the role is still this epoch's leader, but it does not append.
        leader_id = -1 if isinstance(role, Resigned) else role.election.leader_id
        _notify_leader(state, LeaderAndEpoch(leader_id, role.epoch))


def _notify_leader(state: QuorumState, leader: LeaderAndEpoch) -> None:
    if leader != state.notified_leader:
        state.notified_leader = state.effects.leader_change = leader


# The log and the high watermark.


def append_batch(state: QuorumState, count: int, data: object) -> int:
    """Append as leader; return the last offset. Control records about voters take effect at once."""
    assert count > 0
    base_offset, epoch = state.log.end_offset, state.epoch
    last_offset = base_offset + count - 1
    voters = data.voters if isinstance(data, ControlRecords) else None
    kraft_version = data.kraft_version if isinstance(data, ControlRecords) else None
    state.log.append(base_offset, last_offset, epoch)
    state.effects.appends.append(Batch(base_offset, last_offset, epoch, data, voters, kraft_version))
    state.effects.flush = True
    state.voters.append(last_offset, voters, kraft_version)
    if voters is not None and isinstance(state.role, Leader):
        state.role.set_voters(voters)
        # The new majority gets its full time: for example, a single voter had no check-quorum deadline until now.
        state.role.check_quorum_deadline_ms = state.now_ms + state.role.check_quorum_ms
    return last_offset


def advance_high_watermark(state: QuorumState, high_watermark: int) -> None:
    if high_watermark <= state.high_watermark:
        return
    assert high_watermark <= state.log.end_offset
    state.high_watermark = state.effects.high_watermark = high_watermark
    if isinstance(state.role, Leader):
        _notify_leader(state, LeaderAndEpoch(state.key.id, state.epoch))
        _on_high_watermark(state, state.role)
