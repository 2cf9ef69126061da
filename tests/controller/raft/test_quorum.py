"""The transition table is complete, and each run of the simulation obeys it."""

from __future__ import annotations

from typing import get_args

import pytest

from ottla.controller.raft import transitions
from ottla.controller.raft.quorum import TRANSITIONS, check_transition
from ottla.controller.raft.roles import Follower, Resigned, Role, Unattached, Votes
from ottla.controller.raft.voters import ReplicaKey
from tests.controller.raft.simulation import run

RARE = {("Resigned", "Prospective"), ("Candidate", "Unattached"), ("Leader", "Follower")}


def test_every_role_has_a_row() -> None:
    assert set(TRANSITIONS) == set(get_args(Role))


def test_every_row_of_the_table_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def watch(old: Role, new: Role) -> None:
        seen.add((type(old), type(new)))
        check_transition(old, new)

    monkeypatch.setattr(transitions, "check_transition", watch)

    def unseen() -> set[tuple[str, str]]:
        return {
            (old.__name__, new.__name__) for old, row in TRANSITIONS.items() for new in row if (old, new) not in seen
        }

    for seed in range(60):
        run(seed)
        if unseen() <= RARE:
            return
    raise AssertionError(f"no run makes {unseen() - RARE}")


def test_what_breaks_raft_stops_the_node() -> None:
    voted = Unattached(3, 0, voted=ReplicaKey(1))
    for old, new in [
        (voted, Unattached(2, 0)),
        (voted, Unattached(3, 0, voted=ReplicaKey(2))),
        (voted, Unattached(3, 0)),
        (Follower(3, 1, (), 0), Follower(3, 2, (), 0)),
        (voted, Resigned(3, 1, 0)),
    ]:
        with pytest.raises(AssertionError):
            check_transition(old, new)


@pytest.mark.parametrize(
    ("voters", "granted", "rejected", "won", "lost"),
    [
        ({1}, {1}, set(), True, False),
        ({1, 2, 3}, {1}, set(), False, False),
        ({1, 2, 3}, {1}, {2}, False, False),
        ({1, 2, 3}, {1}, {2, 3}, False, True),
        ({1, 2, 3}, {1, 3}, {2}, True, False),
        ({1, 2, 3, 4}, {1, 2}, set(), False, False),
        ({1, 2, 3, 4}, {1, 2}, {3, 4}, False, True),
        # A candidate that is about to be removed does not count itself.
        ({2, 3}, {1, 2}, set(), False, False),
    ],
)
def test_a_ballot(voters: set[int], granted: set[int], rejected: set[int], won: bool, lost: bool) -> None:
    votes = Votes(frozenset(voters), set(granted), set(rejected))
    assert (votes.is_won, votes.is_lost) == (won, lost)
