"""AlterReplicaLogDirs: move replicas between a broker's log directories (KIP-113)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.protocol.schema import api_message, int32, struct, v


@struct
class AlterReplicaLogDirTopic:
    name: str = ""
    partitions: list[int32] = v(default=[])


@struct
class AlterReplicaLogDir:
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = v(default=[])


@api_message(34)
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = v(default=[])


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = ""
    partitions: list[PartitionErrorCode] = v(default=[])


@api_message(34)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = v(default=[])
