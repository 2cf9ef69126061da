"""UpdateRaftVoter: a voter sends its endpoints and protocol versions (KIP-853)."""

from __future__ import annotations

from ottla.protocol.messages.quorum_structs import KRaftVersionFeature, Listener
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@api_message(82)
class UpdateRaftVoterRequest:
    cluster_id: str | None = ""
    current_leader_epoch: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = v(default=[])
    kraft_version_feature: KRaftVersionFeature = v(factory=KRaftVersionFeature)


@struct
class CurrentLeader:
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    host: str = ""
    port: int32 = 0


@api_message(82)
class UpdateRaftVoterResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    current_leader: CurrentLeader = v(tag=0, factory=CurrentLeader)
