"""A leader's pending responses: delayed fetches, and the change of the voters that waits for its commit.
Functions on the state.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.leader import Leader
from ottla.controller.raft.messages import FetchReply, VoterChangeReply
from ottla.controller.raft.quorum_state import QuorumState
from ottla.protocol.errors import ErrorCode


def fetch_reply(state: QuorumState, error: ErrorCode, **rest: Any) -> FetchReply:
    high_watermark = state.role.high_watermark if isinstance(state.role, Leader) else -1
    return FetchReply(
        error,
        state.epoch,
        state.leader_id,
        state.leader_endpoints,
        high_watermark,
        state.log.start_offset,
        **rest,
    )


def voter_change_reply(state: QuorumState, error: ErrorCode, message: str | None = None) -> VoterChangeReply:
    return VoterChangeReply(error, message, state.epoch, state.leader_id, state.leader_endpoints)


def finish_change(state: QuorumState, leader: Leader, error: ErrorCode, message: str | None = None) -> None:
    change, leader.change = leader.change, None
    if change is not None and change.reply_to is not None:
        state.reply(change.reply_to, voter_change_reply(state, error, message))


def on_high_watermark(state: QuorumState, leader: Leader) -> None:
    change = leader.change
    if change is not None and 0 <= change.offset < leader.high_watermark:
        finish_change(state, leader, ErrorCode.NONE)
    last_offset = state.voters.last_offset
    if not leader.is_counted(state.key) and last_offset is not None and last_offset < leader.high_watermark:
        # The removed leader led, without a vote of its own, until the set without it was committed.
        leader.resign_requested = True


def on_leadership_lost(state: QuorumState, leader: Leader) -> None:
    """Completes all pending responses: followers look for the new leader at once, and that one decides about the change of the voters."""
    for parked in leader.parked:
        state.reply(parked.reply_to, fetch_reply(state, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    leader.parked.clear()
    if leader.change is not None:
        finish_change(state, leader, ErrorCode.NOT_LEADER_OR_FOLLOWER)
