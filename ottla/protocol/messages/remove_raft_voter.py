"""RemoveRaftVoter: remove a voter from the quorum (KIP-853)."""

from __future__ import annotations

from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.schema import int16, int32, message, uuid


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = ""
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
