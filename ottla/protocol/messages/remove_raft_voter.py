"""RemoveRaftVoter: remove a voter from the quorum (KIP-853)."""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, uuid


@api_message(81)
class RemoveRaftVoterRequest:
    cluster_id: str | None = ""
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID


@api_message(81)
class RemoveRaftVoterResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
