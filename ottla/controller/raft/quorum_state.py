"""The state of one replica of the quorum, and the Effects of the current step.

The role and the high watermark change in `transitions.py` alone; messages are handled in `elections.py`, `replication.py` and
`reconfiguration.py`. These are functions on this state, which does not import them; `core.py` calls them.
"""

from __future__ import annotations

from dataclasses import field
from random import Random
from typing import Any, TypeVar

from ottla.controller.raft import agreement
from ottla.controller.raft.effects import Effects, ElectionState, LeaderAndEpoch, PeerReply, PeerRequest
from ottla.controller.raft.leader import NEVER, Leader
from ottla.controller.raft.log_state import LogState
from ottla.controller.raft.messages import LeaderReply, ReplyBody, RequestBody
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.roles import Follower, Prospective, Resigned, Role
from ottla.controller.raft.voters import DYNAMIC_VOTERS, QuorumEndpoint, QuorumEndpoints, VoterHistory
from ottla.protocol.errors import ErrorCode
from ottla.protocol.slotted import mutable

ReplyT = TypeVar("ReplyT", bound=LeaderReply)


@mutable
class PeerState:
    request_id: int = -1
    body: RequestBody | None = None
    deadline_ms: int = NEVER
    ready_ms: int = 0


@mutable
class Peers:
    """One request at a time to each replica, with timeout and backoff.

    A reply that arrives after its request has timed out is ignored: Raft's own checks would tolerate it, but a duplicate snapshot
    chunk or batch would be of no use.
    """

    request_timeout_ms: int
    retry_backoff_ms: int
    _peers: dict[int, PeerState] = field(default_factory=dict)
    _next_request_id: int = 0

    def is_ready(self, destination_id: int, now_ms: int) -> bool:
        peer = self._peers.get(destination_id)
        return peer is None or (peer.request_id < 0 and peer.ready_ms <= now_ms)

    def is_backing_off(self, destination_id: int, now_ms: int) -> bool:
        peer = self._peers.get(destination_id)
        return peer is not None and peer.request_id < 0 and peer.ready_ms > now_ms

    @property
    def any_waiting(self) -> bool:
        return any(peer.request_id >= 0 for peer in self._peers.values())

    def sent(self, destination_id: int, body: RequestBody, now_ms: int) -> int:
        """Register a request; return its id."""
        self._next_request_id += 1
        deadline_ms = now_ms + self.request_timeout_ms
        self._peers[destination_id] = PeerState(self._next_request_id, body, deadline_ms)
        return self._next_request_id

    def completed(self, request_id: int, now_ms: int, *, back_off: bool) -> tuple[int, RequestBody] | None:
        """Complete a request; return its destination and body, or None if it has timed out or was reset."""
        for destination_id, peer in self._peers.items():
            if peer.request_id == request_id:
                assert peer.body is not None
                self._peers[destination_id] = PeerState(ready_ms=now_ms + self.retry_backoff_ms if back_off else 0)
                return destination_id, peer.body
        return None

    def back_off(self, destination_id: int, now_ms: int) -> None:
        self._peers[destination_id] = PeerState(ready_ms=now_ms + self.retry_backoff_ms)

    def expired(self, now_ms: int) -> list[int]:
        """Return the requests that have timed out."""
        return [peer.request_id for peer in self._peers.values() if peer.request_id >= 0 and peer.deadline_ms <= now_ms]

    def reset_one(self, destination_id: int) -> None:
        self._peers.pop(destination_id, None)

    def reset(self) -> None:
        """Drop all requests: the role has changed, and replies to requests of the old role are of no use."""
        self._peers.clear()

    def next_deadline_ms(self, now_ms: int) -> int:
        """Return when the next request times out or the next backoff ends."""
        deadline_ms = NEVER
        for peer in self._peers.values():
            if peer.request_id >= 0:
                deadline_ms = min(deadline_ms, peer.deadline_ms)
            elif peer.ready_ms > now_ms:
                deadline_ms = min(deadline_ms, peer.ready_ms)
        return deadline_ms


