"""Changes of the voter set: add, remove, update, one at a time, and from configured voters to voters in the log (KIP-853).
Functions on the core of a leader.

A change is one VotersRecord. Before it may be appended the leader must have committed a record of its own epoch, and the
voter set before it must be committed: else two changes of two leaders could leave majorities that do not overlap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from controller.raft.leader import Leader, PendingChange
from controller.raft.messages import (
    AddVoter,
    ControlRecords,
    RemoveVoter,
    SupportedVersions,
    SupportedVersionsReply,
    UpdateVoter,
    VoterChangeReply,
)
from controller.raft.replication import check_leader
from controller.raft.voters import DYNAMIC_VOTERS, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from controller.raft.core import RaftCore


def on_add_voter(core: RaftCore, add: AddVoter, reply_to: Any, now_ms: int) -> None:
    refusal = _check_request(core, add.cluster_id, core.epoch) or _check_add(core, add)
    leader = core.role
    if refusal is not None or not isinstance(leader, Leader):
        assert refusal is not None
        core.reply(reply_to, refusal)
        return
    # Ask the new voter itself whether it understands the voter set it is going to be in.
    core.peers.reset_one(add.voter.id)
    probe_id = core.send(add.voter.id, add.endpoints, SupportedVersions(), now_ms)
    timeout_ms = (
        min(add.timeout_ms, core.config.request_timeout_ms) if add.timeout_ms > 0 else core.config.request_timeout_ms
    )
    leader.change = PendingChange(reply_to, now_ms + timeout_ms, add=add, probe_id=probe_id)


def _check_add(core: RaftCore, add: AddVoter) -> VoterChangeReply | None:
    if add.voter.id < 0 or not add.voter.knows_directory:
        return _reply(core, ErrorCode.INVALID_REQUEST, "the new voter needs a node id and a directory id")
    if not _listens_where_the_quorum_talks(core, add.endpoints):
        return _reply(core, ErrorCode.INVALID_REQUEST, f"no endpoint for the listener {_listener_name(core)}")
    refusal = _check_state(core)
    if refusal is not None:
        return refusal
    if core.voters.last.get(add.voter.id) is not None:
        return _reply(
            core, ErrorCode.DUPLICATE_VOTER, f"node {add.voter.id} is one of the voters {core.voters.last.ids}"
        )
    return None


def on_supported_versions(core: RaftCore, request_id: int, reply: SupportedVersionsReply, now_ms: int) -> None:
    leader = core.role
    change = leader.change if isinstance(leader, Leader) else None
    if change is None or change.add is None or change.probe_id != request_id:
        return
    assert isinstance(leader, Leader)
    add, level = change.add, core.voters.kraft_version
    if reply.error is not ErrorCode.NONE:
        _finish(
            core, leader, ErrorCode.REQUEST_TIMED_OUT, f"the new voter answered ApiVersions with {reply.error.name}"
        )
    elif not reply.kraft_version_min <= level <= reply.kraft_version_max:
        supported = f"{reply.kraft_version_min} to {reply.kraft_version_max}"
        _finish(
            core, leader, ErrorCode.INVALID_REQUEST, f"the new voter supports kraft.version {supported}, not {level}"
        )
    elif not leader.is_caught_up(add.voter, now_ms):
        _finish(core, leader, ErrorCode.REQUEST_TIMED_OUT, f"replica {add.voter} is not caught up with the log")
    else:
        voters = core.voters.last.with_voter(
            Voter(add.voter, add.endpoints, reply.kraft_version_min, reply.kraft_version_max)
        )
        assert voters is not None, "checked when the request came, and there is one change at a time"
        change.offset = _append_voters(core, voters)
        if not add.ack_when_committed:
            core.reply(change.reply_to, _reply(core, ErrorCode.NONE))
            change.reply_to = None


def on_probe_failure(core: RaftCore, request_id: int) -> None:
    leader = core.role
    if isinstance(leader, Leader) and leader.change is not None and leader.change.probe_id == request_id:
        _finish(core, leader, ErrorCode.REQUEST_TIMED_OUT, "the new voter does not answer at its endpoint")


def on_remove_voter(core: RaftCore, remove: RemoveVoter, reply_to: Any, now_ms: int) -> None:
    refusal = _check_request(core, remove.cluster_id, core.epoch)
    if refusal is None and (remove.voter.id < 0 or not remove.voter.knows_directory):
        refusal = _reply(core, ErrorCode.INVALID_REQUEST, "the voter needs a node id and a directory id")
    refusal = refusal or _check_state(core)
    if refusal is None:
        voters = core.voters.last.without(remove.voter)
        if voters is not None:
            assert isinstance(core.role, Leader)
            core.role.change = PendingChange(reply_to, now_ms + core.config.request_timeout_ms)
            core.role.change.offset = _append_voters(core, voters)
            return
        refusal = _reply(
            core, ErrorCode.VOTER_NOT_FOUND, f"cannot remove {remove.voter} from the voters {core.voters.last.ids}"
        )
    core.reply(reply_to, refusal)


def on_update_voter(core: RaftCore, update: UpdateVoter, now_ms: int) -> VoterChangeReply:
    """Answered when appended: the voter asks again if the record should be lost with its leader."""
    voter = update.voter
    refusal = _check_request(core, update.cluster_id, update.epoch)
    if refusal is not None:
        return refusal
    lowest, highest = voter.kraft_version_min, voter.kraft_version_max
    if (
        voter.id < 0
        or not voter.key.knows_directory
        or not _listens_where_the_quorum_talks(core, voter.endpoints)
        or not 0 <= lowest <= highest
    ):
        return _reply(core, ErrorCode.INVALID_REQUEST)
    refusal = _check_state(core)
    if refusal is not None:
        return refusal
    if not lowest <= core.voters.kraft_version <= highest:
        return _reply(core, ErrorCode.INVALID_REQUEST)
    voters = core.voters.last.updated(voter)
    if voters is None:
        return _reply(core, ErrorCode.VOTER_NOT_FOUND)
    if voters != core.voters.last:
        _append_voters(core, voters)
    return _reply(core, ErrorCode.NONE)


def voters_with_directories(core: RaftCore) -> VoterSet:
    """The configured voters as the log is to name them: the same nodes, each with the directory that it fetches for.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION, a voter has not been heard of by this leader.
    """
    leader = core.role
    assert isinstance(leader, Leader)
    named = []
    for voter in core.voters.last:
        known = core.key.directory_id if voter.id == core.key.id else leader.voters[voter.id].directory_id
        key = ReplicaKey(voter.id, known)
        if not key.knows_directory:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Voter {voter.id} has not fetched from the leader {core.key.id}, so that its directory is not known:"
                " start it, or wait for it.",
            )
        named.append(replace(voter, key=key))
    return VoterSet.of(named)


def on_high_watermark(core: RaftCore, leader: Leader) -> None:
    change = leader.change
    if change is not None and 0 <= change.offset < leader.high_watermark:
        _finish(core, leader, ErrorCode.NONE)
    last_offset = core.voters.last_offset
    if not leader.is_counted(core.key) and last_offset is not None and last_offset < leader.high_watermark:
        # It led on, without a vote of its own, until the set without it was committed.
        leader.resign_requested = True


def drive_leader(core: RaftCore, leader: Leader, now_ms: int) -> None:
    if leader.change is not None and now_ms >= leader.change.deadline_ms:
        _finish(core, leader, ErrorCode.REQUEST_TIMED_OUT)


def abandon(core: RaftCore, leader: Leader) -> None:
    """Leadership is over; whether the change will be committed is for the next leader to know."""
    if leader.change is not None:
        _finish(core, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _finish(core: RaftCore, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
    change, leader.change = leader.change, None
    if change is not None and change.reply_to is not None:
        core.reply(change.reply_to, _reply(core, error, message))


def _check_request(core: RaftCore, cluster_id: str | None, epoch: int) -> VoterChangeReply | None:
    if core.is_foreign_cluster(cluster_id):
        return _reply(core, ErrorCode.INCONSISTENT_CLUSTER_ID, f"the cluster id is {core.config.cluster_id!r}")
    error = check_leader(core, epoch)
    return None if error is ErrorCode.NONE else _reply(core, error)


def _check_state(core: RaftCore) -> VoterChangeReply | None:
    """Whether the voter set may be changed now."""
    leader = core.role
    assert isinstance(leader, Leader)
    if leader.change is not None:
        return _reply(core, ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way")
    if leader.high_watermark < 0:
        return _reply(core, ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet")
    if core.voters.kraft_version < DYNAMIC_VOTERS:
        return _reply(core, ErrorCode.UNSUPPORTED_VERSION, "the voters are static: kraft.version is 0")
    last_offset = core.voters.last_offset
    if last_offset is None or last_offset >= leader.high_watermark:
        return _reply(core, ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet")
    return None


def _append_voters(core: RaftCore, voters: VoterSet) -> int:
    core.note(f"voters {core.voters.last.ids} -> {voters.ids}")
    return core.append_batch(1, ControlRecords(voters=voters))


def _listener_name(core: RaftCore) -> str:
    return core.config.endpoints[0].name if core.config.endpoints else ""


def _listens_where_the_quorum_talks(core: RaftCore, endpoints: tuple[Any, ...]) -> bool:
    return any(endpoint.name == _listener_name(core) for endpoint in endpoints)


def _reply(core: RaftCore, error: ErrorCode, message: str | None = None) -> VoterChangeReply:
    return VoterChangeReply(error, message, core.epoch, core.leader_id, core.leader_endpoints)
