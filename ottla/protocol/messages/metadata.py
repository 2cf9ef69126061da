"""Metadata: brokers, topics, partitions and their leaders.

v1 takes null for all topics; v4 auto-creation switch; v5 offline replicas; v7 leader epochs; v8 authorized
operations (KIP-430); v10 topic ids, usable from v12 (KIP-516); v13 top-level error (KIP-1102).
"""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, struct, uuid, v


@struct
class MetadataRequestTopic:
    topic_id: uuid = v("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = v(default="", nullable="10+")


@api_message(3)
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = v(default=[], nullable="1+")
    allow_auto_topic_creation: bool = v("4+", default=True)
    include_cluster_authorized_operations: bool = v("8-10", default=False)
    include_topic_authorized_operations: bool = v("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = v("1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = v("7+", default=-1, ignorable=True)
    replica_nodes: list[int32] = v(default=[])
    isr_nodes: list[int32] = v(default=[])
    offline_replicas: list[int32] = v("5+", default=[], ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int16 = 0
    name: str | None = v(default="", nullable="12+")
    topic_id: uuid = v("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = v("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = v(default=[])
    topic_authorized_operations: int32 = v("8+", default=-0x8000_0000)


@api_message(3)
class MetadataResponse:
    throttle_time_ms: int32 = v("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = v(default=[])
    cluster_id: str | None = v("2+", default=None, ignorable=True)
    controller_id: int32 = v("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = v(default=[])
    cluster_authorized_operations: int32 = v("8-10", default=-0x8000_0000)
    error_code: int16 = v("13+", default=0, ignorable=True)