class QuorumState:
    """The state of the quorum as one replica knows it. The functions of a step change it, and add the step's effects to it."""

    role: Role

    def __init__(
        self, config: RaftConfig, log: LogState, voters: VoterHistory, election: ElectionState | None, rng: Random
    ) -> None:
        """Start from the durable state. `elections.initial_role` returns the role that continues it."""
        self.config = config
        self.key = config.key
        self.log = log
        self.voters = voters
        self.rng = rng
        self.peers = Peers(config.request_timeout_ms, config.retry_backoff_ms)
        #: The offset below which everything is committed; -1 if unknown.
        self.high_watermark = -1
        self.rejections = agreement.Rejections()
        self.elections_lost = 0
        #: All of a leader's snapshot has arrived, and the driver is making it durable.
        self.is_storing = False
        #: The last epoch in which this node, also in an earlier process on the same disk, was the leader.
        self.led_epoch = election.epoch if election is not None and election.leader_id == config.key.id else -1
        self.effects = Effects()
        #: The election state that is durable, or that `effects.election` of this or an earlier step makes durable.
        self.durable_election = election
        #: The leader of which the listener has been notified.
        self.notified_leader: LeaderAndEpoch | None = None
        #: The time of the current step, or of the last one.
        self.now_ms = 0

    # Properties

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.election.leader_id

    @property
    def leader_endpoints(self) -> QuorumEndpoints:
        match self.role:
            case Leader() | Resigned():
                return self.config.endpoints
            case Follower(leader_endpoints=endpoints) | Prospective(leader_endpoints=endpoints):
                return endpoints
        return ()

    @property
    def leader_endpoint(self) -> QuorumEndpoint | None:
        """The endpoint for requests that only the leader serves."""
        endpoints = self.leader_endpoints
        return self.quorum_endpoint(endpoints) if endpoints else None

    @property
    def ignores_static_voters(self) -> bool:
        """Return True if controller.quorum.voters is set, and the log has the voters since kraft.version is 1 (KIP-853)."""
        return len(self.config.static_voters) > 0 and self.voters.kraft_version >= DYNAMIC_VOTERS

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        """Return True if this replica takes part in elections. A removed voter does so until the record that removes it is committed.

        Otherwise there might be no leader: if one of two voters removes itself, uncommitted, only its own log can win an election.
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
        """The latest time for the next `tick`; NEVER if none is needed."""
        return min(self.role.deadline_ms(self.is_voter), self.peers.next_deadline_ms(self.now_ms))

    def quorum_endpoint(self, endpoints: QuorumEndpoints) -> QuorumEndpoint:
        """Return a replica's endpoint of the quorum's listener, or its first one if it has no such listener."""
        own = self.config.endpoints[0].name if self.config.endpoints else ""
        return next((endpoint for endpoint in endpoints if endpoint.name == own), endpoints[0])

    def is_foreign_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self.config.cluster_id

    def random_election_timeout_ms(self) -> int:
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.rng.randrange(timeout_ms) if timeout_ms > 0 else 0

    def election_backoff_ms(self) -> int:
        """Return the election backoff. It grows with the elections lost in a row, so that candidates do not collide again."""
        limit_ms = min(self.config.election_backoff_ms_max, 100 << min(self.elections_lost, 10))
        return 20 + self.rng.randrange(max(1, limit_ms))

    # The current step

    def begin_step(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def take_effects(self) -> Effects:
        """Return the effects of the step that ends; the next one begins without any."""
        effects, self.effects = self.effects, Effects()
        return effects

    def note(self, text: str) -> None:
        self.effects.notes.append(text)

    def answer(self, kind: type[ReplyT], error: ErrorCode, **rest: Any) -> ReplyT:
        """Return a reply with this replica's epoch, and the leader that it knows."""
        return kind(error, self.epoch, self.leader_id, self.leader_endpoints, **rest)

    def reply(self, reply_to: object, body: ReplyBody) -> None:
        self.effects.replies.append(PeerReply(reply_to, body))

    def send(self, destination_id: int, endpoints: QuorumEndpoints, body: RequestBody, now_ms: int) -> int:
        """Send the body if the replica may get a request now. Return the request's id, or -1."""
        if not endpoints or not self.peers.is_ready(destination_id, now_ms):
            return -1
        request_id = self.peers.sent(destination_id, body, now_ms)
        timeout_ms = self.config.request_timeout_ms
        self.effects.requests.append(
            PeerRequest(request_id, destination_id, self.quorum_endpoint(endpoints), body, timeout_ms)
        )
        return request_id
