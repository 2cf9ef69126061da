"""The log directories of this node: their contents, and the moves of replicas between them."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from ottla.server.network.context import RequestContext
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import has_future_name

UNKNOWN = -1


def describe_log_dirs(
    broker: BrokerComponents, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """DescribeLogDirs (35): what each log directory of this node holds, and the room on its volume.

    An offline directory is answered with KAFKA_STORAGE_ERROR. v2 flexible · v3 top-level error · v4 total and usable bytes (KIP-827) ·
    v5 is_cordoned (KIP-1066).

    Errors:
        KAFKA_STORAGE_ERROR  of a directory: it is offline
    """
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(broker, directory, asked) for directory in broker.replicas.logs.directories]
    )


def _describe(broker: BrokerComponents, directory: LogDir, asked: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path, is_cordoned=broker.configs.node.is_cordoned(directory.path))
    if not directory.online:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    by_topic: dict[str, list[Log]] = {}
    for log in broker.replicas.logs.open.in_directory(directory):
        if asked is None or (log.topic, log.partition) in asked:
            by_topic.setdefault(log.topic, []).append(log)
    result.topics = [
        DescribeLogDirsTopic(
            name=topic,
            partitions=[
                DescribeLogDirsPartition(
                    partition_index=log.partition,
                    partition_size=log.segments.size,
                    offset_lag=_offset_lag(broker, log),
                    is_future_key=_is_future(broker, log),
                )
                for log in sorted(logs, key=lambda log: log.partition)
            ],
        )
        for topic, logs in sorted(by_topic.items())
    ]
    try:
        result.total_bytes, result.usable_bytes = broker.world.files.usable_bytes(directory.path)
    except StorageFailure:
        result.total_bytes = result.usable_bytes = UNKNOWN
    return result


def _is_future(broker: BrokerComponents, log: Log) -> bool:
    return broker.replicas.logs.open.future(log.topic_id, log.partition) is log


def _offset_lag(broker: BrokerComponents, log: Log) -> int:
    """Return the lag of this replica behind the high watermark; 0 for a leader and for unknown partitions.

    The lag of a future log is that behind the log which it is going to replace; -1 if that log is not here.
    """
    if _is_future(broker, log):
        current = broker.replicas.logs.open.get(log.topic_id, log.partition)
        return UNKNOWN if current is None else current.log_end_offset - log.log_end_offset
    partition = broker.replicas.get(log.topic, log.partition)
    if partition is None or partition.is_leader:
        return 0
    return max(0, log.high_watermark - log.log_end_offset)


def alter_replica_log_dirs(
    broker: BrokerComponents, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs (34): which of this node's log directories a replica is to live in (KIP-113). v2 flexible.

    A replica in another directory is copied there (replication/log_moves.py); the response does not wait for that, DescribeLogDirs has
    the progress. For a partition that is not here yet the directory is remembered until its log is created, as in Kafka.

    Errors:
        INVALID_TOPIC_EXCEPTION     the topic's name is too long for the name of the copy's directory
        LOG_DIR_NOT_FOUND           the node has no such directory
        KAFKA_STORAGE_ERROR         the directory is offline
        INVALID_REPLICA_ASSIGNMENT  the directory is cordoned (KIP-1066)
        REPLICA_NOT_AVAILABLE       the partition exists, and has no replica here; the directory is remembered
        UNKNOWN_TOPIC_OR_PARTITION  the partition does not exist; the directory is remembered
    """
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
        broker.replicas.logs.futures.prefer(topic, index, target)
        image = broker.replicas.image.topics.by_name(topic)
        known = image is not None and index in image.partitions
        return ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        broker.replicas.moves.start(partition, target)
    except KafkaError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE
