"""Voter sets, their history in the log, and their configuration."""

from __future__ import annotations

import pytest

from controller.raft.config import parse_endpoint, parse_voters
from controller.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet

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


def test_quorum_voters_property() -> None:
    parsed = parse_voters("2@b:9093, 1@[::1]:9094", "CONTROLLER")
    assert parsed.ids == (1, 2)
    assert parsed.endpoints(1) == (Endpoint("CONTROLLER", "::1", 9094),)
    assert parse_endpoint("host:1", "X") == Endpoint("X", "host", 1)


@pytest.mark.parametrize("text", ["1", "x@host:1", "1@host", "1@host:port", "1@:1", "1@host:70000", "1@a:1,1@b:2"])
def test_a_wrong_quorum_voters_property_says_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|twice"):
        parse_voters(text, "CONTROLLER")
