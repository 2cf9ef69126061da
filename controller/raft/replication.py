"""How the log gets from the leader to everybody else. Functions on the core.

A follower fetches at the end of its log and names the last epoch in it. The leader answers with records, with the point
where the logs part (the follower truncates), or with a snapshot to start from. A voter fetches again only when what it has
is on its disk, because its next fetch offset is counted as an acknowledgement.

A fetch that has nothing to get waits at the leader. It is answered by the next append, or, because of KIP-1166, by the
next move of the high watermark, so that followers learn of a commit one network delay after the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.raft.effects import SnapshotChunk
from controller.raft.elections import accept, ask_for_leader, is_current
from controller.raft.leader import NEVER, Leader, Parked
from controller.raft.log_state import BOOTSTRAP_SNAPSHOT, Diverging, NeedsSnapshot
from controller.raft.messages import (
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
)
from controller.raft.roles import Download, Follower
from controller.raft.voters import DYNAMIC_VOTERS
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from controller.raft.core import RaftCore

#: How often a follower compares what the voter set says of it with its configuration.
VOTER_CHANGE_PERIOD_MS = 2000

VoterChange = AddVoter | RemoveVoter | UpdateVoter


# The leader's side.


def on_fetch(core: RaftCore, fetch: Fetch, reply_to: Any, now_ms: int) -> None:
    reply = _check_fetch(core, fetch) or answer_fetch(core, fetch, now_ms)
    has_news = reply.error is not ErrorCode.NONE or reply.diverging is not None or reply.snapshot is not None
    role = core.role
    if has_news or fetch.wait_ms_max == 0 or not isinstance(role, Leader):
        core.reply(reply_to, reply)
        return
    parked = Parked(reply_to, fetch, now_ms + fetch.wait_ms_max)
    if parked.wants(core.log.end_offset, role.high_watermark):
        core.reply(reply_to, reply)
    else:
        role.parked.append(parked)


def _check_fetch(core: RaftCore, fetch: Fetch) -> FetchReply | None:
    if core.is_foreign_cluster(fetch.cluster_id):
        return FetchReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    end = fetch.log_end
    if fetch.wait_ms_max < 0 or end.offset < 0 or not 0 <= end.epoch <= fetch.epoch or fetch.replica.id == core.key.id:
        return _fetch_reply(core, ErrorCode.INVALID_REQUEST)
    error = check_leader(core, fetch.epoch)
    return None if error is ErrorCode.NONE else _fetch_reply(core, error)


def check_leader(core: RaftCore, epoch: int) -> ErrorCode:
    """Whether a request to the leader of `epoch` has come to the right place."""
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(core.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def answer_fetch(core: RaftCore, fetch: Fetch, now_ms: int) -> FetchReply:
    """Answer from the log as it is now, and count what the fetch acknowledges."""
    leader = core.role
    assert isinstance(leader, Leader)
    match core.log.validate(fetch.log_end):
        case Diverging(end):
            return _fetch_reply(core, ErrorCode.NONE, diverging=end)
        case NeedsSnapshot(snapshot):
            return _fetch_reply(core, ErrorCode.NONE, snapshot=snapshot)
    if fetch.replica.id >= 0 and leader.record_fetch(fetch.replica, fetch.log_end.offset, core.log.end_offset, now_ms):
        core.advance_high_watermark(leader.high_watermark)
    return _fetch_reply(core, ErrorCode.NONE, records_from=fetch.log_end.offset, bytes_max=fetch.bytes_max)


def _fetch_reply(core: RaftCore, error: ErrorCode, **rest: Any) -> FetchReply:
    high_watermark = core.role.high_watermark if isinstance(core.role, Leader) else -1
    return FetchReply(
        error,
        core.epoch,
        core.leader_id,
        core.leader_endpoints,
        high_watermark,
        core.log.start_offset,
        **rest,
    )


def on_fetch_snapshot(core: RaftCore, fetch: FetchSnapshot, now_ms: int) -> FetchSnapshotReply:
    """The driver reads the file: it answers POSITION_OUT_OF_RANGE or SNAPSHOT_NOT_FOUND itself where that fails."""
    if core.is_foreign_cluster(fetch.cluster_id):
        return FetchSnapshotReply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    leader, error = core.role, check_leader(core, fetch.epoch)
    if isinstance(leader, Leader) and error is ErrorCode.NONE:
        if fetch.replica.id == core.key.id:
            error = ErrorCode.INVALID_REQUEST
        elif fetch.snapshot not in core.log.snapshots or fetch.snapshot == BOOTSTRAP_SNAPSHOT:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif fetch.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            leader.record_contact(fetch.replica, now_ms)
    return FetchSnapshotReply(
        error,
        core.epoch,
        core.leader_id,
        core.leader_endpoints,
        fetch.snapshot,
        fetch.position,
        bytes_max=fetch.bytes_max,
    )


def on_flushed(core: RaftCore, generation: int, offset: int, now_ms: int) -> None:
    if generation != core.log.generation:
        core.effects.flush = not core.log.is_flushed
        return
    core.log.flushed_offset = max(core.log.flushed_offset, min(offset, core.log.end_offset))
    core.effects.flush = not core.log.is_flushed
    leader = core.role
    if isinstance(leader, Leader) and leader.record_local_end(core.log.flushed_offset):
        core.advance_high_watermark(leader.high_watermark)


def drive_leader(core: RaftCore, leader: Leader, now_ms: int) -> None:
    # What was appended or committed during this step may commit more: a voter set that got smaller, say.
    if leader.record_local_end(core.log.flushed_offset):
        core.advance_high_watermark(leader.high_watermark)
    if leader.resign_requested or (leader.needs_check_quorum and now_ms >= leader.check_quorum_deadline_ms):
        reason = "it was asked to" if leader.resign_requested else "a majority of the voters did not fetch in time"
        core.note(f"resigning epoch {leader.epoch}: {reason}")
        core.become_resigned(now_ms)
        return
    if now_ms >= leader.begin_epoch_deadline_ms:
        leader.begin_epoch_deadline_ms = now_ms + leader.begin_epoch_ms
        for voter_id in leader.silent_voters(now_ms):
            voter = core.voters.last.get(voter_id)
            if voter is not None:
                begin = BeginQuorumEpoch(
                    core.config.cluster_id, voter.key, leader.epoch, core.key.id, core.config.endpoints
                )
                core.send(voter_id, voter.endpoints, begin, now_ms)
    _wake_parked(core, leader, now_ms)


def _wake_parked(core: RaftCore, leader: Leader, now_ms: int) -> None:
    waiting = leader.parked
    if not waiting:
        return
    leader.parked = []
    for parked in waiting:
        if now_ms >= parked.deadline_ms or parked.wants(core.log.end_offset, leader.high_watermark):
            core.reply(parked.reply_to, answer_fetch(core, parked.fetch, now_ms))
        else:
            leader.parked.append(parked)


def release_parked(core: RaftCore, leader: Leader) -> None:
    """Leadership is over: let the waiting look for the new leader at once."""
    for parked in leader.parked:
        core.reply(parked.reply_to, _fetch_reply(core, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.parked.clear()


# The follower's side.


def drive_follower(core: RaftCore, role: Follower, now_ms: int) -> None:
    if core.is_voter and now_ms >= role.fetch_deadline_ms:
        core.note(f"the leader {role.leader_id} of epoch {role.epoch} does not answer")
        core.become_prospective(now_ms)
        return
    if core.config.can_vote and not core.log.is_flushed:
        core.effects.flush = True
        return
    if role.download is not None and role.download.is_complete:
        return
    if not core.is_voter and (now_ms >= role.fetch_deadline_ms or core.peers.is_backing_off(role.leader_id, now_ms)):
        ask_for_leader(core, now_ms)
        return
    if core.peers.any_waiting:
        return
    core.send(role.leader_id, role.leader_endpoints, _next_request(core, role, now_ms), now_ms)


def _next_request(core: RaftCore, role: Follower, now_ms: int) -> Fetch | FetchSnapshot | VoterChange:
    config = core.config
    if core.voters.kraft_version >= DYNAMIC_VOTERS and now_ms >= role.voter_change_ms:
        role.voter_change_ms = now_ms + VOTER_CHANGE_PERIOD_MS
        change = _wanted_change(core, role)
        if change is not None:
            return change
    if role.download is not None:
        snapshot, position = role.download.snapshot, role.download.position
        return FetchSnapshot(
            config.cluster_id, core.key, role.epoch, snapshot, position, config.snapshot_fetch_bytes_max
        )
    # While the leader is in doubt, an answer counts more than news.
    wait_ms_max = config.fetch_wait_ms_max if role.has_fetched else 0
    return Fetch(
        config.cluster_id, core.key, role.epoch, core.log.end, core.high_watermark, wait_ms_max, config.fetch_bytes_max
    )


def _wanted_change(core: RaftCore, role: Follower) -> VoterChange | None:
    """How the voter set should speak of this replica, where it does not (KIP-853)."""
    config, known = core.config, core.voters.last.get(core.key.id)
    if core.is_voter:
        return UpdateVoter(config.cluster_id, role.epoch, config.own_voter) if known != config.own_voter else None
    if not (config.auto_join and config.can_vote):
        return None
    if known is not None:
        # This node with another disk, which is gone: nobody else will ever speak for it.
        return RemoveVoter(config.cluster_id, known.key)
    # Not to be waited for until it is committed: that may need our next fetch.
    return AddVoter(config.cluster_id, core.key, config.endpoints, config.request_timeout_ms, ack_when_committed=False)


def on_fetch_failure(core: RaftCore, destination_id: int, failed: Failed, now_ms: int) -> None:
    role = core.role
    if not isinstance(role, Follower) or destination_id != role.leader_id or not failed.connection_closed:
        return
    # A killed leader closes its connections at once. If it only closed this one, the next fetch clears the doubt.
    grace_ms = core.config.leader_loss_grace_ms
    if grace_ms > 0:
        role.has_fetched = False
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + grace_ms + core.rng.randrange(grace_ms))


def on_fetch_reply(core: RaftCore, fetch: Fetch, reply: FetchReply, now_ms: int) -> bool:
    handled = accept(core, reply, now_ms)
    role = core.role
    if not isinstance(role, Follower) or not is_current(core, reply, fetch.epoch) or reply.leader_id != role.leader_id:
        return handled
    if fetch.log_end != core.log.end:
        return True
    if reply.diverging is not None:
        if not _truncate(core, reply):
            return False
    elif reply.snapshot is not None:
        if core.is_storing:
            # What a former leader sent is being read under the same name.
            return False
        role.download = Download(reply.snapshot)
        core.note(f"fetching snapshot {reply.snapshot} from {role.leader_id}")
    elif not _append(core, reply):
        return False
    role.has_fetched = True
    role.fetch_deadline_ms = now_ms + core.config.fetch_timeout_ms
    return True


def _truncate(core: RaftCore, reply: FetchReply) -> bool:
    assert reply.diverging is not None
    offset = core.log.truncation_point(reply.diverging)
    if offset < max(core.high_watermark, core.log.start_offset) or offset >= core.log.end_offset:
        # Somebody has lost committed records. Truncating would make two of us: keep what we have, and be loud.
        core.note(
            f"REFUSED: leader {reply.leader_id} of epoch {reply.epoch} asks to truncate to {offset}, "
            f"but {core.high_watermark} is committed and the log is {core.log.start_offset} to {core.log.end}"
        )
        return False
    core.note(f"truncating from {core.log.end} to {offset}: the leader's log parts from ours at {reply.diverging}")
    core.log.truncate_to(offset)
    core.voters.truncate_to(offset)
    core.effects.truncate_to = offset
    return True


def _append(core: RaftCore, reply: FetchReply) -> bool:
    for batch in reply.batches:
        expected, last_epoch = core.log.end_offset, core.log.last_epoch
        if batch.base_offset != expected or not last_epoch <= batch.epoch <= core.epoch:
            core.note(f"REFUSED: batch at {batch.base_offset} of epoch {batch.epoch} after {core.log.end}")
            return False
        core.log.append(batch.base_offset, batch.last_offset, batch.epoch)
        core.voters.append(batch.last_offset, batch.voters, batch.kraft_version)
        core.effects.appends.append(batch)
        core.effects.flush = True
    core.advance_high_watermark(min(reply.high_watermark, core.log.end_offset))
    return True


def on_fetch_snapshot_reply(core: RaftCore, fetch: FetchSnapshot, reply: FetchSnapshotReply, now_ms: int) -> bool:
    handled = accept(core, reply, now_ms)
    role = core.role
    if not isinstance(role, Follower) or role.download is None:
        return handled
    if reply.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE, ErrorCode.INVALID_REQUEST):
        # The leader has a newer one by now. Fetch, and be told which.
        role.download = None
        return False
    download = role.download
    if not is_current(core, reply, fetch.epoch):
        return handled
    if reply.snapshot != download.snapshot or reply.position != download.position or not reply.data:
        role.download = None
        return False
    download.position += len(reply.data)
    download.is_complete = download.position >= reply.size
    core.effects.snapshot_chunk = SnapshotChunk(download.snapshot, reply.position, reply.data, download.is_complete)
    role.has_fetched = True
    # A leader that is not asked while its snapshot is stored is not silent either.
    role.fetch_deadline_ms = NEVER if download.is_complete else now_ms + core.config.fetch_timeout_ms
    core.is_storing = download.is_complete
    return True


def end_download(core: RaftCore, now_ms: int) -> Download | None:
    """It is stored, or cannot be used: fetch again. None if this is not the follower any more that asked for it."""
    core.is_storing = False
    role = core.role
    if not isinstance(role, Follower) or role.download is None or not role.download.is_complete:
        return None
    ended, role.download = role.download, None
    role.fetch_deadline_ms = now_ms + core.config.fetch_timeout_ms
    return ended


def on_snapshot_received(core: RaftCore, received: SnapshotReceived, now_ms: int) -> None:
    """The leader only sends what is committed, so the snapshot may replace a log that ends before it or parts from it."""
    snapshot = received.snapshot
    if end_download(core, now_ms) is None or snapshot.offset <= core.high_watermark:
        # There is a new leader, and what it made us append may be counted on. The file stays as one snapshot more.
        return
    core.note(f"the log starts anew at snapshot {snapshot}")
    core.log.reset_to_snapshot(snapshot)
    core.voters.reset_to_snapshot(snapshot.offset, received.voters, received.kraft_version)
    core.effects.reset_to_snapshot = snapshot
    core.advance_high_watermark(snapshot.offset)
