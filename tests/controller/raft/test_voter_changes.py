"""Voters that were down while the set of voters changed, on replicas of the pure core."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.effects import PeerRequest
from ottla.controller.raft.messages import AddVoter, ControlRecords, Received, RemoveVoter, UpdateVoter
from ottla.controller.raft.reconfiguration import voters_with_directories
from ottla.controller.raft.replication import VOTER_CHANGE_PERIOD_MS
from ottla.controller.raft.voters import ReplicaKey
from ottla.protocol.errors import ErrorCode
from tests.controller.raft.cluster import Cluster, Replica, Settings, directory_of, endpoint_of, make_cluster


def leader_of(cluster: Cluster) -> Replica:
    assert cluster.leader is not None
    return cluster.leader


def settle(cluster: Cluster) -> None:
    assert cluster.run_until(cluster.now_ms + 30_000, cluster.settled)


def change(cluster: Cluster, request: AddVoter | RemoveVoter) -> None:
    said: list[Any] = []
    leader_of(cluster).step(Received(request, said.append))
    cluster.run_until(cluster.now_ms + 5_000, lambda: bool(said))
    settle(cluster)
    assert said[0].error is ErrorCode.NONE, said


def test_a_voter_that_missed_the_change_to_voters_in_the_log_votes_for_one_that_was_added_since() -> None:
    """The voters are 1, 2 and 3 by configuration; 3 goes down, the voters become 2, 3 and 4; 2 dies and 3 comes back: 3 and 4
    are a majority.
    """
    cluster = make_cluster(3, 1, seed=5, settings=Settings(delay_ms_max=2, flush_ms_max=2))
    replicas = cluster.replicas
    settle(cluster)
    while leader_of(cluster).id == 3:
        leader_of(cluster).apply(leader_of(cluster).core.resign(cluster.now_ms))
        cluster.run_until(cluster.now_ms + 300)
        settle(cluster)
    cluster.run_until(cluster.now_ms + 2_000)  # by then all have fetched, and their directories are known
    voters = voters_with_directories(leader_of(cluster).core.state)
    replicas[3].crash()
    leader = leader_of(cluster)
    _, effects = leader.core.append([(2, ControlRecords(kraft_version=1, voters=voters))], cluster.now_ms)
    leader.apply(effects)
    settle(cluster)
    change(cluster, AddVoter(None, ReplicaKey(4, directory_of(4)), (endpoint_of(4),), 1000))
    change(cluster, RemoveVoter(None, ReplicaKey(1, directory_of(1))))
    cluster.run_until(cluster.now_ms + 3_000)
    settle(cluster)
    assert leader_of(cluster).core.state.voters.last.ids == (2, 3, 4)
    replicas[1].crash()
    replicas[2].crash()
    replicas[3].start()
    settle(cluster)
    assert leader_of(cluster).id in (3, 4)
    assert replicas[3].core.state.voters.kraft_version == 1


def test_a_voter_of_a_static_quorum_describes_itself_once_to_each_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka leader raises kraft.version only after every voter has sent it an UpdateRaftVoter with its supported levels."""
    cluster = make_cluster(3, seed=5, settings=Settings(delay_ms_max=2, flush_ms_max=2))
    updates: list[tuple[int, int]] = []
    send = cluster.send

    def noting(sender: Replica, request: PeerRequest) -> None:
        if isinstance(request.body, UpdateVoter):
            updates.append((sender.id, request.destination_id))
        send(sender, request)

    monkeypatch.setattr(cluster, "send", noting)
    settle(cluster)
    leader = leader_of(cluster)
    cluster.run_until(cluster.now_ms + 5 * VOTER_CHANGE_PERIOD_MS)
    others = [replica.id for replica in cluster.replicas.values() if replica is not leader]
    assert sorted(updates) == [(other, leader.id) for other in others]
