"""AlterReplicaLogDirs (34): which of this node's log directories a replica is to live in (KIP-113).

Naming the directory that a replica is in already changes nothing; for a replica that is not here yet it is rejected. A real
move between two directories is not built: it answers INVALID_REQUEST (docs/DIFFERENCES.md). v2 flexible.
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.server.network.context import RequestContext
from ottla.storage.log_dirs import LogDir


def handle(
    broker: BrokerComponents, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    directories = {directory.path: directory for directory in broker.replicas.logs.directories}
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        target = directories.get(wanted.path.rstrip("/"))
        for topic in wanted.topics:
            results.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(index, _judge(broker, target, topic.name, index))
                for index in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in results.items()]
    )


def _judge(broker: BrokerComponents, target: LogDir | None, topic: str, index: int) -> ErrorCode:
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not target.online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    logs = broker.replicas.logs
    log = logs.by_name(topic, index)
    if log is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE if logs.directory_of(log) is target else ErrorCode.INVALID_REQUEST
