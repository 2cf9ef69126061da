"""The core of one replica alone: messages go in, effects come out (invariants 20 and 24)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.controller.raft.core import NotLeader, RaftCore
from ottla.controller.raft.effects import Effects, ElectionState
from ottla.controller.raft.elections import START_ELECTION_MS_MAX
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import (
    Batch,
    BeginQuorumEpoch,
    BeginQuorumEpochReply,
    EndQuorumEpoch,
    EndQuorumEpochReply,
    Failed,
    Fetch,
    FetchReply,
    Flushed,
    Received,
    Replied,
    Vote,
    VoteReply,
)
from ottla.controller.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from ottla.controller.raft.voters import ReplicaKey, VoterHistory
from ottla.protocol.errors import ErrorCode
from tests.controller.raft.cluster import directory_of, endpoint_of, make_config, static_voters

NONE = ErrorCode.NONE


def make(
    node_id: int = 1,
    *,
    election: ElectionState | None = None,
    epochs: list[tuple[int, int]] | None = None,
    end: int = 0,
    voters: tuple[int, ...] = (1, 2, 3),
    rng: Random | None = None,
    **settings: Any,
) -> RaftCore:
    log = LogState(0, end, epochs or [], [], end)
    config = make_config(node_id, static_voters(*voters), **settings)
    return RaftCore(config, log, VoterHistory(config.static_voters), election, rng or Random(1), 0)


def following(**options: Any) -> tuple[RaftCore, Effects]:
    """Return a follower of leader 2 in epoch 5, with a flushed log of ten records of epoch 4, and the effects of its first
    fetch.
    """
    core = make(epochs=[(4, 0)], end=10, **options)
    core.tick(0)
    effects = core.step(Received(BeginQuorumEpoch(None, None, 5, 2, (endpoint_of(2),)), None), 0)
    assert isinstance(core.state.role, Follower)
    return core, effects


def follower(**options: Any) -> RaftCore:
    return following(**options)[0]


def reply_to(core: RaftCore, effects: Effects, now_ms: int = 1, **fields: Any) -> Effects:
    """Answer the only request in `effects` with a FetchReply of the leader."""
    (request,) = effects.requests
    return core.step(Replied(request.request_id, FetchReply(NONE, 5, 2, (endpoint_of(2),), **fields)), now_ms)


def vote(candidate: int, epoch: int, log_end: tuple[int, int] = (10, 4), pre_vote: bool = False) -> Received:
    key = ReplicaKey(candidate, directory_of(candidate))
    return Received(Vote(None, None, epoch, key, OffsetAndEpoch(*log_end), pre_vote), None)


def granted(effects: Effects) -> bool:
    (reply,) = effects.replies
    assert isinstance(reply.body, VoteReply)
    return reply.body.granted


def test_the_only_voter_leads_in_its_first_tick_and_commits_only_what_is_flushed() -> None:
    core = make(voters=(1,))
    effects = core.tick(0)
    assert effects.election == ElectionState(1, 1)
    assert [batch.last_offset for batch in effects.appends] == [0]
    assert effects.flush and effects.high_watermark is None
    last_offset, effects = core.append([(3, ["a", "b", "c"])], 1)
    assert (last_offset, effects.high_watermark) == (3, None)
    effects = core.step(Flushed(core.state.log.generation, 2), 2)
    assert effects.high_watermark == 2
    assert effects.leader_change == (1, 1)


def test_a_vote_is_durable_before_the_reply_and_given_once() -> None:
    core = follower()
    effects = core.step(vote(3, 6), 1)
    assert granted(effects)
    assert effects.election == ElectionState(6, -1, ReplicaKey(3, directory_of(3)))
    assert not granted(core.step(vote(2, 6), 2))
    assert granted(core.step(vote(3, 6), 3)), "the same candidate may ask again"


def test_no_vote_for_a_log_that_is_behind() -> None:
    core = follower()
    assert not granted(core.step(vote(3, 6, log_end=(9, 4)), 1))
    assert not granted(core.step(vote(3, 7, log_end=(99, 3)), 2))
    assert granted(core.step(vote(3, 8, log_end=(10, 4)), 3))


def test_a_follower_whose_leader_answers_refuses_pre_votes() -> None:
    core = follower()
    effects = core.tick(1)
    assert granted(core.step(vote(3, 5, pre_vote=True), 2)), "the leader has not answered yet"
    core = follower()
    core.state.role.has_fetched = True
    effects = core.step(vote(3, 5, pre_vote=True), 2)
    assert not granted(effects)
    assert effects.election is None, "a pre-vote changes nothing"


def candidate_without_the_leader() -> tuple[RaftCore, dict[int, int], int]:
    """Return a candidate of epoch 6, after leader 2's connection broke and 3 granted its pre-vote, with the ids of the requests
    for votes, and the time.
    """
    core, effects = following()
    now_ms = 1
    core.step(Failed(effects.requests[0].request_id, connection_closed=True), now_ms)
    while not isinstance(core.state.role, Prospective):
        now_ms += 10
        effects = core.tick(now_ms)
    asked = {request.destination_id: request.request_id for request in effects.requests}
    reply = VoteReply(NONE, 5, 2, (endpoint_of(2),), True)
    effects = core.step(Replied(asked[3], reply), now_ms)
    assert isinstance(core.state.role, Candidate)
    return core, {request.destination_id: request.request_id for request in effects.requests}, now_ms


@pytest.mark.parametrize("dead_first", [True, False])
def test_two_who_vote_for_themselves_and_miss_the_dead_leader_try_again_soon(dead_first: bool) -> None:
    core, asked, now_ms = candidate_without_the_leader()
    events = [
        Failed(asked[2], connection_closed=True),
        Replied(asked[3], VoteReply(NONE, 6, -1, (), False)),
    ]
    for event in events if dead_first else reversed(events):
        core.step(event, now_ms)
    assert isinstance(core.state.role, Candidate)
    assert core.state.role.election_deadline_ms <= now_ms + 220, "it would wait out the election timeout"


def test_a_candidate_that_was_refused_once_waits_for_those_who_can_still_answer() -> None:
    core, asked, now_ms = candidate_without_the_leader()
    core.step(Replied(asked[3], VoteReply(NONE, 6, -1, (), False)), now_ms)
    assert isinstance(core.state.role, Candidate) and not core.state.role.is_backing_off
    core.step(Replied(asked[2], VoteReply(NONE, 6, -1, (), True)), now_ms)
    assert isinstance(core.state.role, Leader)


@pytest.mark.parametrize(
    ("election", "role"),
    [
        (None, Unattached),
        (ElectionState(4, 1), Resigned),
        (ElectionState(4, 2), Follower),
        (ElectionState(5, -1, ReplicaKey(1, directory_of(1))), Unattached),
        (ElectionState(3, 1), Unattached),
    ],
)
def test_what_a_restart_begins_as(election: ElectionState | None, role: type) -> None:
    core = make(election=election, epochs=[(4, 0)], end=10)
    assert type(core.state.role) is role
    assert core.state.epoch >= 4, "never before the epoch of the log"


def test_a_voter_fetches_again_only_when_what_it_got_is_flushed() -> None:
    core, effects = following()
    effects = reply_to(core, effects, 201, high_watermark=11, batches=(Batch(10, 12, 5, "data"),))
    assert [batch.base_offset for batch in effects.appends] == [10]
    assert (effects.flush, effects.requests, effects.high_watermark) == (True, [], 11)
    effects = core.step(Flushed(core.state.log.generation, 13), 202)
    (request,) = effects.requests
    assert isinstance(request.body, Fetch)
    assert request.body.log_end == OffsetAndEpoch(13, 5)


def test_a_flush_begun_before_a_truncation_says_nothing_about_what_came_after() -> None:
    core, effects = following()
    effects = reply_to(core, effects, 201, batches=(Batch(10, 12, 4, "old"),))
    begun = core.state.log.generation
    effects = core.step(Flushed(begun, 13), 202)
    effects = reply_to(core, effects, 203, diverging=OffsetAndEpoch(10, 4))
    assert effects.truncate_to == 10
    effects = reply_to(core, effects, 204, batches=(Batch(10, 12, 5, "new"),))
    effects = core.step(Flushed(begun, 13), 205)
    assert effects.flush and not effects.requests, "the new records are not on the disk"
    assert core.step(Flushed(core.state.log.generation, 13), 206).requests


def test_a_leader_cannot_make_a_follower_truncate_what_is_committed() -> None:
    core, effects = following()
    effects = reply_to(core, effects, 201, high_watermark=8)
    effects = reply_to(core, effects, 202, diverging=OffsetAndEpoch(7, 4))
    assert effects.truncate_to is None
    assert any("REFUSED" in note for note in effects.notes)
    assert core.state.log.end_offset == 10


@pytest.mark.parametrize(
    "batch", [Batch(11, 11, 5, ""), Batch(9, 10, 5, ""), Batch(10, 10, 3, ""), Batch(10, 10, 6, "")]
)
def test_batches_that_do_not_continue_the_log_are_refused(batch: Batch) -> None:
    core, effects = following()
    effects = reply_to(core, effects, 201, batches=(batch,))
    assert effects.appends == []
    assert core.state.log.end_offset == 10


def test_a_reply_that_comes_too_late_is_ignored() -> None:
    core, effects = following(fetch_timeout_ms=60_000)
    (request,) = effects.requests
    core.tick(core.state.config.request_timeout_ms)
    reply = FetchReply(NONE, 5, 2, batches=(Batch(10, 10, 5, ""),))
    effects = core.step(Replied(request.request_id, reply), core.state.config.request_timeout_ms)
    assert effects.appends == []


def elected(**options: Any) -> RaftCore:
    """Return a leader of epoch 5 among three, elected by the vote of 2."""
    core = make(election=ElectionState(4), epochs=[(4, 0)], end=10, **options)
    for _ in range(2):
        effects = core.tick(3000)
        for request in effects.requests:
            if isinstance(request.body, Vote) and request.destination_id == 2:
                reply = VoteReply(NONE, request.body.epoch, granted=True)
                effects = core.step(Replied(request.request_id, reply), 3000)
        for request in effects.requests:
            if isinstance(request.body, Vote) and request.destination_id == 2:
                core.step(Replied(request.request_id, VoteReply(NONE, request.body.epoch, granted=True)), 3000)
    assert isinstance(core.state.role, Leader), core.state.role
    return core


def fetch(core: RaftCore, replica: int, offset: int, epoch: int, *, wait_ms: int = 0, now_ms: int = 3001) -> Effects:
    key = ReplicaKey(replica, directory_of(replica))
    body = Fetch(None, key, core.state.epoch, OffsetAndEpoch(offset, epoch), core.state.high_watermark, wait_ms)
    return core.step(Received(body, replica), now_ms)


def test_records_of_older_epochs_are_committed_only_with_one_of_the_own() -> None:
    """This is figure 8 of the Raft paper."""
    core = elected()
    core.step(Flushed(core.state.log.generation, 11), 3000)
    assert fetch(core, 2, 10, 4).high_watermark is None, "a majority has them all, and yet"
    assert fetch(core, 2, 11, 5).high_watermark == 11


def test_a_leader_does_not_count_itself_before_its_flush() -> None:
    core = elected()
    assert fetch(core, 2, 11, 5).high_watermark is None
    assert core.step(Flushed(core.state.log.generation, 11), 3002).high_watermark == 11


def test_a_fetch_waits_for_an_append_or_for_the_watermark() -> None:
    core = elected()
    core.step(Flushed(core.state.log.generation, 11), 3000)
    (reply,) = fetch(core, 3, 11, 5, wait_ms=500).replies
    assert reply.reply_to == 3, "its own fetch has moved the watermark, which is news"
    assert core.state.high_watermark == 11
    core.append([(1, ["x"])], 3005)
    effects = fetch(core, 2, 11, 5, wait_ms=500, now_ms=3006)
    (reply,) = effects.replies
    assert reply.body.records_from == 11
    assert fetch(core, 2, 12, 5, wait_ms=500, now_ms=3007).replies == []
    effects = core.step(Flushed(core.state.log.generation, 12), 3008)
    assert effects.high_watermark == 12
    assert [reply.reply_to for reply in effects.replies] == [2], "who waits learns of the commit at once (KIP-1166)"


def test_a_waiting_fetch_is_answered_when_its_time_is_up() -> None:
    core = elected()
    core.step(Flushed(core.state.log.generation, 11), 3000)
    fetch(core, 2, 11, 5)
    assert fetch(core, 2, 11, 5, wait_ms=500, now_ms=3010).replies == []
    assert core.state.deadline_ms <= 3510
    (reply,) = core.tick(3510).replies
    assert reply.body.error is NONE


def test_a_leader_that_loses_its_office_lets_the_waiting_go() -> None:
    core = elected()
    core.step(Flushed(core.state.log.generation, 11), 3000)
    fetch(core, 2, 11, 5)
    fetch(core, 2, 11, 5, wait_ms=500)
    effects = core.step(vote(3, 9, log_end=(99, 8)), 3003)
    assert [reply.body.error for reply in effects.replies if isinstance(reply.body, FetchReply)] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    assert effects.leader_change is not None and effects.leader_change.leader_id == -1
    with pytest.raises(NotLeader):
        core.append([(1, ["x"])], 3004)


def test_a_leader_without_a_majority_resigns() -> None:
    core = elected()
    timeout_ms = int(core.state.config.fetch_timeout_ms * 1.5)
    core.tick(3000 + timeout_ms - 1)
    assert core.state.is_leader
    fetch(core, 3, 10, 4, now_ms=3000 + timeout_ms - 1)
    core.tick(3000 + timeout_ms + 10)
    assert core.state.is_leader, "one of two followers is enough"
    core.tick(3000 + 3 * timeout_ms)
    assert isinstance(core.state.role, Resigned)


def test_a_lost_connection_shortens_the_wait_for_the_leader() -> None:
    core, effects = following()
    effects = reply_to(core, effects, 201)
    (request,) = effects.requests
    core.step(Failed(request.request_id, connection_closed=True), 300)
    assert 300 <= core.state.role.deadline_ms(True) <= 300 + 2 * core.state.config.leader_loss_grace_ms
    core.tick(300 + 2 * core.state.config.leader_loss_grace_ms)
    assert isinstance(core.state.role, Prospective)


def test_a_pre_vote_that_an_old_replica_cannot_answer_counts() -> None:
    core = make(election=ElectionState(4), epochs=[(4, 0)], end=10)
    effects = core.tick(3000)
    asked = [request for request in effects.requests if request.destination_id == 2]
    core.step(Failed(asked[0].request_id, unsupported_version=True), 3001)
    assert isinstance(core.state.role, Candidate)


def test_a_node_without_the_controller_role_never_asks_for_votes() -> None:
    core = make(can_vote=False)
    core.tick(0)
    core.tick(60_000)
    assert isinstance(core.state.role, Unattached)


@pytest.mark.parametrize(
    ("request_of_a_foreign_node", "reply_type"),
    [
        (Vote(None, None, 9, ReplicaKey(7, directory_of(7)), OffsetAndEpoch(99, 8)), VoteReply),
        (BeginQuorumEpoch(None, None, 9, 7, (endpoint_of(7),)), BeginQuorumEpochReply),
        (EndQuorumEpoch(None, 9, 7, (), (endpoint_of(7),)), EndQuorumEpochReply),
    ],
)
def test_who_is_no_voter_by_our_list_moves_nothing_and_learns_nothing(
    request_of_a_foreign_node: Any, reply_type: type
) -> None:
    core = follower()
    effects = core.step(Received(request_of_a_foreign_node, "him"), 1)
    assert [reply.body for reply in effects.replies] == [reply_type(ErrorCode.INCONSISTENT_VOTER_SET)]
    assert (core.state.leader_id, core.state.epoch) == (2, 5)


@pytest.mark.parametrize(
    "request_of_a_new_voter",
    [
        Vote(None, ReplicaKey(1, directory_of(1)), 9, ReplicaKey(7, directory_of(7)), OffsetAndEpoch(99, 8)),
        BeginQuorumEpoch(None, ReplicaKey(1, directory_of(1)), 9, 7, (endpoint_of(7),)),
        EndQuorumEpoch(None, 9, 7, (ReplicaKey(1, directory_of(1)),), (endpoint_of(7),)),
    ],
)
def test_a_request_that_names_our_directory_is_from_voters_in_the_log_that_we_have_not_read_yet(
    request_of_a_new_voter: Any,
) -> None:
    core = follower()
    effects = core.step(Received(request_of_a_new_voter, "him"), 1)
    assert [reply.body.error for reply in effects.replies] == [ErrorCode.NONE]
    assert core.state.epoch == 9


def test_a_repeated_vote_request_is_granted_where_the_file_did_not_keep_the_directory() -> None:
    """Version 0 of quorum-state, for static voters, has only the node id."""
    core = make(election=ElectionState(5, -1, ReplicaKey(2)), epochs=[(4, 0)], end=10)
    for candidate, granted in ((2, True), (3, False)):
        vote = Vote(None, None, 5, ReplicaKey(candidate, directory_of(candidate)), OffsetAndEpoch(10, 4))
        effects = core.step(Received(vote, "him"), 1)
        assert [reply.body.granted for reply in effects.replies] == [granted]


def test_observers_that_fetch_no_more_are_forgotten_when_others_come() -> None:
    core = elected()
    leader = core.state.role
    assert isinstance(leader, Leader)
    for number in range(50):
        observer = ReplicaKey(9, number.to_bytes(16, "big"))
        core.step(
            Received(Fetch(None, observer, core.state.epoch, core.state.log.end), number), 3_000 + number * 60_000
        )
        leader.check_quorum_deadline_ms = 1 << 40
    assert len(leader.observers) <= 6, "restarted with a new disk each minute; they are described for five"


def test_a_voter_of_the_list_with_an_older_epoch_gets_the_newer_one() -> None:
    effects = follower().step(Received(BeginQuorumEpoch(None, None, 4, 3, (endpoint_of(3),)), "him"), 1)
    assert [(reply.body.error, reply.body.epoch) for reply in effects.replies] == [(ErrorCode.FENCED_LEADER_EPOCH, 5)]


@pytest.mark.parametrize("error", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_VOTER_SET])
def test_a_node_that_a_majority_of_its_list_refuses_stops_and_one_that_a_minority_refuses_does_not(
    error: ErrorCode,
) -> None:
    core = make(voters=(1, 2, 3))
    core.tick(0)
    effects = core.tick(5_000)
    asked = {request.destination_id: request.request_id for request in effects.requests}
    assert set(asked) == {2, 3}, "pre-votes"
    assert core.step(Replied(asked[2], VoteReply(error)), 5_001).disagreement is None
    assert core.step(Replied(asked[3], VoteReply(error)), 5_002).disagreement


def test_a_second_node_with_a_voters_id_is_not_counted_while_the_first_fetches() -> None:
    core = elected()
    leader = core.state.role
    assert isinstance(leader, Leader)
    impostor = ReplicaKey(2, b"i" * 16)
    fetch(core, 2, 10, 4)
    core.step(Received(Fetch(None, impostor, core.state.epoch, core.state.log.end), "impostor"), 3002)
    assert leader.voters[2].end_offset == 10, "what the impostor has, the voter has not"
    later_ms = 3003 + leader.check_quorum_ms
    core.step(Received(Fetch(None, impostor, core.state.epoch, core.state.log.end), "replaced"), later_ms)
    assert leader.voters[2].end_offset == 11, "its disk was replaced: the old one does not come back"


def test_a_former_leader_whom_the_others_still_name_is_no_duplicate_node_id() -> None:
    """The others were suspended; they elect no leader for many timeouts, and answer from their old state."""
    core = elected()
    led = core.state.epoch
    now_ms = 3002
    effects = core.tick(now_ms)
    while now_ms < 60_000:
        now_ms += 100
        for request in effects.requests:
            match request.body:
                case Fetch():
                    reply: FetchReply | VoteReply = FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, led, 1)
                case Vote():
                    reply = VoteReply(ErrorCode.NONE, led, 1)
                case _:
                    continue
            assert core.step(Replied(request.request_id, reply), now_ms).disagreement is None
        effects = core.tick(now_ms)
    assert not core.state.is_leader and core.state.led_epoch == led


def test_a_node_that_others_take_for_their_leader_and_is_not_stops_after_a_while() -> None:
    core = make(1, voters=(1, 2, 3))
    effects = core.tick(0)
    now_ms, reported = 0, None
    while reported is None and now_ms < 60_000:
        now_ms += 100
        for request in effects.requests:
            if isinstance(request.body, Fetch):
                reply = FetchReply(ErrorCode.FENCED_LEADER_EPOCH, 7, 1)
                reported = core.step(Replied(request.request_id, reply), now_ms).disagreement or reported
        effects = core.tick(now_ms)
    assert reported is not None and "another running node has node id 1" in reported
    assert now_ms > 2 * core.state.config.fetch_timeout_ms, "its own former leadership is still in their heads"


def test_a_time_without_a_response_is_no_sign_that_another_node_with_its_id_leads() -> None:
    """All nodes of a machine stop for a while; then the former leader, which lost its disk, sends requests before the others
    elect another leader.
    """
    core = make(1, voters=(1, 2, 3))
    fenced, patience_ms = (ErrorCode.FENCED_LEADER_EPOCH, 7, 1), 2 * core.state.config.fetch_timeout_ms
    asked, counted = core.tick(0).requests, 0
    times = [*range(100, patience_ms // 2, 100), *range(2 * patience_ms, 2 * patience_ms + 1_000, 100)]
    for now_ms in times:
        for request in asked:
            reply = FetchReply(*fenced) if isinstance(request.body, Fetch) else VoteReply(*fenced)
            assert core.step(Replied(request.request_id, reply), now_ms).disagreement is None
            counted += 1
        asked = core.tick(now_ms + 50).requests
    assert counted > len(times) // 2, "it goes on asking who leads"


@pytest.mark.parametrize("seed", range(20))
def test_a_voter_that_starts_without_a_known_leader_waits_no_longer_than_the_bound(seed: int) -> None:
    core = make(rng=Random(seed))
    assert isinstance(core.state.role, Unattached)
    assert core.state.role.election_deadline_ms < START_ELECTION_MS_MAX
