"""The transition table of the roles, with reasons: it is the specification, and the core checks every transition against it.

Observers only change between Unattached and Follower, except that a leader or voter removed from the voter set leaves its
role by the same rows as any other. Any request or reply can contain the "higher epoch".
"""

from __future__ import annotations

from ottla.controller.raft.leader import Leader
from ottla.controller.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached

TRANSITIONS: dict[type[Role], dict[type[Role], str]] = {
    Unattached: {
        Unattached: "a higher epoch, or a vote granted in this one",
        Prospective: "no leader found until the election timeout (voters only)",
        Follower: "the leader of this or a higher epoch was found",
    },
    Prospective: {
        Unattached: "a higher epoch; a vote granted in this one; or refused, and no leader is known",
        Candidate: "a majority would vote for it",
        Follower: "the leader of this or a higher epoch was found; or refused, and the old leader is still known",
    },
    Candidate: {
        Unattached: "a higher epoch; or it is not a voter any more",
        Prospective: "lost, or not won until the election timeout",
        Leader: "a majority voted for it",
        Follower: "the leader of this or a higher epoch was found",
    },
    Leader: {
        Unattached: "a higher epoch",
        Resigned: "asked to, shutting down, removed from the voters, or no majority fetched in time (check-quorum)",
        Follower: "the leader of a higher epoch was found",
    },
    Follower: {
        Unattached: "a higher epoch",
        Prospective: "the leader did not answer until the fetch timeout, or resigned (voters only)",
        Follower: "the leader of a higher epoch was found, or more endpoints of this one",
    },
    Resigned: {
        Prospective: "it is the only voter, so no other can lead the next epoch",
        Unattached: "a higher epoch; or the election timeout, after which it starts over in the next epoch",
        Follower: "the leader of a higher epoch was found",
    },
}


def check_transition(old: Role, new: Role) -> None:
    """Raise for an invalid transition, which stops the node: a wrong role can lose data, a stopped node cannot."""
    assert type(new) in TRANSITIONS[type(old)], f"{type(old).__name__} cannot become {type(new).__name__}"
    assert new.epoch >= old.epoch, f"epoch goes back from {old.epoch} to {new.epoch}"
    if new.epoch == old.epoch:
        before, after = old.election, new.election
        assert before.voted is None or after.voted in (before.voted, None), f"second vote in an epoch: {before} {after}"
        assert before.leader_id < 0 or after.leader_id == before.leader_id, f"second leader: {before} {after}"
        # A vote may only be dropped once the leader of the epoch is known, because then no vote is granted any more.
        assert before.voted is None or after.voted is not None or after.leader_id >= 0, f"vote lost: {before} {after}"
