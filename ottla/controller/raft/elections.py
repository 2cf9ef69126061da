"""Elections: votes, pre-votes, and how replicas learn the leader of an epoch. Functions on the state.

Every reply has an epoch and a leader, which `accept` handles first: any message brings a replica to the latest epoch.
"""

from __future__ import annotations

from ottla.controller.raft import transitions
from ottla.controller.raft.agreement import is_no_voter
from ottla.controller.raft.effects import ElectionState
from ottla.controller.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Fetch,
    LeaderReply,
    Vote,
    VoteReply,
)
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from ottla.controller.raft.voters import QuorumEndpoints, ReplicaKey
from ottla.protocol.errors import ErrorCode

#: The time after which a Prospective retries rejected pre-votes, at random up to twice this. It is long enough for peers to
#: notice a failed leader too (leader_loss_grace_ms), and short compared with the election timeout.
PRE_VOTE_RETRY_MS = 50
#: A replica that starts without a known leader requests pre-votes after at most this, not after the election timeout.
#: In a starting cluster there is no leader yet, and in a running one pre-votes do no harm.
START_ELECTION_MS_MAX = 100

#: Errors of peers that reject this node: epoch and leader of such a reply are not valid.
REJECTIONS = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INCONSISTENT_VOTER_SET,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def initial_role(state: QuorumState, election: ElectionState, now_ms: int) -> Role:
    """Return the role that continues the durable state. No replica starts as leader: see Resigned."""
    deadline_ms = now_ms + state.random_election_timeout_ms()
    if election.epoch < state.log.last_epoch:
        # The quorum-state file was lost or is older than the log. The vote in the log's epoch is unknown, but an epoch with
        # records has a leader, so a vote in it has no effect any more.
        return Unattached(state.log.last_epoch, deadline_ms)
    if election.leader_id == state.key.id:
        # This replica led the epoch and may have lost unflushed records since. If it continued to lead, it would write other records at
        # the same (offset, epoch); if it voted for another candidate, the epoch would have two leaders.
        # Voters that restarted too follow it: it resigns to each of them, as in Kafka, so that they need not miss it first.
        others = set(state.voters.last.ids) - {state.key.id}
        return Resigned(election.epoch, state.key.id, deadline_ms, unacknowledged=others)
    if election.leader_id >= 0:
        endpoints = state.voters.last.endpoints(election.leader_id)
        if endpoints:
            fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
            return Follower(election.epoch, election.leader_id, endpoints, fetch_deadline_ms, election.voted)
        return Unattached(election.epoch, deadline_ms, election.voted, election.leader_id)
    start_ms = now_ms + state.rng.randrange(START_ELECTION_MS_MAX)
    return Unattached(election.epoch, start_ms, election.voted)


# Requests of other replicas


def on_vote(state: QuorumState, vote: Vote, now_ms: int) -> VoteReply:
    if state.is_foreign_cluster(vote.cluster_id):
        return VoteReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    is_meant = vote.candidate.id >= 0 and vote.candidate.id != state.key.id and _is_possible(vote)
    if is_meant and _rejects_non_voter(state, vote.candidate.id, vote.voter):
        return VoteReply(ErrorCode.INCONSISTENT_VOTER_SET)
    error, granted = _judge_vote(state, vote, now_ms)
    return state.answer(VoteReply, error, granted=granted)


def _rejects_non_voter(state: QuorumState, sender_id: int, meant: ReplicaKey | None) -> bool:
    """Return True if a request comes from a node outside controller.quorum.voters.

    A request that names this replica's directory comes from a voter set in the log (KIP-853), because a configured list has no
    directory ids. This replica may have missed that set while it was down. If it rejected the candidate, no leader could be
    elected when a majority needs the votes of replicas that were down.
    """
    if sender_id < 0 or meant == state.key or not is_no_voter(state.voters, sender_id):
        return False
    state.note(
        f"REFUSED: node {sender_id} acts as a voter, but controller.quorum.voters here is"
        f" {','.join(map(str, state.voters.last.ids))}; give all nodes the same list"
    )
    return True


def _is_possible(vote: Vote) -> bool:
    # A candidate has raised its epoch above that of its log; a prospective has not.
    epoch_of_log_max = vote.epoch if vote.pre_vote else vote.epoch - 1
    return vote.log_end.offset >= 0 and 0 <= vote.log_end.epoch <= epoch_of_log_max


