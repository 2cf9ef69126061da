"""Checks that this node and its peers are configured for the same quorum: the same cluster id and compatible voter sets.

Each node uses its own configuration, so two nodes can differ. The cases that a node detects, and its reactions:

    a request of a node outside its voter set       INCONSISTENT_VOTER_SET, without its own epoch, because a node that is a
                                                    quorum by itself must not depose the leader of the others. The check
                                                    is skipped if the request proves that the voters are in the log by now
    INCONSISTENT_VOTER_SET from a majority of its   it stops with a message that says what to compare, because it could
    own voter set                                   never take part
    for seconds all responses name its own id as    it stops: another node has the same node id and is the leader. (A leader
    leader, although it does not lead               whose disk was wiped gets such responses until a new one is elected)
    its voter set has a majority that shares no     it does not start: both majorities could decide, differently. Adding or
    voter with a majority of the voter set in       removing one voter at a time is safe
    which it last voted

It applies to controller.quorum.voters only: dynamic voters (KIP-853) are in the log, so that nodes cannot differ.
"""

from __future__ import annotations

from dataclasses import field

from ottla.controller.raft.voters import DYNAMIC_VOTERS, VoterHistory, VoterSet
from ottla.protocol.errors import ErrorCode
from ottla.protocol.slotted import mutable

#: The longest time between two responses that counts: a pause of this node, or of the whole machine, is no time in which a
#: leader could be elected. A node without a leader sends requests far more often.
BETWEEN_RESPONSES_MS_MAX = 500


class QuorumDisagreement(Exception):
    """Nodes are configured for different quorums. The text names the settings to compare."""


@mutable
class Rejections:
    """The peers that rejected this node as not of their quorum. A later response without rejection removes a peer."""

    by_node: dict[int, ErrorCode] = field(default_factory=dict)
    #: For how long all responses have named this node as leader, and when the last of them came; 0 and -1 after one that names another.
    duplicate_id_ms: int = 0
    duplicate_id_named_ms: int = -1

    def record_leader(self, is_own_id: bool, now_ms: int) -> None:
        """Record the leader in a response. `is_own_id`: it is this node's id, although this node does not lead."""
        if not is_own_id:
            self.duplicate_id_ms, self.duplicate_id_named_ms = 0, -1
            return
        if self.duplicate_id_named_ms >= 0:
            self.duplicate_id_ms += min(now_ms - self.duplicate_id_named_ms, BETWEEN_RESPONSES_MS_MAX)
        self.duplicate_id_named_ms = now_ms

    def record(self, node_id: int, error: ErrorCode) -> None:
        if error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_VOTER_SET):
            self.by_node[node_id] = error
        else:
            self.by_node.pop(node_id, None)

    def has_duplicate_node_id(self, patience_ms: int) -> bool:
        return self.duplicate_id_ms > patience_ms

    def verdict(self, own_id: int, cluster_id: str, voters: VoterSet, server_count: int) -> str | None:
        """Return why to stop, if a majority of the peers has rejected this node. `server_count` is used if the voters are unknown."""
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


def duplicate_node_id_message(own_id: int) -> str:
    return (
        f"another running node has node id {own_id}, and leads the quorum: give this node an id of its own, or stop the"
        " other one"
    )


def is_no_voter(voters: VoterHistory, node_id: int) -> bool:
    """Return True if the node is outside the voter set, and the set comes from the configuration."""
    return voters.kraft_version < DYNAMIC_VOTERS and len(voters.last) > 0 and node_id not in voters.last.ids


def check_changed_voters(before: frozenset[int], voters: VoterHistory) -> None:
    """Raise if the two voter sets have disjoint majorities. `before`: the voters in quorum-state; empty if there is none."""
    now = frozenset(voters.last.ids)
    if not before or not now or before == now or voters.kraft_version >= DYNAMIC_VOTERS:
        return
    # The smallest majorities with the fewest common voters.
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
