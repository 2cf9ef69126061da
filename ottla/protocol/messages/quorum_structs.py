"""Structs that messages of several APIs of the quorum have in common. Other APIs have structs with these names and other fields."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, struct, uint16, v


@struct
class NodeEndpoint:
    node_id: int32 = 0
    host: str = ""
    port: uint16 = 0


@struct
class Listener:
    name: str = ""
    host: str = ""
    port: uint16 = 0


@struct
class PartitionDataResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0


@struct
class TopicDataResponse:
    topic_name: str = ""
    partitions: list[PartitionDataResponse] = v(default=[])


@struct
class KRaftVersionFeature:
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0
