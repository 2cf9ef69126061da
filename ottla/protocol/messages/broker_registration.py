"""BrokerRegistration: a broker registers with the controller (KIP-631).

v1 is for migration from ZooKeeper; v2 adds log directories (KIP-858); v3 the last epoch known (KIP-966); v4
cordoned directories (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, uuid, v


@api_message(62)
class BrokerRegistrationRequest:
    broker_id: int32 = 0
    cluster_id: str = ""
    incarnation_id: uuid = ZERO_UUID
    listeners: list[Listener] = v(default=[])
    features: list[Feature] = v(default=[])
    rack: str | None = ""
    is_migrating_zk_broker: bool = v("1+", default=False)
    log_dirs: list[uuid] = v("2+", default=[], ignorable=True)
    previous_broker_epoch: int64 = v("3+", default=-1, ignorable=True)


@api_message(62)
class BrokerRegistrationResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1
