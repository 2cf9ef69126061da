"""The core alone, while its driver writes the leader's snapshot to the disk: that may take seconds."""

from __future__ import annotations

from ottla.controller.raft.core import RaftCore
from ottla.controller.raft.effects import Effects
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import (
    Batch,
    BeginQuorumEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Flushed,
    Received,
    Replied,
    SnapshotReceived,
)
from ottla.controller.raft.roles import Follower
from ottla.protocol.errors import ErrorCode
from tests.controller.raft.cluster import endpoint_of
from tests.controller.raft.test_core import following, reply_to

SNAPSHOT = OffsetAndEpoch(50, 4)
STORED = SnapshotReceived(SNAPSHOT, None, None)
LATER_MS = 60_000


def all_has_arrived() -> RaftCore:
    """Return a follower of leader 2 in epoch 5 with a log of ten records; the leader's log begins with a snapshot, and all of
    it has arrived.
    """
    core, effects = following()
    assert isinstance(core.state.role, Follower)
    core.state.role.has_described_itself = True
    (request,) = reply_to(core, effects, snapshot=SNAPSHOT).requests
    assert isinstance(request.body, FetchSnapshot)
    leader = (ErrorCode.NONE, 5, 2, (endpoint_of(2),))
    effects = core.step(Replied(request.request_id, FetchSnapshotReply(*leader, SNAPSHOT, 0, 3, data=b"all")), 2)
    assert effects.snapshot_chunk is not None and effects.snapshot_chunk.is_last
    assert not effects.requests
    return core


def follow_another(core: RaftCore, now_ms: int) -> Effects:
    return core.step(Received(BeginQuorumEpoch(None, None, 6, 3, (endpoint_of(3),)), None), now_ms)


def answer(core: RaftCore, effects: Effects, now_ms: int, **fields: object) -> Effects:
    """Return the effects of a response of leader 3 in epoch 6."""
    (request,) = effects.requests
    assert isinstance(request.body, Fetch)
    reply = FetchReply(ErrorCode.NONE, 6, 3, (endpoint_of(3),), **fields)
    return core.step(Replied(request.request_id, reply), now_ms)


def test_while_it_is_stored_the_leader_is_not_asked_and_not_given_up() -> None:
    core = all_has_arrived()
    effects = core.tick(LATER_MS)
    assert isinstance(core.state.role, Follower) and not effects.requests
    effects = core.step(STORED, LATER_MS + 1)
    assert effects.reset_to_snapshot == SNAPSHOT and core.state.high_watermark == 50
    (request,) = effects.requests
    assert isinstance(request.body, Fetch) and request.body.log_end == SNAPSHOT
    assert core.state.role.deadline_ms(True) < 2 * LATER_MS, "from now on it has to answer again"


def test_a_snapshot_that_cannot_be_used_is_fetched_again() -> None:
    core = all_has_arrived()
    (request,) = core.abandon_download(LATER_MS).requests
    assert isinstance(request.body, Fetch) and request.body.log_end == OffsetAndEpoch(10, 4)
    assert not core.state.is_storing


def test_what_the_next_leader_has_sent_meanwhile_stays_though_the_snapshot_ends_behind_its_watermark() -> None:
    """The leader counts this replica's copy: if it were dropped, committed records could be lost."""
    core = all_has_arrived()
    effects = follow_another(core, 10)
    effects = answer(core, effects, 11, batches=(Batch(10, 59, 5, b"", None, None),), high_watermark=10)
    core.step(Flushed(core.state.log.generation, 60), 12)
    assert core.state.log.end_offset == 60
    effects = core.step(STORED, 13)
    assert effects.reset_to_snapshot is None and core.state.log.end_offset == 60
    assert not core.state.is_storing


def test_the_next_leaders_snapshot_waits_until_the_former_ones_is_stored() -> None:
    """Both snapshots may have the same name, and so the same file."""
    core = all_has_arrived()
    effects = answer(core, follow_another(core, 10), 11, snapshot=SNAPSHOT)
    assert isinstance(core.state.role, Follower) and core.state.role.download is None
    assert not effects.requests, "it is asked again, but not at once"
    core.step(STORED, 12)
    effects = answer(core, core.tick(LATER_MS // 60), LATER_MS // 60, snapshot=SNAPSHOT)
    assert [type(request.body) for request in effects.requests] == [FetchSnapshot]
