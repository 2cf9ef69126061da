"""What a replica of the metadata log is told: who it is, whom it knows, how long it waits. Kafka's names and defaults.

Some defaults differ. `append_linger_ms` is 0, not 25: an append here is one copy into a mapped file, and what is appended
while a flush runs shares the next one, so waiting only costs time. A fetch takes 8 MiB, not 1: fewer round trips to catch up.
`leader_loss_grace_ms` has no counterpart in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.controller.raft.voters import DYNAMIC_VOTERS, STATIC_VOTERS, Endpoints, ReplicaKey, Voter, VoterSet

NO_VOTERS = VoterSet()


@dataclass(frozen=True, slots=True)
class RaftConfig:
    node_id: int
    directory_id: bytes
    cluster_id: str
    #: Where other replicas reach this one; the listener named first is the one the quorum talks on.
    endpoints: Endpoints = ()
    #: controller.quorum.voters: node ids and addresses, without directory ids. Empty with dynamic voters.
    static_voters: VoterSet = NO_VOTERS
    #: controller.quorum.bootstrap.servers: whom to ask for the leader.
    bootstrap_servers: Endpoints = ()
    #: Whether the node runs a controller. A broker only follows: it never votes, even if its node id is in the set.
    can_vote: bool = True
    #: controller.quorum.auto.join.enable: a controller that is no voter asks to be one.
    auto_join: bool = False
    election_timeout_ms: int = 1000
    election_backoff_ms_max: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    append_linger_ms: int = 0
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 8 * 1024 * 1024
    snapshot_fetch_bytes_max: int = 8 * 1024 * 1024
    batch_bytes_max: int = 8 * 1024 * 1024
    #: How long a voter whose connection to the leader broke tries to come back before it asks for pre-votes: a killed
    #: process closes its connections at once, so this replaces the fetch timeout in the usual failure. Random up to twice
    #: this, so that voters do not collide. Wrong guesses are harmless: pre-votes disturb nobody.
    leader_loss_grace_ms: int = 50
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def own_voter(self) -> Voter:
        return Voter(self.key, self.endpoints, STATIC_VOTERS, DYNAMIC_VOTERS)
