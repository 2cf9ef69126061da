"""What one replica of the quorum is and knows, and the Effects of the step that is under way.

The role and the high watermark change in `transitions.py` alone; what is done with a message is in `elections.py`,
`replication.py` and `reconfiguration.py`. They are functions on this state, which imports none of them; `core.py` steps it.
"""

from __future__ import annotations

from random import Random

from ottla.controller.raft import agreement
from ottla.controller.raft.config import RaftConfig
from ottla.controller.raft.effects import Effects, ElectionState, LeaderAndEpoch, Reply, Request
from ottla.controller.raft.leader import Leader
from ottla.controller.raft.log_state import LogState
from ottla.controller.raft.messages import ReplyBody, RequestBody
from ottla.controller.raft.peers import Peers
from ottla.controller.raft.roles import Follower, Prospective, Resigned, Role
from ottla.controller.raft.voters import Endpoint, Endpoints, VoterHistory


class RaftState:
    role: Role

    def __init__(
        self, config: RaftConfig, log: LogState, voters: VoterHistory, election: ElectionState | None, rng: Random
    ) -> None:
        """What the disk has. The role that continues it is `elections.initial_role`."""
        self.config = config
        self.key = config.key
        self.log = log
        self.voters = voters
        self.rng = rng
        self.peers = Peers(config.request_timeout_ms, config.retry_backoff_ms)
        self.high_watermark = -1
        self.refusals = agreement.Refusals()
        self.elections_lost = 0
        #: All of a leader's snapshot has arrived, and the driver is making it durable.
        self.is_storing = False
        #: The last epoch that this node, or the process before on the same disk, was the leader of.
        self.led_epoch = election.epoch if election is not None and election.leader_id == config.key.id else -1
        self.effects = Effects()
        #: What is durable, or is about to be: `effects.election` of this step or of one before.
        self.durable_election = election
        #: What the listener has been notified of.
        self.notified_leader: LeaderAndEpoch | None = None
        #: Of the step that is under way, or of the last one.
        self.now_ms = 0

    # What it is.

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.election.leader_id

    @property
    def leader_endpoints(self) -> Endpoints:
        match self.role:
            case Leader() | Resigned():
                return self.config.endpoints
            case Follower(leader_endpoints=endpoints) | Prospective(leader_endpoints=endpoints):
                return endpoints
        return ()

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        """Whether this replica holds elections. One that a record removes goes on until that record is committed.

        Otherwise no replica could: a leader of two voters that removed itself, uncommitted, has the only log that can win.
        """
        voters = self.voters
        if not self.config.can_vote or voters.last.is_voter(self.key):
            return self.config.can_vote
        offset = voters.last_offset
        return offset is not None and offset >= self.high_watermark and voters.at(offset).is_voter(self.key)

    @property
    def is_only_voter(self) -> bool:
        return self.config.can_vote and self.voters.last.is_only_voter(self.key)

    @property
    def deadline_ms(self) -> int:
        """When `tick` has to be called at the latest; NEVER if nothing is to come."""
        return min(self.role.deadline_ms(self.is_voter), self.peers.next_deadline_ms(self.now_ms))

    def quorum_endpoint(self, endpoints: Endpoints) -> Endpoint:
        """Replicas talk on the listener that this one's quorum talks on, or the first that the other has."""
        own = self.config.endpoints[0].name if self.config.endpoints else ""
        return next((endpoint for endpoint in endpoints if endpoint.name == own), endpoints[0])

    def is_foreign_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.config.cluster_id

    def random_election_timeout_ms(self) -> int:
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms) if timeout_ms > 0 else 0

    def election_backoff_ms(self) -> int:
        """Grows with the elections lost in a row, so that candidates that collide draw apart."""
        limit_ms = min(self.config.election_backoff_ms_max, 100 << min(self.elections_lost, 10))
        return 20 + self.rng.randrange(max(1, limit_ms))

    # What the step under way sends.

    def note(self, text: str) -> None:
        self.effects.notes.append(text)

    def reply(self, reply_to: object, body: ReplyBody) -> None:
        self.effects.replies.append(Reply(reply_to, body))

    def send(self, destination_id: int, endpoints: Endpoints, body: RequestBody, now_ms: int) -> int:
        """Send if the replica is ready for a request. Returns the request's id, or -1."""
        if not endpoints or not self.peers.is_ready(destination_id, now_ms):
            return -1
        request_id = self.peers.sent(destination_id, body, now_ms)
        timeout_ms = self.config.request_timeout_ms
        self.effects.requests.append(
            Request(request_id, destination_id, self.quorum_endpoint(endpoints), body, timeout_ms)
        )
        return request_id
