"""What the driver must do for the core after a step, and in which order.

The driver executes the fields of one Effects from top to bottom, and the Effects of one step before it takes the next.
A crash between any two lines is safe; changing their order is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import Batch, ReplyBody, RequestBody
from ottla.controller.raft.voters import Endpoint, ReplicaKey
from ottla.protocol.primitives import Buffer


class ElectionState(NamedTuple):
    """What a replica may never forget: the epoch, and whom it voted for or follows in it (-1: nobody)."""

    epoch: int
    leader_id: int = -1
    voted: ReplicaKey | None = None


class Request(NamedTuple):
    """Send `body` to `endpoint` and step Answered or Failed with `request_id`, within `timeout_ms`."""

    request_id: int
    destination_id: int
    endpoint: Endpoint
    body: RequestBody
    timeout_ms: int


class Reply(NamedTuple):
    reply_to: object
    body: ReplyBody


class SnapshotChunk(NamedTuple):
    """A piece of a leader's snapshot; position 0 starts the file anew."""

    snapshot: OffsetAndEpoch
    position: int
    data: Buffer
    is_last: bool


class LeaderAndEpoch(NamedTuple):
    leader_id: int
    epoch: int


@dataclass(slots=True)
class Effects:
    """Compare etcd's Ready."""

    #: 1. Make durable before anything below: a vote that is sent and then forgotten can elect two leaders in one epoch.
    election: ElectionState | None = None
    #: 2. Empty the log and let it start at the end of this snapshot, which is stored already; then let listeners load it.
    reset_to_snapshot: OffsetAndEpoch | None = None
    #: 3. Truncate the log before it is appended to.
    truncate_to: int | None = None
    #: 4. Append in this order, each at the offset it names. No need to wait for the disk: see `flush`.
    appends: list[Batch] = field(default_factory=list)
    #: 5. Store a piece of a snapshot. After the last one, fsync, rename, and step SnapshotReceived.
    snapshot_chunk: SnapshotChunk | None = None
    #: 6. Flush the log some time soon, and step Flushed once it is on the disk. The core itself waits for that where it
    #:    must: a leader commits, and a voter fetches again, only past what was flushed. So sending need not wait here.
    flush: bool = False
    #: 7. Send; lost ones are repeated by the core. Order among requests and replies does not matter.
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    #: 8. Everything below is committed and may be handed to the listener. Only ever grows.
    high_watermark: int | None = None
    #: 9. Tell the listener, after it has seen everything committed. Being leader oneself is told only once the first
    #:    record of the epoch is committed, so that the listener then has the whole log (invariant 20).
    leader_change: LeaderAndEpoch | None = None
    #: 10. Say it in the node's log; nothing depends on it.
    notes: list[str] = field(default_factory=list)
    #: 11. Stop, and say this to whoever configured the node: the others do not take it for one of theirs.
    disagreement: str | None = None
