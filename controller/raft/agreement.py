"""Do the others mean the same quorum as this node: the same cluster id, and lists of voters that go together?

Configuration can say anything, and each node believes its own. What a node can find out, and what it does then:

    asked by a voter that its list does not have    INCONSISTENT_VOTER_SET, and no word of its own epoch: a node that is a
                                                    quorum by itself must not take the leader of the others down. Not if
                                                    the request proves that the voters are in the log by now
    refused so by a majority of its own list        stops, and says what to compare: it could never take part
    told for seconds that it leads, and it does     stops: another node has its id, and is the leader. (A leader whose disk
    not                                             was wiped is told so, too, until the others have elected a new one.)
    its list has a majority without any member      does not start: both sides could decide, and differently. One voter
    of the one it last voted with                   more or less at a time is safe

Only with controller.quorum.voters: dynamic voters (KIP-853) are in the log, where nobody can disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.controller.raft.voters import DYNAMIC_VOTERS, VoterHistory, VoterSet
from ottla.protocol.errors import ErrorCode


class QuorumDisagreement(Exception):
    """The text says what to compare with what."""


@dataclass(slots=True)
class Refusals:
    """Who says that this node does not belong to them. A later answer of another kind takes it back."""

    by_node: dict[int, ErrorCode] = field(default_factory=dict)
    #: Since when everybody says that this node leads; -1: somebody has said otherwise since.
    namesake_since_ms: int = -1

    def heard_leader(self, is_own_id: bool, now_ms: int) -> None:
        """`is_own_id`: this node was named, though it does not lead."""
        if not is_own_id:
            self.namesake_since_ms = -1
        elif self.namesake_since_ms < 0:
            self.namesake_since_ms = now_ms

    def heard(self, node_id: int, error: ErrorCode) -> None:
        if error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_VOTER_SET):
            self.by_node[node_id] = error
        else:
            self.by_node.pop(node_id, None)

    def is_namesake(self, now_ms: int, patience_ms: int) -> bool:
        return 0 <= self.namesake_since_ms < now_ms - patience_ms

    def verdict(self, own_id: int, cluster_id: str, voters: VoterSet, server_count: int) -> str | None:
        """Why to stop, if a majority of those this node may ask has refused it. `server_count`: without known voters."""
        others = len(voters) - (own_id in voters.ids) if voters else server_count
        majority = voters.majority if voters else server_count // 2 + 1
        if len(self.by_node) < min(majority, others) or not self.by_node:
            return None
        if ErrorCode.INCONSISTENT_CLUSTER_ID in self.by_node.values():
            return (
                f"the controllers at the configured addresses belong to another cluster than {cluster_id}, this node's:"
                " point it to the controllers of its own cluster, or give it the cluster.id of theirs and empty log.dirs"
            )
        named = ",".join(map(str, sorted(self.by_node)))
        return (
            f"controller.quorum.voters is not the same everywhere: the nodes {named} do not have node {own_id} as a voter;"
            " give all nodes the same list"
        )


def namesake(own_id: int) -> str:
    return (
        f"another running node has node id {own_id}, and leads the quorum: give this node an id of its own, or stop the"
        " other one"
    )


def is_no_voter(voters: VoterHistory, node_id: int) -> bool:
    """Whether a node that acts as a voter is none by our list, and the list is configuration."""
    return voters.kraft_version < DYNAMIC_VOTERS and len(voters.last) > 0 and node_id not in voters.last.ids


def check_changed_voters(before: frozenset[int], voters: VoterHistory) -> None:
    """`before`: the voters of the last election that this node remembers; empty if there was none."""
    now = frozenset(voters.last.ids)
    if not before or not now or before == now or voters.kraft_version >= DYNAMIC_VOTERS:
        return
    # The smallest majorities, with as few common members as can be.
    common = before & now
    apart_before = min(len(before) // 2 + 1, len(before - common))
    apart_now = min(len(now) // 2 + 1, len(now - common))
    needed = len(before) // 2 + 1 - apart_before + len(now) // 2 + 1 - apart_now
    if needed <= len(common):
        raise QuorumDisagreement(
            f"controller.quorum.voters names {_listed(now)}, but this node last voted in a quorum of {_listed(before)}:"
            " a majority of each could decide without the other. Put the old list back, and change it by one voter at a"
            " time, on all nodes"
        )


def _listed(ids: frozenset[int]) -> str:
    return ",".join(map(str, sorted(ids)))
