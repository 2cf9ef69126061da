"""AlterReplicaLogDirs (34): which of this node's log directories a replica is to live in (KIP-113). v2 flexible.

A replica in another directory is copied there (replication/log_moves.py); the answer does not wait for that, DescribeLogDirs has
the progress. For a partition that is not here yet the directory is remembered until its log is created, as in Kafka.

Errors:
    INVALID_TOPIC_EXCEPTION     the topic's name is too long for the name of the copy's directory
    LOG_DIR_NOT_FOUND           the node has no such directory
    KAFKA_STORAGE_ERROR         the directory is offline
    INVALID_REPLICA_ASSIGNMENT  the directory is cordoned (KIP-1066)
    REPLICA_NOT_AVAILABLE       the partition exists, and has no replica here; the directory is remembered
    UNKNOWN_TOPIC_OR_PARTITION  the partition does not exist; the directory is remembered
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.server.network.context import RequestContext
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.log.partition_dir import has_future_name


def handle(
    broker: BrokerComponents, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    directories = {directory.path: directory for directory in broker.replicas.logs.directories}
    results: dict[str, list[PartitionErrorCode]] = {}
    for wanted in request.dirs:
        target = directories.get(wanted.path.rstrip("/"))
        for topic in wanted.topics:
            results.setdefault(topic.name, []).extend(
                PartitionErrorCode(index, _move(broker, target, topic.name, index)) for index in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in results.items()]
    )


def _move(broker: BrokerComponents, target: LogDir | None, topic: str, index: int) -> ErrorCode:
    if not has_future_name(topic, index):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not target.online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if broker.configs.node.is_cordoned(target.path):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partition = broker.replicas.get(topic, index)
    if partition is None:
        broker.replicas.logs.prefer(topic, index, target)
        image = broker.replicas.image.topics.by_name(topic)
        known = image is not None and index in image.partitions
        return ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        broker.replicas.moves.start(partition, target)
    except KafkaError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE
