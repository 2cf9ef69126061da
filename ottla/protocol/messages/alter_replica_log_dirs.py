"""AlterReplicaLogDirs: move replicas between a broker's log directories (KIP-113)."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, message, struct, v


@struct
class AlterReplicaLogDirTopic:
    name: str = ""
    partitions: list[int32] = v(default=[])


@struct
class AlterReplicaLogDir:
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = v(default=[])


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = v(default=[])


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = v(default=[])


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = v(default=[])
