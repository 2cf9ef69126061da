"""DescribeCluster: cluster id, controller and nodes (KIP-700).

v1 can ask for the controllers (KIP-919); v2 for fenced brokers too (KIP-1073).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(60)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = False
    endpoint_type: int8 = v("1+", default=1)
    include_fenced_brokers: bool = v("2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None
    is_fenced: bool = v("2+", default=False)


@api_message(60)
class DescribeClusterResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = v("1+", default=1)
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = v(default=[])
    cluster_authorized_operations: int32 = -0x8000_0000
