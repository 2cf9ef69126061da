"""AddRaftVoter: add a voter to the quorum (KIP-853).

v1 can answer before the change is committed.
"""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, uuid, v


@api_message(80)
class AddRaftVoterRequest:
    cluster_id: str | None = ""
    timeout_ms: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = v(default=[])
    ack_when_committed: bool = v("1+", default=True)


@api_message(80)
class AddRaftVoterResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
