"""Replication of the log from the leader to its followers. Functions on the state.

A follower fetches at the end of its log and sends the last epoch in it. The leader responds with records, with the point
of divergence (the follower truncates), or with a snapshot. A voter fetches again only after a flush, because its fetch
offset counts as an acknowledgement.

A fetch without new records is delayed at the leader. The next append completes it, or, because of KIP-1166, the next advance
of the high watermark, so that followers learn of a commit one network delay after the leader.
"""

from __future__ import annotations

from ottla.controller.raft import transitions
from ottla.controller.raft.effects import SnapshotChunk
from ottla.controller.raft.elections import accept, ask_for_leader, is_current
from ottla.controller.raft.leader import NEVER, Leader, Parked
from ottla.controller.raft.log_state import BOOTSTRAP_SNAPSHOT, Diverging, NeedsSnapshot
from ottla.controller.raft.messages import (
    AddVoter,
    BeginQuorumEpoch,
    Failed,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    RemoveVoter,
    SnapshotReceived,
    UpdateVoter,
    VoterChangeReply,
)
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.roles import Download, Follower
from ottla.controller.raft.transitions import fetch_reply
from ottla.controller.raft.voters import DYNAMIC_VOTERS
from ottla.protocol.errors import ErrorCode

#: The period in which a follower compares its entry in the voter set with its configuration.
VOTER_CHANGE_PERIOD_MS = 2000

VoterChange = AddVoter | RemoveVoter | UpdateVoter


# Leader


def on_fetch(state: QuorumState, fetch: Fetch, reply_to: object, now_ms: int) -> None:
    reply = _check_fetch(state, fetch) or answer_fetch(state, fetch, now_ms)
    has_news = reply.error is not ErrorCode.NONE or reply.diverging is not None or reply.snapshot is not None
    role = state.role
    if has_news or fetch.wait_ms_max == 0 or not isinstance(role, Leader):
        state.reply(reply_to, reply)
        return
    parked = Parked(reply_to, fetch, now_ms + fetch.wait_ms_max)
    if parked.wants(state.log.end_offset, role.high_watermark):
        state.reply(reply_to, reply)
    else:
        role.parked.append(parked)


def _check_fetch(state: QuorumState, fetch: Fetch) -> FetchReply | None:
    if state.is_foreign_cluster(fetch.cluster_id):
        return FetchReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    end = fetch.log_end
    if fetch.wait_ms_max < 0 or end.offset < 0 or not 0 <= end.epoch <= fetch.epoch or fetch.replica.id == state.key.id:
        return fetch_reply(state, ErrorCode.INVALID_REQUEST)
    error = check_leader(state, fetch.epoch)
    return None if error is ErrorCode.NONE else fetch_reply(state, error)