def _judge_vote(state: QuorumState, vote: Vote, now_ms: int) -> tuple[ErrorCode, bool]:
    if not _is_possible(vote):
        return ErrorCode.INVALID_REQUEST, False
    if vote.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, False
    if vote.candidate.id < 0 or vote.candidate.id == state.key.id:
        return ErrorCode.INVALID_REQUEST, False
    if vote.epoch > state.epoch:
        transitions.become_unattached(state, vote.epoch, now_ms)
    if not is_own_key(state, vote.voter):
        return ErrorCode.INVALID_VOTER_KEY, False
    up_to_date = vote.log_end.is_up_to_date_with(state.log.end)
    granted = state.role.can_grant_vote(vote.candidate, up_to_date, vote.pre_vote)
    if granted and not vote.pre_vote and state.role.election.voted is None:
        transitions.become_unattached(state, state.epoch, now_ms, voted=vote.candidate)
    kind = "pre-vote" if vote.pre_vote else "vote"
    state.note(f"{kind} of {vote.candidate} in epoch {vote.epoch} is {'granted' if granted else 'refused'}")
    return ErrorCode.NONE, granted


def is_own_key(state: QuorumState, meant: ReplicaKey | None) -> bool:
    """Return True if the request is meant for this replica: its address may have belonged to another replica before."""
    if meant is None or meant.id < 0:
        return True
    return meant.id == state.key.id and (not meant.knows_directory or meant == state.key)


def on_begin_quorum_epoch(state: QuorumState, begin: BeginQuorumEpoch, now_ms: int) -> BeginQuorumEpochReply:
    if state.is_foreign_cluster(begin.cluster_id):
        return BeginQuorumEpochReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if _rejects_non_voter(state, begin.leader_id, begin.voter):
        return BeginQuorumEpochReply(ErrorCode.INCONSISTENT_VOTER_SET)
    error = _follow_sender(state, begin, now_ms)
    if error is ErrorCode.NONE and not is_own_key(state, begin.voter):
        error = ErrorCode.INVALID_VOTER_KEY
    return state.answer(BeginQuorumEpochReply, error)


def on_end_quorum_epoch(state: QuorumState, end: EndQuorumEpoch, now_ms: int) -> EndQuorumEpochReply:
    if state.is_foreign_cluster(end.cluster_id):
        return EndQuorumEpochReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    meant = state.key if state.key in end.preferred_candidates else None
    if _rejects_non_voter(state, end.leader_id, meant):
        return EndQuorumEpochReply(ErrorCode.INCONSISTENT_VOTER_SET)
    error = _follow_sender(state, end, now_ms)
    role = state.role
    if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == end.leader_id:
        # The most advanced voter starts an election first; each other one follows a little later, in case the first fails.
        role.has_fetched = False
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + _succession_delay_ms(state, end))
    return state.answer(EndQuorumEpochReply, error)


def _succession_delay_ms(state: QuorumState, end: EndQuorumEpoch) -> int:
    total = len(end.preferred_candidates)
    if total == 0:
        # A leader that has restarted does not know who has the longest log.
        return state.rng.randrange(START_ELECTION_MS_MAX)
    position = next((i for i, key in enumerate(end.preferred_candidates) if is_own_key(state, key)), total)
    if position == 0:
        return 0
    if position >= total:
        return state.config.election_backoff_ms_max
    return min(
        state.config.election_backoff_ms_max, (state.config.election_backoff_ms_max >> (total - 1)) << (position - 1)
    )


def _follow_sender(state: QuorumState, request: BeginQuorumEpoch | EndQuorumEpoch, now_ms: int) -> ErrorCode:
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.leader_id < 0 or not is_consistent_leader(state, request.epoch, request.leader_id):
        return ErrorCode.INVALID_REQUEST
    endpoints = request.leader_endpoints or state.voters.last.endpoints(request.leader_id)
    follow_or_fall_back(state, request.epoch, request.leader_id, endpoints, now_ms)
    return ErrorCode.NONE


# Replies of other replicas


