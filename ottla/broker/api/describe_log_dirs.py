"""DescribeLogDirs (35): what each log directory of this node holds, and the room on its volume.

An offline directory is answered with KAFKA_STORAGE_ERROR. v2 flexible · v3 top-level error · v4 total and usable bytes (KIP-827) ·
v5 is_cordoned (KIP-1066).

Errors:
    KAFKA_STORAGE_ERROR  of a directory: it is offline
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.server.network.context import RequestContext
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log

UNKNOWN = -1


def handle(
    broker: BrokerComponents, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
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
                    partition_size=log.size,
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

    A future log's is behind the log that it is to replace, -1 if that is not here.
    """
    if _is_future(broker, log):
        current = broker.replicas.logs.open.get(log.topic_id, log.partition)
        return UNKNOWN if current is None else current.log_end_offset - log.log_end_offset
    partition = broker.replicas.get(log.topic, log.partition)
    if partition is None or partition.is_leader:
        return 0
    return max(0, log.high_watermark - log.log_end_offset)
