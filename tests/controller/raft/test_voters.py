"""Voter sets, their history in the log, and their configuration."""

from __future__ import annotations

from ottla.controller.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

A, B = b"a" * 16, b"b" * 16


def voters(*keys: tuple[int, bytes]) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(*key)) for key in keys)


def test_a_static_voter_is_known_by_its_node_id_alone() -> None:
    assert VoterSet.of([Voter(ReplicaKey(1))]).is_voter(ReplicaKey(1, A))
    assert not voters((1, A)).is_voter(ReplicaKey(1, B)), "a wiped disk makes another replica"


def test_one_voter_at_a_time() -> None:
    two = voters((1, A), (2, A))
    assert two.with_voter(Voter(ReplicaKey(2, B))) is None
    assert two.without(ReplicaKey(2, B)) is None
    left = two.without(ReplicaKey(2, A))
    assert left is not None and left.ids == (1,)
    assert left.without(ReplicaKey(1, A)) is None, "the last voter stays"


def test_a_truncation_takes_a_voter_change_back() -> None:
    history = VoterHistory(voters((9, A)))
    history.append(4, voters((1, A)), 1)
    history.append(7, voters((1, A), (2, A)), None)
    assert (history.last.ids, history.last_offset, history.kraft_version) == ((1, 2), 7, 1)
    assert history.at(7).ids == (1,), "a log that ends at 7 does not have the record at 7"
    history.truncate_to(7)
    assert (history.last.ids, history.last_offset) == ((1,), 4)
    history.truncate_to(0)
    assert (history.last.ids, history.last_offset, history.kraft_version) == ((9,), None, 0)


def test_a_log_that_starts_later_keeps_its_last_voter_set() -> None:
    history = VoterHistory(VoterSet())
    history.append(4, voters((1, A)), 1)
    history.append(7, voters((2, A)), None)
    history.forget_before(6)
    assert history.at(6).ids == (1,)
    history.forget_before(100)
    assert history.last.ids == (2,)
