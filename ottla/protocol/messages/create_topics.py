"""CreateTopics: create topics.

v4 lets the broker choose partitions and replication factor (KIP-464); v5 returns the configuration (KIP-525); v6
may be throttled (KIP-599); v7 returns topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int8, int16, int32, struct, uuid, v


@struct
class CreatableReplicaAssignment:
    partition_index: int32 = 0
    broker_ids: list[int32] = v(default=[])


@struct
class CreatableTopicConfig:
    name: str = ""
    value: str | None = ""


@struct
class CreatableTopic:
    name: str = ""
    num_partitions: int32 = 0
    replication_factor: int16 = 0
    assignments: list[CreatableReplicaAssignment] = v(default=[])
    configs: list[CreatableTopicConfig] = v(default=[])


@api_message(19)
class CreateTopicsRequest:
    topics: list[CreatableTopic] = v(default=[])
    timeout_ms: int32 = 60000
    validate_only: bool = v("1+", default=False)


@struct
class CreatableTopicConfigs:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False


@struct
class CreatableTopicResult:
    name: str = ""
    topic_id: uuid = v("7+", default=ZERO_UUID, ignorable=True)
    error_code: int16 = 0
    error_message: str | None = v("1+", default="", ignorable=True)
    topic_config_error_code: int16 = v("5+", tag=0, default=0, ignorable=True)
    num_partitions: int32 = v("5+", default=-1, ignorable=True)
    replication_factor: int16 = v("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = v("5+", default=[], ignorable=True)


@api_message(19)
class CreateTopicsResponse:
    throttle_time_ms: int32 = v("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = v(default=[])
