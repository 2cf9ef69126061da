"""The effects of a step of the core, which the driver executes, and their order.

The driver executes the fields of one Effects from top to bottom, and the Effects of one step before it takes the next.
A crash between any two lines is safe; changing their order is not.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import Batch, ReplyBody, RequestBody
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey
from ottla.protocol.primitives import Buffer
from ottla.protocol.slotted import mutable


class ElectionState(NamedTuple):
    """A replica's durable election state: the epoch, and the candidate it voted for or the leader it follows in it (-1: none)."""

    epoch: int
    leader_id: int = -1
    voted: ReplicaKey | None = None


class PeerRequest(NamedTuple):
    """A request to send to `endpoint`. The driver calls `step` with Replied or Failed and the `request_id`, within `timeout_ms`."""

    request_id: int
    destination_id: int
    endpoint: QuorumEndpoint
    body: RequestBody
    timeout_ms: int


class PeerReply(NamedTuple):
    reply_to: object
    body: ReplyBody


class SnapshotChunk(NamedTuple):
    """A piece of a leader's snapshot; position 0 replaces the file."""

    snapshot: OffsetAndEpoch
    position: int
    data: Buffer
    is_last: bool


class LeaderAndEpoch(NamedTuple):
    leader_id: int
    epoch: int


@mutable
class Effects:
    """The effects of one step; etcd's counterpart is Ready."""

    #: 1. Make durable before anything below: a vote that is sent and then lost can elect two leaders in one epoch.
    election: ElectionState | None = None
    #: 2. Empty the log and start it at the end of this snapshot, which is stored already; then deliver it to the listener.
    reset_to_snapshot: OffsetAndEpoch | None = None
    #: 3. Truncate the log before it is appended to.
    truncate_to: int | None = None
    #: 4. Append in this order, each at its offset, without waiting for the disk: see `flush`.
    appends: list[Batch] = field(default_factory=list)
    #: 5. Store a piece of a snapshot. After the last one, fsync, rename, and step SnapshotReceived.
    snapshot_chunk: SnapshotChunk | None = None
    #: 6. Flush the log soon, and step Flushed once it is on the disk. The core waits for that if necessary: a leader commits,
    #:    and a voter fetches again, only up to the flushed offset. So the driver need not wait before it sends.
    flush: bool = False
    #: 7. Send; lost ones are repeated by the core. Order among requests and replies does not matter.
    requests: list[PeerRequest] = field(default_factory=list)
    replies: list[PeerReply] = field(default_factory=list)
    #: 8. Everything below is committed and may be delivered to the listener. It never decreases.
    high_watermark: int | None = None
    #: 9. Notify the listener, after everything committed is delivered. Its own replica's leadership is notified only once the
    #:    first record of the epoch is committed, so that the listener then has the whole log (invariant 20).
    leader_change: LeaderAndEpoch | None = None
    #: 10. Write these lines to the node's log.
    notes: list[str] = field(default_factory=list)
    #: 11. Stop with this message for the operator: the other nodes are configured for a different quorum.
    disagreement: str | None = None