def accept(state: QuorumState, reply: LeaderReply, now_ms: int) -> bool:
    """Handle the epoch and leader of a reply. Return True if the next request to the replica needs no backoff.

    Afterwards the rest of the reply is valid only if its error is NONE and its epoch is ours: see `is_current`.
    """
    if reply.error in REJECTIONS:
        state.note(f"a replica of the quorum rejected this node: {reply.error.name}: {reply.error.message}")
        return False
    if reply.epoch < state.epoch or reply.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False
    endpoints = reply.leader_endpoints or state.voters.last.endpoints(reply.leader_id)
    if not is_consistent_leader(state, reply.epoch, reply.leader_id):
        state.note(
            f"a reply names {reply.leader_id} as leader of epoch {reply.epoch}, but its leader is {state.leader_id}"
        )
        return False
    follow_or_fall_back(state, reply.epoch, reply.leader_id, endpoints, now_ms)
    return reply.error is ErrorCode.NONE


def is_current(state: QuorumState, reply: LeaderReply, epoch: int) -> bool:
    """Return True if a reply to a request of that epoch is still valid in the current epoch."""
    return reply.error is ErrorCode.NONE and reply.epoch == state.epoch == epoch


def is_consistent_leader(state: QuorumState, epoch: int, leader_id: int) -> bool:
    """Return False if the message names a second leader for an epoch: it is from another cluster, or a disk was restored from an old copy."""
    if leader_id < 0:
        return True
    if leader_id == state.key.id:
        return epoch == state.epoch and state.leader_id == leader_id
    return epoch != state.epoch or state.leader_id in (-1, leader_id)


def follow_or_fall_back(
    state: QuorumState, epoch: int, leader_id: int, endpoints: QuorumEndpoints, now_ms: int
) -> None:
    """Enter a later epoch, or follow the leader of this one."""
    role = state.role
    if leader_id == state.key.id:
        return
    if epoch > state.epoch:
        if leader_id >= 0 and endpoints:
            transitions.become_follower(state, epoch, leader_id, endpoints, now_ms)
        else:
            transitions.become_unattached(state, epoch, now_ms, leader_id=leader_id)
    elif epoch == state.epoch and leader_id >= 0 and endpoints:
        if isinstance(role, Unattached | Candidate) or (isinstance(role, Prospective) and role.leader_id < 0):
            transitions.become_follower(state, epoch, leader_id, endpoints, now_ms)
        elif isinstance(role, Follower) and len(endpoints) > len(role.leader_endpoints):
            role.leader_endpoints = endpoints


def on_vote_reply(state: QuorumState, voter_id: int, vote: Vote, reply: VoteReply, now_ms: int) -> bool:
    handled = accept(state, reply, now_ms)
    if is_current(state, reply, vote.epoch):
        record_vote(state, voter_id, vote, reply.granted, now_ms)
    return handled


def record_vote(state: QuorumState, voter_id: int, vote: Vote, granted: bool, now_ms: int) -> None:
    role = state.role
    if isinstance(role, Prospective) and vote.pre_vote and vote.epoch == role.epoch:
        role.votes.record(voter_id, granted)
        if role.votes.is_lost and not role.votes.is_won:
            _return_from_pre_vote(state, role, now_ms)
    elif isinstance(role, Candidate) and not vote.pre_vote and vote.epoch == role.epoch:
        role.votes.record(voter_id, granted)


def on_end_quorum_epoch_reply(state: QuorumState, voter_id: int, reply: EndQuorumEpochReply, now_ms: int) -> bool:
    handled = accept(state, reply, now_ms)
    if handled and isinstance(state.role, Resigned):
        state.role.unacknowledged.discard(voter_id)
    return handled


# Actions of a replica without a leader


def drive_unattached(state: QuorumState, role: Unattached, now_ms: int) -> None:
    if state.is_only_voter or (state.is_voter and now_ms >= role.election_deadline_ms):
        transitions.become_prospective(state, now_ms)
    else:
        ask_for_leader(state, now_ms)


def drive_prospective(state: QuorumState, role: Prospective, now_ms: int) -> None:
    if role.votes.is_won and state.is_voter:
        transitions.become_candidate(state, now_ms)
    elif now_ms >= role.election_deadline_ms or not state.is_voter:
        _return_from_pre_vote(state, role, now_ms)
    else:
        if now_ms >= role.retry_ms:
            role.votes.rejected.clear()
            role.retry_ms = now_ms + PRE_VOTE_RETRY_MS + state.rng.randrange(PRE_VOTE_RETRY_MS)
        _send_votes(state, role, now_ms)