def check_leader(state: QuorumState, epoch: int) -> ErrorCode:
    """Return the error of a request to the leader of `epoch`: NONE if this replica is that leader."""
    if epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(state.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def answer_fetch(state: QuorumState, fetch: Fetch, now_ms: int) -> FetchReply:
    """Respond from the current log, and count the acknowledgement of the fetch."""
    leader = state.role
    assert isinstance(leader, Leader)
    match state.log.validate(fetch.log_end):
        case Diverging(end):
            return fetch_reply(state, ErrorCode.NONE, diverging=end)
        case NeedsSnapshot(snapshot):
            return fetch_reply(state, ErrorCode.NONE, snapshot=snapshot)
    if fetch.replica.id >= 0 and leader.record_fetch(fetch.replica, fetch.log_end.offset, state.log.end_offset, now_ms):
        transitions.advance_high_watermark(state, leader.high_watermark)
    return fetch_reply(state, ErrorCode.NONE, records_from=fetch.log_end.offset, bytes_max=fetch.bytes_max)


def on_fetch_snapshot(state: QuorumState, fetch: FetchSnapshot, now_ms: int) -> FetchSnapshotReply:
    """Respond to FetchSnapshot. The driver reads the file, and responds POSITION_OUT_OF_RANGE or SNAPSHOT_NOT_FOUND if that fails."""
    if state.is_foreign_cluster(fetch.cluster_id):
        return FetchSnapshotReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    leader, error = state.role, check_leader(state, fetch.epoch)
    if isinstance(leader, Leader) and error is ErrorCode.NONE:
        if fetch.replica.id == state.key.id:
            error = ErrorCode.INVALID_REQUEST
        elif fetch.snapshot not in state.log.snapshots or fetch.snapshot == BOOTSTRAP_SNAPSHOT:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif fetch.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            leader.record_contact(fetch.replica, now_ms)
    return state.answer(
        FetchSnapshotReply, error, snapshot=fetch.snapshot, position=fetch.position, bytes_max=fetch.bytes_max
    )


def on_flushed(state: QuorumState, generation: int, offset: int, now_ms: int) -> None:
    if generation != state.log.generation:
        state.effects.flush = not state.log.is_flushed
        return
    state.log.flushed_offset = max(state.log.flushed_offset, min(offset, state.log.end_offset))
    state.effects.flush = not state.log.is_flushed
    leader = state.role
    if isinstance(leader, Leader) and leader.record_local_end(state.log.flushed_offset):
        transitions.advance_high_watermark(state, leader.high_watermark)


def drive_leader(state: QuorumState, leader: Leader, now_ms: int) -> None:
    # Appends and commits of this step may commit more, for example a smaller voter set.
    if leader.record_local_end(state.log.flushed_offset):
        transitions.advance_high_watermark(state, leader.high_watermark)
    if leader.resign_requested or (leader.needs_check_quorum and now_ms >= leader.check_quorum_deadline_ms):
        reason = "it was asked to" if leader.resign_requested else "a majority of the voters did not fetch in time"
        state.note(f"resigning epoch {leader.epoch}: {reason}")
        transitions.become_resigned(state, now_ms)
        return
    if now_ms >= leader.begin_epoch_deadline_ms:
        leader.begin_epoch_deadline_ms = now_ms + leader.begin_epoch_ms
        for voter_id in leader.silent_voters(now_ms):
            voter = state.voters.last.get(voter_id)
            if voter is not None:
                begin = BeginQuorumEpoch(
                    state.config.cluster_id, voter.key, leader.epoch, state.key.id, state.config.endpoints
                )
                state.send(voter_id, voter.endpoints, begin, now_ms)
    _wake_parked(state, leader, now_ms)


def _wake_parked(state: QuorumState, leader: Leader, now_ms: int) -> None:
    waiting = leader.parked
    if not waiting:
        return
    leader.parked = []
    for parked in waiting:
        if now_ms >= parked.deadline_ms or parked.wants(state.log.end_offset, leader.high_watermark):
            state.reply(parked.reply_to, answer_fetch(state, parked.fetch, now_ms))
        else:
            leader.parked.append(parked)


# Follower


def drive_follower(state: QuorumState, role: Follower, now_ms: int) -> None:
    if state.is_voter and now_ms >= role.fetch_deadline_ms:
        state.note(f"the leader {role.leader_id} of epoch {role.epoch} does not answer")
        transitions.become_prospective(state, now_ms)
        return
    if state.config.can_vote and not state.log.is_flushed:
        state.effects.flush = True
        return
    if role.download is not None and role.download.is_complete:
        return
    if not state.is_voter and (now_ms >= role.fetch_deadline_ms or state.peers.is_backing_off(role.leader_id, now_ms)):
        ask_for_leader(state, now_ms)
        return
    if state.peers.any_waiting:
        return
    state.send(role.leader_id, role.leader_endpoints, _next_request(state, role, now_ms), now_ms)


def _next_request(state: QuorumState, role: Follower, now_ms: int) -> Fetch | FetchSnapshot | VoterChange:
    config = state.config
    if now_ms >= role.voter_change_ms:
        role.voter_change_ms = now_ms + VOTER_CHANGE_PERIOD_MS
        change = _wanted_change(state, role)
        if change is not None:
            return change
    if role.download is not None:
        snapshot, position = role.download.snapshot, role.download.position
        return FetchSnapshot(
            config.cluster_id, state.key, role.epoch, snapshot, position, config.snapshot_fetch_bytes_max
        )
    # A leader that is suspected to have failed must respond at once, even without new records.
    wait_ms_max = config.fetch_wait_ms_max if role.has_fetched else 0
    return Fetch(
        config.cluster_id,
        state.key,
        role.epoch,
        state.log.end,
        state.high_watermark,
        wait_ms_max,
        config.fetch_bytes_max,
    )


def _wanted_change(state: QuorumState, role: Follower) -> VoterChange | None:
    """Return the change of the voter set that this replica needs, or None (KIP-853)."""
    config, known = state.config, state.voters.last.get(state.key.id)
    if state.voters.kraft_version < DYNAMIC_VOTERS:
        # The update is sent once to each leader, which keeps it in memory only (KafkaRaftClient.shouldSendUpdateVoteRequest), and not at
        # the first fetch, on which the election of a leader waits.
        wanted = state.is_voter and role.has_fetched and not role.has_described_itself
        return UpdateVoter(config.cluster_id, role.epoch, config.own_voter) if wanted else None
    if state.is_voter:
        return UpdateVoter(config.cluster_id, role.epoch, config.own_voter) if known != config.own_voter else None
    if not (config.auto_join and config.can_vote):
        return None
    if known is not None:
        # The entry has an earlier directory of this node, which no longer exists, so this node must remove it.
        return RemoveVoter(config.cluster_id, known.key)
    # The response must not wait for the commit, which may need our next fetch.
    return AddVoter(config.cluster_id, state.key, config.endpoints, config.request_timeout_ms, ack_when_committed=False)


def on_update_reply(state: QuorumState, reply: VoterChangeReply, now_ms: int) -> bool:
    role = state.role
    if isinstance(role, Follower) and reply.error is ErrorCode.UNSUPPORTED_VERSION:
        # The voters are static, and this leader needs no more than that.
        role.has_described_itself = True
        return True
    handled = accept(state, reply, now_ms)
    if isinstance(role, Follower) and reply.error is ErrorCode.NONE:
        role.has_described_itself = True
    return handled


def on_fetch_failure(state: QuorumState, destination_id: int, failed: Failed, now_ms: int) -> None:
    role = state.role
    if not isinstance(role, Follower) or destination_id != role.leader_id or not failed.connection_closed:
        return
    # A killed leader closes all its connections at once. If it only closed this one, the next fetch succeeds.
    grace_ms = state.config.leader_loss_grace_ms
    if grace_ms > 0:
        role.has_fetched = False
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + grace_ms + state.rng.randrange(grace_ms))


