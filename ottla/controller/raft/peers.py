"""One request at a time to each replica, with timeout and backoff.

A reply that arrives after its request has timed out is ignored: Raft's own checks would tolerate it, but a duplicate
snapshot chunk or batch would be of no use.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.controller.raft.leader import NEVER
from ottla.controller.raft.messages import RequestBody


@dataclass(slots=True)
class Peer:
    request_id: int = -1
    body: RequestBody | None = None
    deadline_ms: int = NEVER
    ready_ms: int = 0


@dataclass(slots=True)
class Peers:
    request_timeout_ms: int
    retry_backoff_ms: int
    _peers: dict[int, Peer] = field(default_factory=dict)
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
        """Registers a request; returns its id."""
        self._next_request_id += 1
        deadline_ms = now_ms + self.request_timeout_ms
        self._peers[destination_id] = Peer(self._next_request_id, body, deadline_ms)
        return self._next_request_id

    def completed(self, request_id: int, now_ms: int, *, back_off: bool) -> tuple[int, RequestBody] | None:
        """Completes a request; returns its destination and body, or None if it has timed out or was reset."""
        for destination_id, peer in self._peers.items():
            if peer.request_id == request_id:
                assert peer.body is not None
                self._peers[destination_id] = Peer(ready_ms=now_ms + self.retry_backoff_ms if back_off else 0)
                return destination_id, peer.body
        return None

    def back_off(self, destination_id: int, now_ms: int) -> None:
        self._peers[destination_id] = Peer(ready_ms=now_ms + self.retry_backoff_ms)

    def expired(self, now_ms: int) -> list[int]:
        """Returns the requests that have timed out."""
        return [peer.request_id for peer in self._peers.values() if peer.request_id >= 0 and peer.deadline_ms <= now_ms]

    def reset_one(self, destination_id: int) -> None:
        self._peers.pop(destination_id, None)

    def reset(self) -> None:
        """Drops all requests: the role has changed, and replies to requests of the old role are of no use."""
        self._peers.clear()

    def next_deadline_ms(self, now_ms: int) -> int:
        """Returns when the next request times out or the next backoff ends."""
        deadline_ms = NEVER
        for peer in self._peers.values():
            if peer.request_id >= 0:
                deadline_ms = min(deadline_ms, peer.deadline_ms)
            elif peer.ready_ms > now_ms:
                deadline_ms = min(deadline_ms, peer.ready_ms)
        return deadline_ms