def _return_from_pre_vote(state: QuorumState, role: Prospective, now_ms: int) -> None:
    if role.leader_id >= 0 and role.leader_endpoints:
        transitions.become_follower(state, role.epoch, role.leader_id, role.leader_endpoints, now_ms)
    else:
        state.elections_lost += 1
        transitions.become_unattached(state, role.epoch, now_ms, voted=role.voted, leader_id=role.leader_id)


def drive_candidate(state: QuorumState, role: Candidate, now_ms: int) -> None:
    if not state.is_voter:
        transitions.become_unattached(state, role.epoch, now_ms, voted=role.own_key)
    elif role.votes.is_won:
        transitions.become_leader(state, now_ms)
    elif now_ms >= role.election_deadline_ms:
        if not role.is_backing_off:
            state.elections_lost += 1
        transitions.become_prospective(state, now_ms)
    elif not role.is_backing_off:
        if _cannot_be_won(state, role, now_ms):
            state.elections_lost += 1
            role.is_backing_off = True
            role.election_deadline_ms = now_ms + state.election_backoff_ms()
        else:
            _send_votes(state, role, now_ms)


def _cannot_be_won(state: QuorumState, role: Candidate, now_ms: int) -> bool:
    """Return True if enough voters have rejected, or if the remaining reachable voters are too few for a majority.

    The second case: two of three voters notice the failed leader at the same moment, and each votes for itself. They reject each
    other, and waiting for the failed node's vote until the election timeout would take a second or two.
    """
    votes = role.votes
    unreachable = {voter_id for voter_id in votes.open if state.peers.is_backing_off(voter_id, now_ms)}
    left = votes.voters - votes.rejected - unreachable
    return votes.is_lost or (bool(votes.rejected) and len(left) < votes.majority)


def _send_votes(state: QuorumState, role: Prospective | Candidate, now_ms: int) -> None:
    for voter in state.voters.last:
        if voter.id in role.votes.open:
            vote = Vote(
                state.config.cluster_id, voter.key, role.epoch, state.key, state.log.end, isinstance(role, Prospective)
            )
            state.send(voter.id, voter.endpoints, vote, now_ms)


def drive_resigned(state: QuorumState, role: Resigned, now_ms: int) -> None:
    if state.is_only_voter:
        transitions.become_prospective(state, now_ms)
    elif now_ms >= role.election_deadline_ms:
        transitions.become_unattached(state, role.epoch + 1, now_ms)
    else:
        for voter in state.voters.last:
            if voter.id in role.unacknowledged:
                end = EndQuorumEpoch(
                    state.config.cluster_id, role.epoch, state.key.id, role.preferred_successors, state.config.endpoints
                )
                state.send(voter.id, voter.endpoints, end, now_ms)
        if not role.unacknowledged:
            # Every voter has been informed, or this replica has just started: the next epoch may have a leader already.
            ask_for_leader(state, now_ms)


def ask_for_leader(state: QuorumState, now_ms: int) -> None:
    """Send a Fetch to a random replica that may know the leader; its response names the leader (KIP-595). One request at a time."""
    if state.peers.any_waiting:
        return
    targets = [
        (target_id, endpoints)
        for target_id, endpoints in known_replicas(state)
        if state.peers.is_ready(target_id, now_ms)
    ]
    if targets:
        target_id, endpoints = state.rng.choice(targets)
        fetch = Fetch(state.config.cluster_id, state.key, state.epoch, state.log.end, state.high_watermark)
        state.send(target_id, endpoints, fetch, now_ms)


def known_replicas(state: QuorumState) -> list[tuple[int, QuorumEndpoints]]:
    """Return voters and bootstrap servers, without this node. The latter get the ids -2, -3, ... as in Kafka; -1 means no node.

    Unlike Kafka, requests go to both: all voters may have been replaced since the bootstrap servers were configured.
    """
    own = {endpoint[1:] for endpoint in state.config.endpoints}
    found = [(voter.id, voter.endpoints) for voter in state.voters.last if voter.id != state.key.id]
    role = state.role
    if isinstance(role, Follower) and state.voters.last.get(role.leader_id) is None:
        found.append((role.leader_id, role.leader_endpoints))
    addresses = own | {endpoint[1:] for _, endpoints in found for endpoint in endpoints}
    for index, server in enumerate(state.config.bootstrap_servers):
        if server[1:] not in addresses:
            found.append((-2 - index, (server,)))
    return found