def on_fetch_reply(state: QuorumState, fetch: Fetch, reply: FetchReply, now_ms: int) -> bool:
    handled = accept(state, reply, now_ms)
    role = state.role
    if not isinstance(role, Follower) or not is_current(state, reply, fetch.epoch) or reply.leader_id != role.leader_id:
        return handled
    if fetch.log_end != state.log.end:
        return True
    if reply.diverging is not None:
        if not _truncate(state, reply):
            return False
    elif reply.snapshot is not None:
        if state.is_storing:
            # A download from a former leader is being read under the same name.
            return False
        role.download = Download(reply.snapshot)
        state.note(f"fetching snapshot {reply.snapshot} from {role.leader_id}")
    elif not _append(state, reply):
        return False
    role.has_fetched = True
    role.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    return True


def _truncate(state: QuorumState, reply: FetchReply) -> bool:
    assert reply.diverging is not None
    offset = state.log.truncation_point(reply.diverging)
    if offset < max(state.high_watermark, state.log.start_offset) or offset >= state.log.end_offset:
        # The leader has lost committed records. Truncation here would lose another copy, so the log is kept and the error logged.
        state.note(
            f"REFUSED: leader {reply.leader_id} of epoch {reply.epoch} asks to truncate to {offset}, "
            f"but {state.high_watermark} is committed and the log is {state.log.start_offset} to {state.log.end}"
        )
        return False
    state.note(f"truncating from {state.log.end} to {offset}: the leader's log diverges from ours at {reply.diverging}")
    state.log.truncate_to(offset)
    state.voters.truncate_to(offset)
    state.effects.truncate_to = offset
    return True


def _append(state: QuorumState, reply: FetchReply) -> bool:
    for batch in reply.batches:
        expected, last_epoch = state.log.end_offset, state.log.last_epoch
        if batch.base_offset != expected or not last_epoch <= batch.epoch <= state.epoch:
            state.note(f"REFUSED: batch at {batch.base_offset} of epoch {batch.epoch} after {state.log.end}")
            return False
        state.log.append(batch.base_offset, batch.last_offset, batch.epoch)
        state.voters.append(batch.last_offset, batch.voters, batch.kraft_version)
        state.effects.appends.append(batch)
        state.effects.flush = True
    transitions.advance_high_watermark(state, min(reply.high_watermark, state.log.end_offset))
    return True


def on_fetch_snapshot_reply(state: QuorumState, fetch: FetchSnapshot, reply: FetchSnapshotReply, now_ms: int) -> bool:
    handled = accept(state, reply, now_ms)
    role = state.role
    if not isinstance(role, Follower) or role.download is None:
        return handled
    if reply.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE, ErrorCode.INVALID_REQUEST):
        # The leader has a newer snapshot by now; the response to the next fetch names it.
        role.download = None
        return False
    download = role.download
    if not is_current(state, reply, fetch.epoch):
        return handled
    if reply.snapshot != download.snapshot or reply.position != download.position or not reply.data:
        role.download = None
        return False
    download.position += len(reply.data)
    download.is_complete = download.position >= reply.size
    state.effects.snapshot_chunk = SnapshotChunk(download.snapshot, reply.position, reply.data, download.is_complete)
    role.has_fetched = True
    # While a snapshot is being stored no fetch is sent, so the fetch timeout does not apply.
    role.fetch_deadline_ms = NEVER if download.is_complete else now_ms + state.config.fetch_timeout_ms
    state.is_storing = download.is_complete
    return True


def end_download(state: QuorumState, now_ms: int) -> Download | None:
    """End a download, after which the follower fetches again. Return None if the role has changed since the request."""
    state.is_storing = False
    role = state.role
    if not isinstance(role, Follower) or role.download is None or not role.download.is_complete:
        return None
    ended, role.download = role.download, None
    role.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    return ended


def on_snapshot_received(state: QuorumState, received: SnapshotReceived, now_ms: int) -> None:
    """Reset the log to a downloaded snapshot. Its records are committed, so it may replace a log that ends before it or diverges from it."""
    snapshot = received.snapshot
    if end_download(state, now_ms) is None or snapshot.offset <= state.high_watermark:
        # There is a new leader, and it may have counted our appends since. The file is kept as an additional snapshot.
        return
    state.note(f"the log is reset to snapshot {snapshot}")
    state.log.reset_to_snapshot(snapshot)
    state.voters.reset_to_snapshot(snapshot.offset, received.voters, received.kraft_version)
    state.effects.reset_to_snapshot = snapshot
    transitions.advance_high_watermark(state, snapshot.offset)
