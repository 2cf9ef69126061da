"""Changes of the log start offset: by DeleteRecords, and by the leader's Fetch response on a follower. `retention_run` has retention's."""

from __future__ import annotations

import logging

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.log_state import LogState

logger = logging.getLogger(__name__)


def advance_log_start_offset(log: LogState, offset: int) -> bool:
    if offset <= log.log_start_offset:
        return False
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log cannot start at {offset}, above its high watermark {log.high_watermark}",
        )
    log.log_start_offset = offset
    logger.info("Incremented log start offset to %d in %s-%d", offset, log.topic, log.partition)
    log.epochs.truncate_from_start(log.log_start_offset)
    return True


def delete_records(log: LogState, before_offset: int) -> int:
    log.check_usable()
    offset = log.high_watermark if before_offset == -1 else before_offset
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete records before offset {offset}")
    advance_log_start_offset(log, offset)
    return log.log_start_offset
