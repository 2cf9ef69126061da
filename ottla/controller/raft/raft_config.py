"""Configuration of a replica of the metadata log: its identity, its peers, its timeouts. Names and defaults are Kafka's.

Some defaults differ. `append_linger_ms` is 0, not 25: an append is one copy into a mapped file, and appends during a flush
share the next flush, so lingering would only add latency. A fetch takes 8 MiB, not 1: fewer round trips to catch up.
`leader_loss_grace_ms` has no counterpart in Kafka.
"""

from __future__ import annotations

from ottla.controller.raft.voters import DYNAMIC_VOTERS, STATIC_VOTERS, QuorumEndpoints, ReplicaKey, Voter, VoterSet
from ottla.protocol.slotted import frozen
from ottla.server.config.key import LONG_MAX
from ottla.server.config.settings import setting
from ottla.storage.reserve import RESERVE_BYTES

NO_VOTERS = VoterSet()


def unlimited(limit: int) -> int:
    """Return the limit; -1 stands for none."""
    return LONG_MAX if limit < 0 else limit


@frozen
class RaftConfig:
    node_id: int
    directory_id: bytes
    cluster_id: str
    #: The endpoints of this replica; the quorum uses the first listener.
    endpoints: QuorumEndpoints = ()
    #: controller.quorum.voters: node ids and addresses, without directory ids. Empty with dynamic voters.
    static_voters: VoterSet = NO_VOTERS
    #: controller.quorum.bootstrap.servers: the addresses from which the leader is requested.
    bootstrap_servers: QuorumEndpoints = ()
    #: True if the node runs a controller. A broker only follows: it never votes, even if its node id is in the set.
    can_vote: bool = True
    #: A controller that is no voter asks to be one.
    auto_join: bool = setting("controller.quorum.auto.join.enable")
    election_timeout_ms: int = setting("controller.quorum.election.timeout.ms")
    election_backoff_ms_max: int = setting("controller.quorum.election.backoff.max.ms")
    fetch_timeout_ms: int = setting("controller.quorum.fetch.timeout.ms")
    request_timeout_ms: int = setting("controller.quorum.request.timeout.ms")
    retry_backoff_ms: int = setting("controller.quorum.retry.backoff.ms")
    append_linger_ms: int = 0
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 8 * 1024 * 1024
    snapshot_fetch_bytes_max: int = 8 * 1024 * 1024
    batch_bytes_max: int = 8 * 1024 * 1024
    #: The time for which a voter whose connection to the leader broke tries to reconnect before it requests pre-votes. A killed
    #: process closes its connections at once, so this replaces the fetch timeout in the usual failure. The time is random, up to
    #: twice this, so that voters do not collide. A wrong suspicion is harmless, because pre-votes do not change any epoch.
    leader_loss_grace_ms: int = 50
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = setting("metadata.log.segment.ms")
    retention_bytes: int = setting("metadata.max.retention.bytes", unlimited)
    retention_ms: int = setting("metadata.max.retention.ms", unlimited)
    #: The room that is kept on the disk for votes and for the batches of a leader.
    reserve_bytes: int = RESERVE_BYTES

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def own_voter(self) -> Voter:
        return Voter(self.key, self.endpoints, STATIC_VOTERS, DYNAMIC_VOTERS)
