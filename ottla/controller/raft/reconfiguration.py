"""Changes of the voter set: add, remove, update, one at a time, and from configured voters to voters in the log (KIP-853).
Functions on the state of a leader.

A change is one VotersRecord. Before it is appended the leader must have committed a record of its own epoch, and the previous
voter set must be committed. Otherwise changes of two leaders could lead to disjoint majorities.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.raft import transitions
from ottla.controller.raft.leader import Leader, PendingChange
from ottla.controller.raft.messages import (
    AddVoter,
    ControlRecords,
    RemoveVoter,
    SupportedVersions,
    SupportedVersionsReply,
    UpdateVoter,
    VoterChangeReply,
)
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.replication import check_leader
from ottla.controller.raft.transitions import finish_change, voter_change_reply
from ottla.controller.raft.voters import DYNAMIC_VOTERS, QuorumEndpoints, ReplicaKey, Voter, VoterSet
from ottla.protocol.errors import ErrorCode, KafkaError


def on_add_voter(state: QuorumState, add: AddVoter, reply_to: object, now_ms: int) -> None:
    rejection = _check_request(state, add.cluster_id, state.epoch) or _check_add(state, add)
    leader = state.role
    if rejection is not None or not isinstance(leader, Leader):
        assert rejection is not None
        state.reply(reply_to, rejection)
        return
    # The new voter is asked for its supported kraft.version levels.
    state.peers.reset_one(add.voter.id)
    probe_id = state.send(add.voter.id, add.endpoints, SupportedVersions(), now_ms)
    timeout_ms = (
        min(add.timeout_ms, state.config.request_timeout_ms) if add.timeout_ms > 0 else state.config.request_timeout_ms
    )
    leader.change = PendingChange(reply_to, now_ms + timeout_ms, add=add, probe_id=probe_id)


def _check_add(state: QuorumState, add: AddVoter) -> VoterChangeReply | None:
    if add.voter.id < 0 or not add.voter.knows_directory:
        return voter_change_reply(state, ErrorCode.INVALID_REQUEST, "the new voter needs a node id and a directory id")
    if not _listens_where_the_quorum_talks(state, add.endpoints):
        return voter_change_reply(
            state, ErrorCode.INVALID_REQUEST, f"no endpoint for the listener {_listener_name(state)}"
        )
    rejection = _check_state(state)
    if rejection is not None:
        return rejection
    if state.voters.last.get(add.voter.id) is not None:
        return voter_change_reply(
            state, ErrorCode.DUPLICATE_VOTER, f"node {add.voter.id} is one of the voters {state.voters.last.ids}"
        )
    return None


def on_supported_versions(state: QuorumState, request_id: int, reply: SupportedVersionsReply, now_ms: int) -> None:
    leader = state.role
    change = leader.change if isinstance(leader, Leader) else None
    if change is None or change.add is None or change.probe_id != request_id:
        return
    assert isinstance(leader, Leader)
    add, level = change.add, state.voters.kraft_version
    if reply.error is not ErrorCode.NONE:
        finish_change(
            state, leader, ErrorCode.REQUEST_TIMED_OUT, f"the new voter answered ApiVersions with {reply.error.name}"
        )
    elif not reply.kraft_version_min <= level <= reply.kraft_version_max:
        supported = f"{reply.kraft_version_min} to {reply.kraft_version_max}"
        finish_change(
            state, leader, ErrorCode.INVALID_REQUEST, f"the new voter supports kraft.version {supported}, not {level}"
        )
    elif not leader.is_caught_up(add.voter, now_ms):
        finish_change(state, leader, ErrorCode.REQUEST_TIMED_OUT, f"replica {add.voter} is not caught up with the log")
    else:
        voters = state.voters.last.with_voter(
            Voter(add.voter, add.endpoints, reply.kraft_version_min, reply.kraft_version_max)
        )
        assert voters is not None, "checked when the request arrived, and there is one change at a time"
        change.offset = _append_voters(state, voters)
        if not add.ack_when_committed:
            state.reply(change.reply_to, voter_change_reply(state, ErrorCode.NONE))
            change.reply_to = None


def on_probe_failure(state: QuorumState, request_id: int) -> None:
    leader = state.role
    if isinstance(leader, Leader) and leader.change is not None and leader.change.probe_id == request_id:
        finish_change(state, leader, ErrorCode.REQUEST_TIMED_OUT, "the new voter does not answer at its endpoint")


def on_remove_voter(state: QuorumState, remove: RemoveVoter, reply_to: object, now_ms: int) -> None:
    rejection = _check_request(state, remove.cluster_id, state.epoch)
    if rejection is None and (remove.voter.id < 0 or not remove.voter.knows_directory):
        rejection = voter_change_reply(state, ErrorCode.INVALID_REQUEST, "the voter needs a node id and a directory id")
    rejection = rejection or _check_state(state)
    if rejection is None:
        voters = state.voters.last.without(remove.voter)
        if voters is not None:
            assert isinstance(state.role, Leader)
            state.role.change = PendingChange(reply_to, now_ms + state.config.request_timeout_ms)
            state.role.change.offset = _append_voters(state, voters)
            return
        rejection = voter_change_reply(
            state, ErrorCode.VOTER_NOT_FOUND, f"cannot remove {remove.voter} from the voters {state.voters.last.ids}"
        )
    state.reply(reply_to, rejection)


def on_update_voter(state: QuorumState, update: UpdateVoter, now_ms: int) -> VoterChangeReply:
    """Update a voter. The response is sent after the append: the voter retries if the record is lost with its leader."""
    voter = update.voter
    rejection = _check_request(state, update.cluster_id, update.epoch)
    if rejection is not None:
        return rejection
    lowest, highest = voter.kraft_version_min, voter.kraft_version_max
    if (
        voter.id < 0
        or not voter.key.knows_directory
        or not _listens_where_the_quorum_talks(state, voter.endpoints)
        or not 0 <= lowest <= highest
    ):
        return voter_change_reply(state, ErrorCode.INVALID_REQUEST)
    rejection = _check_state(state)
    if rejection is not None:
        return rejection
    if not lowest <= state.voters.kraft_version <= highest:
        return voter_change_reply(state, ErrorCode.INVALID_REQUEST)
    voters = state.voters.last.updated(voter)
    if voters is None:
        return voter_change_reply(state, ErrorCode.VOTER_NOT_FOUND)
    if voters != state.voters.last:
        _append_voters(state, voters)
    return voter_change_reply(state, ErrorCode.NONE)


def voters_with_directories(state: QuorumState) -> VoterSet:
    """Return the configured voters as they will be in the log: the same nodes, each with the directory id of its fetches.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION, a voter has not fetched from this leader.
    """
    leader = state.role
    assert isinstance(leader, Leader)
    named = []
    for voter in state.voters.last:
        known = state.key.directory_id if voter.id == state.key.id else leader.voters[voter.id].directory_id
        key = ReplicaKey(voter.id, known)
        if not key.knows_directory:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Voter {voter.id} has not fetched from the leader {state.key.id}, so that its directory is not known:"
                " start it, or wait for it.",
            )
        named.append(replace(voter, key=key))
    return VoterSet.of(named)


def drive_leader(state: QuorumState, leader: Leader, now_ms: int) -> None:
    if leader.change is not None and now_ms >= leader.change.deadline_ms:
        finish_change(state, leader, ErrorCode.REQUEST_TIMED_OUT)


def _check_request(state: QuorumState, cluster_id: str | None, epoch: int) -> VoterChangeReply | None:
    if state.is_foreign_cluster(cluster_id):
        return voter_change_reply(
            state, ErrorCode.INCONSISTENT_CLUSTER_ID, f"the cluster id is {state.config.cluster_id!r}"
        )
    error = check_leader(state, epoch)
    return None if error is ErrorCode.NONE else voter_change_reply(state, error)


def _check_state(state: QuorumState) -> VoterChangeReply | None:
    """Check whether the voter set may be changed now."""
    leader = state.role
    assert isinstance(leader, Leader)
    if state.voters.kraft_version < DYNAMIC_VOTERS:
        return voter_change_reply(state, ErrorCode.UNSUPPORTED_VERSION, "the voters are static: kraft.version is 0")
    if leader.change is not None:
        return voter_change_reply(state, ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is in progress")
    if leader.high_watermark < 0:
        return voter_change_reply(
            state, ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet"
        )
    last_offset = state.voters.last_offset
    if last_offset is None or last_offset >= leader.high_watermark:
        return voter_change_reply(
            state, ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet"
        )
    return None


def _append_voters(state: QuorumState, voters: VoterSet) -> int:
    state.note(f"voters {state.voters.last.ids} -> {voters.ids}")
    return transitions.append_batch(state, 1, ControlRecords(voters=voters))


def _listener_name(state: QuorumState) -> str:
    return state.config.endpoints[0].name if state.config.endpoints else ""


def _listens_where_the_quorum_talks(state: QuorumState, endpoints: QuorumEndpoints) -> bool:
    return any(endpoint.name == _listener_name(state) for endpoint in endpoints)
